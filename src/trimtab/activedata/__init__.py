"""Feeds, datasets, channels and their results on Spark."""
