"""The goals for the message plane and the client library, and whether a run of the benchmark meets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from trimtab.lab.bench.plane.plane import PlaneReport

_TIMES_MIN: Final = {("nats", True): 0.7, ("mosquitto", True): 8.0, ("nats", False): 0.3, ("mosquitto", False): 2.0}
"""Deliveries per processor second as multiples of a peer's, by peer and whether a publication goes to many."""

_P99_TIMES_MAX: Final = 1.5
_FILTER_MAX_BYTES: Final = 400.0
_CONNECTION_MAX_BYTES: Final = 10_240.0
_PUBLISHED_MIN_PER_CPU_S: Final = 200_000.0
_RECEIVED_MIN_PER_CPU_S: Final = 100_000.0


class PlaneGoal(msgspec.Struct, frozen=True):
    """A goal, what was measured, and whether that is good enough."""

    name: str
    measured: float
    bound: str
    limit: float
    unit: str
    met: bool


def at_least(name: str, measured: float, limit: float, unit: str) -> PlaneGoal:
    """A goal that more is better for.

    >>> at_least("received", 90_000.0, 100_000.0, "/s").met
    False
    """
    return PlaneGoal(name, measured, ">=", limit, unit, measured >= limit)


def at_most(name: str, measured: float, limit: float, unit: str) -> PlaneGoal:
    """A goal that less is better for.

    >>> at_most("memory per filter", 390.0, 400.0, "bytes").met
    True
    """
    return PlaneGoal(name, measured, "<=", limit, unit, measured <= limit)


def judge(report: PlaneReport) -> list[PlaneGoal]:
    """Every goal that the run has measured."""
    return list(_goals(report))


def _goals(report: PlaneReport) -> Iterator[PlaneGoal]:
    for each in report.planes:
        limit = _TIMES_MIN.get((each.system, each.connections_count > 1))
        if limit is not None:
            name = f"deliveries per processor second, fan-out {each.fan_out:.0f}: times {each.system}"
            yield at_least(name, each.trimtab_times_per_cpu_s, limit, "x")
    ours = next(each for each in report.delays if each.system == "trimtab")
    for theirs in report.delays:
        if theirs.system == "nats":
            times = ours.delay_p99_ms / theirs.delay_p99_ms
            yield at_most("delay at 1,000/s, 99th percentile: times nats", times, _P99_TIMES_MAX, "x")
    yield at_most("memory per stored filter", report.memory.bytes_per_filter, _FILTER_MAX_BYTES, "bytes")
    yield at_most("memory per idle connection", report.memory.bytes_per_connection, _CONNECTION_MAX_BYTES, "bytes")
    yield at_least(
        "client: published per processor second", report.client.published_per_cpu_s, _PUBLISHED_MIN_PER_CPU_S, "/s"
    )
    yield at_least(
        "client: received per processor second", report.client.received_per_cpu_s, _RECEIVED_MIN_PER_CPU_S, "/s"
    )
