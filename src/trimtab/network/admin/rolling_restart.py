"""Brokers of a running network begin again, one after the other, each when the one before it is healthy."""

from __future__ import annotations

import asyncio
from typing import Final

from trimtab.network.admin.status import ask_restart
from trimtab.network.admin.whereabouts import find, status_at
from trimtab.network.clock import now_s
from trimtab.network.network_plan import NetworkPlan

LOOK_AGAIN_AFTER_S: Final = 0.05


class RestartProblem(Exception):
    """Why a broker has not begun again; the message says it."""


async def restart_broker(plan: NetworkPlan, name: str, within_s: float) -> float:
    """Let a broker begin again, and wait until all its links are up and it knows all routes.

    Returns how long that took; raises `RestartProblem`.
    """
    began_s = now_s()
    address, before = await find(plan, name)
    if before is None:
        raise RestartProblem(f"{name} does not answer at {address}")
    try:
        reply = await ask_restart(address)
    except (OSError, TimeoutError):
        raise RestartProblem(f"{name} does not answer at {address}") from None
    if not reply.done:
        raise RestartProblem(reply.reason)
    while now_s() < began_s + within_s:
        status = await status_at(address)
        is_another = status is not None and status.session != before.session
        if status is not None and is_another and not status.links_missing and not status.is_learning:
            return now_s() - began_s
        await asyncio.sleep(LOOK_AGAIN_AFTER_S)
    raise RestartProblem(f"{name} is not healthy after {within_s:g} s; see trimtab status")
