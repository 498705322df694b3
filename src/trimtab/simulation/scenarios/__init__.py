"""Scenario and study files, and how they are run.

The scenarios themselves are TOML files here. Begin with `scenario`.
"""
