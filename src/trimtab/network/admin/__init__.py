"""Running networks from outside: status, restarts, and networks of processes on this machine."""
