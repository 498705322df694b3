"""Moves of clients between brokers: transitions, the order of a publisher's stays, and who is asked to move.

Begin with `transitions`.
"""
