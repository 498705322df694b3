"""Publisher and subscriber sessions, without their sockets."""
