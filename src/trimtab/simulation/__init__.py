"""A world of virtual time with modelled capacities, links, declared faults, and checkers that see everything."""
