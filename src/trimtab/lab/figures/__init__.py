"""Figures of runs, studies and grids, drawn from records."""
