"""Statements, fields and channel bodies: what a user defines, parsed and checked. Begin with `statements`."""
