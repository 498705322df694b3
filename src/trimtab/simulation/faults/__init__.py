"""Faults as declared data: deaths, separations, cuts, misbehaving clients, and what carries them out."""
