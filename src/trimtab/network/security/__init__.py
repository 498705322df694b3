"""What `trimtab.security` decides, with files, sockets and clocks: TLS, access control, limits against strangers.

Read `access_control.py` first: everything that a broker's process is told by somebody passes it.
"""
