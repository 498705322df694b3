"""Balancing in stages: initial placement, dynamic migration and shuffling, led by a coordination server."""
