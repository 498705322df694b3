"""Replacing and doubling brokers on demand."""
