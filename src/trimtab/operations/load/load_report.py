"""What load on a running network is to do, and what came of it."""

from __future__ import annotations

import msgspec


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Who is to do what."""

    subscribers_count: int
    subscribe_at: str
    """The broker that all subscribers join."""

    publishers_count: int
    publish_at: str
    rate_per_s: float
    """Publications of all publishers together."""

    join_per_s: float
    """Subscribers that join each second."""

    for_s: float
    seed: int = 1
    name: str = "load"
    """The beginning of the clients' names."""


class LoadSecond(msgspec.Struct, frozen=True):
    """What happened during one second, and where the subscribers are."""

    time_s: float
    published_count: int
    delivered_count: int
    moves_count: int
    clients: dict[str, int]
    input_utilization_ratio: dict[str, float]
    output_utilization_ratio: dict[str, float]


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    subscribers_count: int
    published_count: int
    """Publications that the network has acknowledged."""

    expected_count: int
    """Deliveries that must happen, by filters and publications."""

    delivered_count: int
    """Deliveries that happened; one that was asked for before its subscription was in force may come, and counts."""

    lost_count: int
    duplicated_count: int
    reordered_count: int
    other_violations: list[str]
    moves_count: int
    stayed_count: int
    """Moves that were refused or undone."""

    last_move_s: float | None
    delay_median_s: float
    delay_p99_s: float
    level_after_s: float | None
    """Since when no broker was overloaded and no two differed by more than the policy's threshold; None if never."""

    clients: dict[str, int]
    seconds: list[LoadSecond]

    @property
    def is_faultless(self) -> bool:
        """Whether every subscriber got exactly what it must, in order."""
        return not (self.lost_count or self.duplicated_count or self.reordered_count or self.other_violations)
