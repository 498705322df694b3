"""The emergency application of the Big Active Data paper as generated data, and what its channels must find.

Source: paper 003, slides "Emergency application scenario": 400 subscribers who move about, about 10,000 reports of
eight types in 30 minutes, 200 shelters, seven channels, 1 to 5 channels for each subscriber and 1 to 3 subscriptions
to each. Time goes in ticks of ten seconds, the shortest period of a channel: people move, then reports come, then the
channels look at them. What must be found is computed here in plain Python, one subscription and one report after the
other, without anything of the engine.

The channels and who wants them: `simulation/workloads/emergency.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from importlib.resources import files
from random import Random
from typing import Final

import msgspec

from trimtab.protocol.messages import WireValue
from trimtab.simulation.workloads.city import City, Point, WalkConfig, Walker, broker_sites, make_city
from trimtab.simulation.workloads.emergency import (
    EVENTS,
    NEAR_M,
    REPORTS_COUNT,
    RUN_S,
    Wanted,
    district_of,
    emergency_wants,
)

TICK_S: Final = 10.0
SIDE_M: Final = 6_000.0
SHELTER_NEAR_M: Final = 1_500.0


class Report(msgspec.Struct, frozen=True):
    """An emergency."""

    reportId: str  # noqa: N815 (as the dataset's field)
    event: str
    district: str
    x: float
    y: float
    message: str


class Shelter(msgspec.Struct, frozen=True):
    """A place to go to."""

    shelterId: str  # noqa: N815 (as the dataset's field)
    district: str
    x: float
    y: float
    beds: int


class Person(msgspec.Struct, frozen=True):
    """A subscriber: when it joins, and what it wants."""

    name: str
    joins_tick: int
    wants: tuple[Wanted, ...]


def definitions() -> str:
    """The datasets, feeds and seven channels of the application.

    >>> from trimtab.simulation.workloads.emergency import CHANNELS
    >>> all(f"CREATE CHANNEL {name}(" in definitions() for name in CHANNELS)
    True
    """
    return files("trimtab.operations.emergency").joinpath("emergency.sql").read_text(encoding="utf-8")


def definitions_at_speed(speed: float) -> str:
    """The definitions for a run that goes so much faster than the paper's time: with shorter periods.

    >>> "PERIOD 0.500 SECONDS" in definitions_at_speed(20.0)
    True
    """
    return re.sub(r"PERIOD (\d+) SECONDS", lambda found: f"PERIOD {float(found[1]) / speed:.3f} SECONDS", definitions())


class EmergencyWorld:
    """People, shelters and reports of one seed."""

    def __init__(
        self, seed: int, *, people_count: int = 400, reports_count: int = REPORTS_COUNT, run_s: float = RUN_S
    ) -> None:
        rng = Random(f"emergency {seed}")
        self.city: City = make_city(rng, side_m=SIDE_M, districts_count=6)
        self.ticks_count = int(run_s / TICK_S)
        self._walkers = [
            Walker(self.city, Random(f"emergency {seed} walker {number}"), WalkConfig())
            for number in range(people_count)
        ]
        self.people = [self._person(number, rng) for number in range(people_count)]
        self.shelters = [self._shelter(number, rng) for number in range(200)]
        self._reports: dict[int, list[Report]] = {}
        per_tick = reports_count / (RUN_S / TICK_S)
        for number in range(int(per_tick * self.ticks_count)):
            self._reports.setdefault(int(number / per_tick), []).append(self._report(number, rng))

    def sites(self, brokers_count: int, seed: int) -> list[Point]:
        """Where brokers stand."""
        return broker_sites(Random(f"emergency sites {seed}"), self.city, brokers_count)

    def _person(self, number: int, rng: Random) -> Person:
        wants = emergency_wants(self.city, self._walkers[number], f"u{number}", rng)
        return Person(f"u{number}", rng.randrange(max(1, self.ticks_count // 3)), tuple(wants))

    def _shelter(self, number: int, rng: Random) -> Shelter:
        x, y = (rng.uniform(0, SIDE_M), rng.uniform(0, SIDE_M))
        return Shelter(f"s{number}", district_of(self.city, (x, y)), x, y, rng.randint(10, 500))

    def _report(self, number: int, rng: Random) -> Report:
        x, y = self.city.place_in(self.city.district(rng), rng)
        text = "".join(rng.choices("abcdefghij ", k=rng.randint(100, 600)))
        return Report(f"r{number}", rng.choice(EVENTS), district_of(self.city, (x, y)), x, y, text)

    def places(self, tick: int) -> dict[str, Point]:
        """Where everybody is during a tick; ticks are asked for in order."""
        return {
            person.name: walker.at(tick * TICK_S) for person, walker in zip(self.people, self._walkers, strict=True)
        }

    def reports(self, tick: int) -> list[Report]:
        """What is reported during a tick."""
        return self._reports.get(tick, [])


def found_by(wanted: Wanted, reports: list[Report], places: dict[str, Point]) -> Iterator[str]:
    """The reports that a subscription must be told of, by their ids.

    >>> report = Report("r1", "fire", "L1", 0.0, 0.0, "")
    >>> list(found_by(("EmergencyOfType", (("event", "fire"),)), [report], {}))
    ['r1']
    >>> list(found_by(("EmergencyNearMe", (("user", "u1"),)), [report], {"u1": (0.0, 1001.0)}))
    []
    """
    arguments = dict(wanted[1])
    place = places.get(arguments.get("user", ""))
    for report in reports:
        if arguments.get("event", report.event) != report.event:
            continue
        if arguments.get("district", report.district) != report.district:
            continue
        if "user" in arguments and (place is None or math.dist(place, (report.x, report.y)) > NEAR_M):
            continue
        yield report.reportId


def arguments_of(wanted: Wanted) -> dict[str, WireValue]:
    """The arguments as clients give them."""
    return dict(wanted[1])
