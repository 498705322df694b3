"""TCP connections between brokers and to clients: addresses, heartbeat, and who calls whom."""
