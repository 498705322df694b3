"""A city with districts of different density, and people who walk about in it: random waypoints, from a seed.

A person draws a place, goes there at a speed of its own, rests, and draws the next. Places are drawn where people are:
in a district, by its weight, around its centre. Most of the time a person draws in its home district.
"""

from __future__ import annotations

import math
from random import Random
from typing import TypeAlias

import msgspec

Point: TypeAlias = tuple[float, float]
"""Metres east and north of the city's south-western corner."""


class District(msgspec.Struct, frozen=True):
    """A part of the city: where it is, how wide it spreads, and how many people it draws in relation to others."""

    centre: Point
    spread_m: float
    weight: float


class City(msgspec.Struct, frozen=True):
    """A square with districts."""

    side_m: float
    districts: tuple[District, ...]
    anywhere_ratio: float = 0.0
    """The share of places that belong to no district: anywhere in the city."""

    def district(self, rng: Random) -> int:
        """A district, by weight."""
        return rng.choices(range(len(self.districts)), [each.weight for each in self.districts])[0]

    def place_in(self, district: int, rng: Random) -> Point:
        """A place in a district, nearer its centre more often, or anywhere."""
        if rng.random() < self.anywhere_ratio:
            return (rng.uniform(0.0, self.side_m), rng.uniform(0.0, self.side_m))
        part = self.districts[district]
        x_m, y_m = (self._within(rng.gauss(middle_m, part.spread_m)) for middle_m in part.centre)
        return (x_m, y_m)

    def _within(self, value_m: float) -> float:
        """Places beyond the border are folded back.

        >>> City(10.0, ())._within(-1.0), City(10.0, ())._within(12.0)
        (1.0, 8.0)
        """
        value_m = abs(value_m) % (2 * self.side_m)
        return value_m if value_m < self.side_m else 2 * self.side_m - value_m

    def cell(self, place: Point, cells_per_side: int) -> int:
        """The number of the grid cell that a place lies in, row by row from the south-west."""
        column, row = (min(int(each / self.side_m * cells_per_side), cells_per_side - 1) for each in place)
        return row * cells_per_side + column


def make_city(rng: Random, *, side_m: float, districts_count: int) -> City:
    """Districts at random places; the second has half the weight of the first, the third a third, and so on.

    Three places in ten are anywhere: not everybody is in a district at all times.
    """
    districts = tuple(
        District(
            centre=(rng.uniform(0.1, 0.9) * side_m, rng.uniform(0.1, 0.9) * side_m),
            spread_m=rng.uniform(0.05, 0.12) * side_m,
            weight=1.0 / (number + 1),
        )
        for number in range(districts_count)
    )
    return City(side_m, districts, anywhere_ratio=0.3)


def broker_sites(rng: Random, city: City, count: int) -> list[Point]:
    """Where brokers stand: spread over the city evenly, each a little off its place, whoever lives there."""
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    width_m, height_m = city.side_m / columns, city.side_m / rows
    return [
        (
            (number % columns + rng.uniform(0.3, 0.7)) * width_m,
            (number // columns + rng.uniform(0.3, 0.7)) * height_m,
        )
        for number in range(count)
    ]


class WalkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How people move."""

    speed_m_per_s: tuple[float, float] = (1.0, 15.0)
    """From on foot to by car, uniform for each way."""

    rest_s: tuple[float, float] = (0.0, 300.0)
    """How long one rests before the next way."""
    home_ratio: float = 0.7
    """How often the next place is in the home district; otherwise anywhere people are."""


class Walker:
    """One person's way, made up as far as it is asked for.

    >>> rng = Random(1)
    >>> walker = Walker(make_city(rng, side_m=1000.0, districts_count=3), rng, WalkConfig())
    >>> walker.at(0.0) == walker.at(0.0), walker.at(1e5) == walker.at(0.0)
    (True, False)
    """

    def __init__(self, city: City, rng: Random, config: WalkConfig) -> None:
        self.home = city.district(rng)
        self._city = city
        self._rng = rng
        self._config = config
        self._from: Point = city.place_in(self.home, rng)
        self._to = self._from
        self._leaves_s = 0.0
        self._arrives_s = 0.0
        self._rests_until_s = rng.uniform(*config.rest_s)

    def somewhere(self) -> Point:
        """A place where this person may be."""
        at_home = self._rng.random() < self._config.home_ratio
        return self._city.place_in(self.home if at_home else self._city.district(self._rng), self._rng)

    def at(self, time_s: float) -> Point:
        """Where the person is; times asked for must not go back before the way it is on."""
        while time_s >= self._rests_until_s:
            self._from, self._to = self._to, self.somewhere()
            self._leaves_s = self._rests_until_s
            way_m = math.dist(self._from, self._to)
            self._arrives_s = self._leaves_s + way_m / self._rng.uniform(*self._config.speed_m_per_s)
            self._rests_until_s = self._arrives_s + self._rng.uniform(*self._config.rest_s)
        if time_s >= self._arrives_s:
            return self._to
        share = max(0.0, (time_s - self._leaves_s) / (self._arrives_s - self._leaves_s))
        (from_x, from_y), (to_x, to_y) = self._from, self._to
        return (from_x + share * (to_x - from_x), from_y + share * (to_y - from_y))
