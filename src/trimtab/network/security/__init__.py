"""What `trimtab.security` decides, with files, sockets and clocks: TLS, the gate of a broker, limits against strangers.

Read `gate.py` first: everything that a broker's process is told by somebody passes it.
"""
