"""Everything that decides: who moves where, which brokers double.

Begin with `api`, what a policy sees and may ask for.
"""
