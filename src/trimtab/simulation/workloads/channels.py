"""Channels of an active-data back end as a workload: what people subscribe to, and how much each brings.

Two sets, after Nguyen, Uddin, Venkatasubramanian (multistage adaptive load balancing): the seven channels of the
prototype (`emergency.py`) and the ten of the simulation (slide "simulation setup"). The paper gives counts, periods and
sizes of reports; what it leaves open is said with each number.

A back-end subscription is a channel with arguments, named as people write it: EmergencyOfType("flood").
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from trimtab.simulation.workloads.city import City, Walker
from trimtab.simulation.workloads.emergency import emergency_wants, rate_bytes_per_s


class Wish(msgspec.Struct, frozen=True):
    """A back-end subscription that somebody wants."""

    name: str
    rate_bytes_per_s: float
    """What it brings on average (lambda_k)."""


def emergency_wishes(city: City, walker: Walker, user: str, rng: Random) -> list[Wish]:
    """What one subscriber of the prototype wants."""
    wishes = []
    for channel, arguments in emergency_wants(city, walker, user, rng):
        said = ", ".join(f'"{value}"' for _, value in arguments)
        wishes.append(Wish(f"{channel}({said})", rate_bytes_per_s(city, channel)))
    return wishes


class Channel(msgspec.Struct, frozen=True):
    """One of the ten channels of the simulation: a hundred parameter values."""

    name: str
    period_s: float
    notification_bytes: float
    by_location: bool
    """Whether its parameter is a place, a cell of the city, or a topic."""

    rates_bytes_per_s: tuple[float, ...]
    """Of each parameter value."""


VALUES_PER_CHANNEL_COUNT: Final = 100
_CELLS_PER_SIDE: Final = 10
_TOPIC_EXPONENT: Final = 0.8
"""Topics are as popular as their rank to the power of minus this; not in the paper."""

_TOPIC_WEIGHTS: Final = [(rank + 1) ** -_TOPIC_EXPONENT for rank in range(VALUES_PER_CHANNEL_COUNT)]


def scale_channels(rng: Random, count: int = 10) -> list[Channel]:
    """Channels that differ in period and size, every other one by location.

    The paper says only that they differ: periods here are 10 s to 60 s, notifications 200 to 2,000 bytes, and each
    execution has for each parameter value 0.5 to 1.5 results on average.
    """
    channels: list[Channel] = []
    for number in range(count):
        period_s = rng.choice((10.0, 20.0, 30.0, 60.0))
        size_bytes = rng.uniform(200.0, 2000.0)
        rates = tuple(rng.uniform(0.5, 1.5) * size_bytes / period_s for _ in range(VALUES_PER_CHANNEL_COUNT))
        channels.append(Channel(f"Channel{number}", period_s, size_bytes, number % 2 == 1, rates))
    return channels


def scale_wishes(city: City, channels: list[Channel], walker: Walker, rng: Random) -> list[Wish]:
    """What one subscriber of the simulation wants: 10 to 30 subscriptions, no two alike."""
    wanted_count = rng.randint(10, 30)
    wishes: dict[str, Wish] = {}
    while len(wishes) < wanted_count:
        channel = rng.choice(channels)
        if channel.by_location:
            value = city.cell(walker.somewhere(), _CELLS_PER_SIDE)
        else:
            value = rng.choices(range(VALUES_PER_CHANNEL_COUNT), _TOPIC_WEIGHTS)[0]
        name = f"{channel.name}({value})"
        wishes[name] = Wish(name, channel.rates_bytes_per_s[value])
    return list(wishes.values())
