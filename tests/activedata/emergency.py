"""A small city for tests: generated data, and what the seven channels of examples/emergency.sql must find in it.

The expected results are computed in plain Python, one subscription and one record after the other.
"""

import math
import random
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "emergency.sql"
EVENTS = ("fire", "flood", "storm", "crash")
DISTRICTS = ("north", "east", "south", "west")

Record = dict[str, str | float | int]
Pairs = set[tuple[int, str]]


def statements(*, continuous: bool) -> str:
    """The example's text, with continuous channels instead of repetitive ones if wanted."""
    lines = []
    for line in EXAMPLE.read_text(encoding="utf-8").splitlines():
        if continuous and line.startswith("CREATE CHANNEL"):
            line = line.replace("CREATE CHANNEL", "CREATE CONTINUOUS CHANNEL")
            line = line[: line.index(" PERIOD")] + " AS"
        lines.append(line)
    return "\n".join(lines)


class City:
    """Users, shelters and reports, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.users = [{"userId": f"u{n}", **self._place()} for n in range(40)]
        self.shelters = [
            {"shelterId": f"s{n}", "district": self.random.choice(DISTRICTS), **self._place(), "beds": 10 + n}
            for n in range(20)
        ]
        self.reports_count = 0

    def _place(self) -> Record:
        return {"x": self.random.uniform(-3_000, 3_000), "y": self.random.uniform(-3_000, 3_000)}

    def reports(self, count: int) -> list[Record]:
        """So many new reports."""
        first = self.reports_count
        self.reports_count += count
        return [
            {
                "reportId": f"r{n}",
                "event": self.random.choice(EVENTS),
                "district": self.random.choice(DISTRICTS),
                **self._place(),
                "message": "m" * self.random.randint(10, 40),
            }
            for n in range(first, first + count)
        ]

    def wanted(self) -> list[tuple[str, dict[str, str]]]:
        """Subscriptions of all seven channels: channel and arguments."""
        users = [str(each["userId"]) for each in self.users[:12]]
        found: list[tuple[str, dict[str, str]]] = [("EmergencyOfType", {"event": each}) for each in EVENTS]
        found += [("EmergencyAtLocation", {"district": each}) for each in DISTRICTS]
        found += [("EmergencyNearMe", {"user": each}) for each in users]
        for channel in ("EmergencyOfTypeNearMe", "EmergencyOfTypeWithShelterNearMe"):
            found += [(channel, {"event": self.random.choice(EVENTS), "user": each}) for each in users]
        for channel in ("EmergencyOfTypeAtLocation", "EmergencyOfTypeAtLocationWithShelter"):
            found += [(channel, {"event": each, "district": self.random.choice(DISTRICTS)}) for each in EVENTS]
        return found

    def matches(self, arguments: dict[str, str], report: Record) -> bool:
        """Whether a report concerns a subscription with these arguments."""
        if "user" in arguments:
            user = next(each for each in self.users if each["userId"] == arguments["user"])
            if distance(user, report) > 1_000:
                return False
        return all(report[name] == value for name, value in arguments.items() if name != "user")

    def shelters_for(self, channel: str, arguments: dict[str, str]) -> set[str] | None:
        """The shelters that a notification of a channel names, if the channel names any."""
        if channel == "EmergencyOfTypeWithShelterNearMe":
            user = next(each for each in self.users if each["userId"] == arguments["user"])
            return {str(each["shelterId"]) for each in self.shelters if distance(user, each) <= 1_500}
        if channel == "EmergencyOfTypeAtLocationWithShelter":
            return {str(each["shelterId"]) for each in self.shelters if each["district"] == arguments["district"]}
        return None


def distance(one: Record, other: Record) -> float:
    return math.hypot(float(one["x"]) - float(other["x"]), float(one["y"]) - float(other["y"]))
