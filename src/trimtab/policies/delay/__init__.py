"""Balancing for latency: allocation, queue-depth thresholds from latency requirements, and priorities."""
