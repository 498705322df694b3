"""Channels on Spark: the engine, queries over new records and all subscriptions together, and the session.

Begin with `engine`.
"""
