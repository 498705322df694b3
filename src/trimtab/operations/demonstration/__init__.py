"""The demonstration: a network that levels itself, with channels on Spark. Begin with `demonstration`."""
