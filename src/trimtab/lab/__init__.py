"""Scenarios, parameter sweeps, and the figures and tables made from them."""
