"""A city where nobody moves, for measurements: reports, people, shelters and subscriptions in any number.

The channels are those of the emergency application (lab/emergency.sql), and reports have its sizes; what concerns whom
is in lab/emergency.py.
"""

from __future__ import annotations

import random
from typing import Final

from trimtab.operations.emergency.application import definitions
from trimtab.simulation.workloads.emergency import CHANNELS, EVENTS

SIDE_M: Final = 10_000.0
DISTRICTS_COUNT: Final = 25


Record = dict[str, str | float | int]


def statements(*, continuous: bool) -> str:
    """The statements of the seven channels, repetitive as written or all continuous."""
    lines = []
    for line in definitions().splitlines():
        if continuous and line.startswith("CREATE CHANNEL"):
            line = line[: line.index(" PERIOD")].replace("CREATE CHANNEL", "CREATE CONTINUOUS CHANNEL") + " AS"
        lines.append(line)
    return "\n".join(lines)


class EmergencyCity:
    """Draws records and subscriptions.

    >>> city = EmergencyCity(seed=1)
    >>> sorted(city.report())
    ['district', 'event', 'message', 'reportId', 'x', 'y']
    >>> len(city.subscriptions(610))
    610
    """

    def __init__(self, seed: int, users_count: int = 400, shelters_count: int = 200, side_m: float = SIDE_M) -> None:
        self._side_m = side_m
        self._random = random.Random(seed)
        self._reports_count = 0
        self.users: list[Record] = [{"userId": f"u{n}", **self._place()} for n in range(users_count)]
        self.shelters: list[Record] = [
            {"shelterId": f"s{n}", "district": self._district(), **self._place(), "beds": 50}
            for n in range(shelters_count)
        ]

    def _place(self) -> Record:
        return {"x": self._random.uniform(0, self._side_m), "y": self._random.uniform(0, self._side_m)}

    def _district(self) -> str:
        return f"d{self._random.randrange(DISTRICTS_COUNT)}"

    def report(self) -> Record:
        """A new report at a random place."""
        self._reports_count += 1
        return {
            "reportId": f"r{self._reports_count}",
            "event": self._random.choice(EVENTS),
            "district": self._district(),
            **self._place(),
            "message": "x" * self._random.randint(100, 600),
        }

    def subscriptions(self, count: int) -> list[tuple[str, dict[str, str]]]:
        """Different back-end subscriptions of the seven channels: channel and arguments."""
        found: dict[tuple[str, ...], tuple[str, dict[str, str]]] = {}
        while len(found) < count:
            values = {
                "event": self._random.choice(EVENTS),
                "district": self._district(),
                "user": str(self._random.choice(self.users)["userId"]),
            }
            channel = self._random.choice(list(CHANNELS))
            arguments = {name: values[name] for name in CHANNELS[channel].parameters}
            found[channel, *arguments.values()] = (channel, arguments)
        return list(found.values())
