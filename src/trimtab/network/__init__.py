"""The world of real sockets, processes and timers."""
