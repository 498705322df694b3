"""A nemesis over real processes: brokers die, hang and restart while clients work, and an independent checker looks.

Begin with `run.py`. `schedule.py` draws what happens, `cluster.py` and `proxy.py` do it to processes and links,
`workload.py` publishes and subscribes, `history.py` holds what was seen, and `checker.py` says what that means.
"""
