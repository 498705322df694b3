"""Benchmarks: what things cost, as ratios in one run."""
