"""Routing tables: which advertisements and subscriptions came from where, and what is told to whom.

Begin with `tables`.
"""
