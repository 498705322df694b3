"""The emergency application's seven channels: what each takes, who wants it, and how much it brings.

Source: Nguyen, Uddin, Venkatasubramanian, multistage adaptive load balancing, the slides "emergency application
scenario": eight types of reports, 1 to 5 of seven channels per subscriber, 1 to 3 subscriptions to each. Both worlds
draw from here: the simulation takes rates, the application on Spark the channels and arguments themselves.

Deviation: the paper's table gives EmergencyNearMe an event beside the user, which would make it the same as
EmergencyOfTypeNearMe; here it has the user alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Final, TypeAlias

import msgspec

from trimtab.simulation.workloads.city import City, Point, Walker

EVENTS: Final = ("flood", "fire", "earthquake", "tornado", "shooting", "accident", "outage", "spill")
"""The eight types of reports."""

DISTRICTS_PER_SIDE: Final = 3
"""Places that can be subscribed to, as a grid; with it about 610 back-end subscriptions arise as in the paper."""

NEAR_M: Final = 1_000.0
"""What "near me" means; not in the paper."""

REPORTS_COUNT: Final = 10_000
RUN_S: Final = 1_800.0
_REPORTS_PER_S: Final = REPORTS_COUNT / RUN_S
_REPORT_BYTES: Final = 450.0
"""The middle of 200 to 700 bytes."""

_SHELTER_BYTES: Final = 150.0
"""What shelters add to a notification; not in the paper."""

_POPULAR: Final = 3.0
_PERSONAL: Final = 0.85
"""Channels with the user among their parameters are less popular than others (not in the paper): with this share about
2,200 front-end and 600 back-end subscriptions arise, as in the paper (2,200 and 610)."""

Wanted: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A channel and its arguments."""


class EmergencyChannel(msgspec.Struct, frozen=True):
    """One of the seven: its parameters, and how popular it is."""

    parameters: tuple[str, ...]
    popularity: float
    names_shelters: bool = False


CHANNELS: Final = {
    "EmergencyOfType": EmergencyChannel(("event",), _POPULAR),
    "EmergencyAtLocation": EmergencyChannel(("district",), _POPULAR),
    "EmergencyNearMe": EmergencyChannel(("user",), _PERSONAL),
    "EmergencyOfTypeNearMe": EmergencyChannel(("event", "user"), _PERSONAL),
    "EmergencyOfTypeAtLocation": EmergencyChannel(("event", "district"), _POPULAR),
    "EmergencyOfTypeWithShelterNearMe": EmergencyChannel(("event", "user"), _PERSONAL, names_shelters=True),
    "EmergencyOfTypeAtLocationWithShelter": EmergencyChannel(("event", "district"), _POPULAR, names_shelters=True),
}
"""By name."""


def district_of(city: City, place: Point) -> str:
    """The district of a place, as channels call it."""
    return f"L{city.cell(place, DISTRICTS_PER_SIDE)}"


def emergency_wants(city: City, walker: Walker, user: str, rng: Random) -> list[Wanted]:
    """What one subscriber wants, no two alike."""
    names = list(CHANNELS)
    weights = [channel.popularity for channel in CHANNELS.values()]
    chosen: dict[str, None] = {}
    wanted_count = rng.randint(1, 5)
    while len(chosen) < wanted_count:
        chosen[rng.choices(names, weights)[0]] = None
    draw: dict[str, Callable[[], str]] = {
        "event": lambda: rng.choice(EVENTS),
        "district": lambda: district_of(city, walker.somewhere()),
        "user": lambda: user,
    }
    wants: dict[Wanted, None] = {}
    for name in chosen:
        for _ in range(rng.randint(1, 3)):
            wants[name, tuple((each, draw[each]()) for each in CHANNELS[name].parameters)] = None
    return list(wants)


def rate_bytes_per_s(city: City, channel: str) -> float:
    """What a subscription to a channel brings on average (lambda_k), whatever its arguments."""
    shares = {
        "event": 1.0 / len(EVENTS),
        "district": 1.0 / DISTRICTS_PER_SIDE**2,
        "user": min(1.0, math.pi * NEAR_M**2 / city.side_m**2),
    }
    size_bytes = _REPORT_BYTES + (_SHELTER_BYTES if CHANNELS[channel].names_shelters else 0.0)
    return _REPORTS_PER_S * math.prod(shares[each] for each in CHANNELS[channel].parameters) * size_bytes
