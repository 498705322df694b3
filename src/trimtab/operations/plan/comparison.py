"""A former plan beside what then really happened: predicted and observed indices of every broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import fmean
from typing import Final

import msgspec

from trimtab.network.admin.local_network import ask_all
from trimtab.network.network_plan import NetworkPlan
from trimtab.operations.plan.observation import Indices
from trimtab.operations.plan.plan import PlanError, WhatIfPlan, indices_now
from trimtab.protocol.frames import BrokerStatus


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A broker as it was predicted to be, and as it is."""

    predicted: Indices
    """The mean over all runs of the plan."""
    low: Indices
    high: Indices
    """The lowest and the highest of all runs."""
    observed: Indices


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A former plan beside the network as it is."""

    network: str
    planned_policy: str
    running_policies: tuple[str, ...]
    elapsed_s: float
    """Since the snapshot."""
    observed_s: float
    brokers: dict[str, Compared]
    mean_error: dict[str, float]
    """The mean over brokers of how far each index is off, without sign."""
    largest_error: dict[str, float]
    runs_count: int
    moves_predicted_count: tuple[int, int]
    """The fewest and the most of all runs."""
    moves_observed_count: int
    input_rate_per_s: float
    """Publications that all brokers together take in; none if nothing is published."""


COMPARED: Final = ("input_utilization_ratio", "output_utilization_ratio", "matching_delay_s", "clients_count")


async def observe(plan: NetworkPlan, for_s: float, every_s: float = 1.0) -> list[dict[str, BrokerStatus]]:
    """Ask all brokers again and again for some time; raises `PlanError` if one does not answer."""
    found: list[dict[str, BrokerStatus]] = []
    ends_s = time.monotonic() + for_s
    while not found or time.monotonic() < ends_s:
        statuses = await ask_all(plan)
        silent = [name for name, status in statuses.items() if status is None]
        if silent:
            raise PlanError(f"{', '.join(silent)}: no answer")
        found.append({name: status for name, status in statuses.items() if status is not None})
        await asyncio.sleep(every_s)
    return found


def compared(plan: WhatIfPlan, seen: Sequence[dict[str, BrokerStatus]], observed_s: float) -> Comparison:
    """How far the end of a plan is from what is seen."""
    brokers: dict[str, Compared] = {}
    for name, spread in plan.spread.brokers.items():
        own = [statuses[name] for statuses in seen if name in statuses]
        if not own:
            continue
        moments = [indices_now(each.load, sum(peer.role == "client" for peer in each.peers)) for each in own]
        mean = Indices(**{key: fmean(getattr(each, key) for each in moments) for key in Indices.__struct_fields__})
        brokers[name] = Compared(predicted=spread.mean, low=spread.low, high=spread.high, observed=mean)
    if not brokers:
        raise PlanError("the plan and the network have no broker in common")
    errors = {
        key: [abs(getattr(each.predicted, key) - getattr(each.observed, key)) for each in brokers.values()]
        for key in COMPARED
    }
    last = seen[-1]
    moved_in = [
        status.moved_in_count - (plan.moved_in_count.get(name, 0) if plan.sessions.get(name) == status.session else 0)
        for name, status in last.items()
    ]
    return Comparison(
        network=plan.network,
        planned_policy=plan.policy,
        running_policies=tuple(dict.fromkeys(status.policy for status in last.values())),
        elapsed_s=time.time() - plan.taken_s,
        observed_s=observed_s,
        brokers=brokers,
        mean_error={key: fmean(values) for key, values in errors.items()},
        largest_error={key: max(values) for key, values in errors.items()},
        runs_count=plan.spread.runs_count,
        moves_predicted_count=plan.spread.moves_count,
        moves_observed_count=sum(moved_in),
        input_rate_per_s=sum(status.load.get("input_rate_per_s", 0.0) for status in last.values()),
    )
