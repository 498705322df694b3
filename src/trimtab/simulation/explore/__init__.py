"""The explorer: every order of events in small networks, with the very same brokers and clients; begin with `search`.

A state is a tuple of numbers: each node, queue and the checker has one, given by what decides its future (`freezing`),
so that states are cheap to keep and to compare, and what a node does in a situation is worked out once (`nodes`).
`state` says what may happen next, `cases` which networks are explored, `report` what came of it.
"""
