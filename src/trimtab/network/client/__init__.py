"""Clients of a network, for asyncio and without an event loop. Begin with `client`."""
