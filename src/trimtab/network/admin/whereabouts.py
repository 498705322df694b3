"""Where a broker of a network is: where its file says, or where another broker says that its replica is."""

from __future__ import annotations

import asyncio

from trimtab.network.admin.status import ask_status, ask_where
from trimtab.network.links.address import Address
from trimtab.network.network_plan import NetworkPlan
from trimtab.network.security.errors import NotPermittedError
from trimtab.protocol.frames import BrokerStatus


async def status_at(address: Address) -> BrokerStatus | None:
    """How the broker at an address is, None if it does not say; raises `NotPermittedError`."""
    try:
        return await ask_status(address)
    except NotPermittedError:
        raise
    except (OSError, TimeoutError):
        return None


async def find(plan: NetworkPlan, name: str) -> tuple[Address, BrokerStatus | None]:
    """Where a broker is, and how; at the address of the file, with no status, if nobody knows of it elsewhere."""
    address = plan.broker(name).address
    status = await status_at(address)
    if status is not None and status.name == name:
        return address, status
    others = [entry.address for entry in plan.brokers if entry.name != name]
    for told in await asyncio.gather(*(_told_by(other, name) for other in others)):
        if told is not None and told != address:
            status = await status_at(told)
            if status is not None and status.name == name:
                return told, status
    return address, None


async def _told_by(other: Address, name: str) -> Address | None:
    try:
        text = await ask_where(other, name)
        return Address.parse(text) if text else None
    except (OSError, TimeoutError, ValueError):
        return None
