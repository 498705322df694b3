"""Whether the brokers of a network carry their load level, as one who watches from outside sees it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from trimtab.network.network_file import NetworkPlan
from trimtab.policies.padres.config import PadresConfig
from trimtab.protocol.frames import BrokerStatus

INDICES: Final = ("input_utilization_ratio", "output_utilization_ratio")

MEAN_OVER_S: Final = 10.0
"""Ratios are judged by their means over so long, for they move a little while publications come and go."""


class LevelWatch:
    """Told how the brokers are, again and again; tells since when they have been level."""

    def __init__(self, plan: NetworkPlan) -> None:
        self._padres = plan.policy.config(PadresConfig)
        self._edges = [entry.name for entry in plan.brokers if len(plan.neighbours_of(entry.name)) == 1]
        self._seen: deque[tuple[float, dict[tuple[str, str], float]]] = deque()
        self.level_after_s: float | None = None
        """When the brokers had become level for the first time."""

    def look(self, time_s: float | None, statuses: Mapping[str, BrokerStatus | None]) -> None:
        """Take in how the brokers are; without a time they do not count yet, because load is still being added."""
        loads = {name: status.load for name in self._edges if (status := statuses.get(name)) is not None}
        if time_s is None or len(loads) < len(self._edges):
            self._seen.clear()
            return
        self._seen.append((time_s, {(name, index): load[index] for name, load in loads.items() for index in INDICES}))
        while self._seen[0][0] < time_s - MEAN_OVER_S:
            self._seen.popleft()
        is_long_enough = time_s - self._seen[0][0] >= 0.8 * MEAN_OVER_S
        if self.level_after_s is None and is_long_enough and self._is_level():
            self.level_after_s = time_s

    def _is_level(self) -> bool:
        for index in INDICES:
            means = [sum(ratios[name, index] for _, ratios in self._seen) / len(self._seen) for name in self._edges]
            if not means or max(means) > self._padres.lower_overload_ratio:
                return False
            if max(means) - min(means) > self._padres.local_ratio_threshold:
                return False
        return True
