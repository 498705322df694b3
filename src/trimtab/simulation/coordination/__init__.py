"""Cities of subscribers led by a coordination server, simulated by their load: who is where, not each message."""
