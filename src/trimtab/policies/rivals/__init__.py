"""What other brokers do to level load, as policies to compare with: connection counts, shedding, hashing of filters.

Read `decision.py` first; each way of deciding stands in a file of its own, and `edge.py` carries it out. docs/rivals.md
has the comparison.
"""
