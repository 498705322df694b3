"""Brokers that fail: who makes sure of it, who may replace them, and who starts the replica. Begin with `replacing`."""
