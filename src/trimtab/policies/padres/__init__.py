"""Balancing by exchanging load information in clusters of brokers: detection, mediation, three offload algorithms."""
