"""Round-trip times to brokers, measured by how long a TCP connection takes to stand: one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from trimtab.network.clock import now_s
from trimtab.network.links.address import Address

ANSWER_WITHIN_S: Final = 5.0
"""A broker that takes longer counts as out of reach."""

AT_ONCE_COUNT: Final = 16
"""Connections that are tried at the same time: more would measure each other."""


async def measure_round_trips(addresses: Mapping[str, str]) -> dict[str, float]:
    """The round-trip time to each broker, by name; those that cannot be reached are left out."""
    turns = asyncio.Semaphore(AT_ONCE_COUNT)

    async def measure(address: str) -> float | None:
        try:
            where = Address.parse(address)
        except ValueError:
            return None
        async with turns:
            began_s = now_s()
            try:
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    _, writer = await asyncio.open_connection(where.host, where.port)
            except (OSError, TimeoutError):
                return None
            took_s = now_s() - began_s
            writer.close()
            return took_s

    times = await asyncio.gather(*(measure(address) for address in addresses.values()))
    return {name: time_s for name, time_s in zip(addresses, times, strict=True) if time_s is not None}
