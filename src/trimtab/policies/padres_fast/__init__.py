"""Balancing many brokers at once: cluster-heads collect loads and profiles, and plan for all.

Begin with `joint_plan`.
"""
