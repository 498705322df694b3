"""Virtual time, modelled capacities, connections and disks around the very same brokers and clients.

Begin with `world`.
"""
