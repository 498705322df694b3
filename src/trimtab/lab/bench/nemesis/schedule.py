"""What the nemesis does and when, drawn from a seed alone.

Brokers: one round after the other, each with one event or, where several brokers may die at once, with some that
overlap. Links: one fault after the other, beside what happens to brokers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias, get_args

import msgspec

Level: TypeAlias = Literal["received", "safe", "durable"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)

TREE: Final = (("B1", "B2"), ("B1", "B3"), ("B2", "B4"), ("B2", "B5"), ("B3", "B6"), ("B3", "B7"))
BROKERS: Final = tuple(f"B{number}" for number in range(1, 8))

BrokerKind: TypeAlias = Literal["kill", "replace", "terminate", "restart", "pause", "hang", "drain", "damage", "clock"]
"""kill: SIGKILL, and started again; replace: SIGKILL, and whoever notices it sees to a replica; terminate: SIGTERM, and
started again; restart: `trimtab restart`; pause: SIGSTOP and SIGCONT soon enough that nobody minds; hang: SIGSTOP for
so long that neighbours give the broker up; drain: `trimtab drain`, and started again; damage: killed, a bit of its log
flipped, and started again; clock: its wall clock is set."""

LinkKind: TypeAlias = Literal["cut", "half-close", "silence", "cut-client"]
"""cut: connections break, and new ones are refused; half-close: one direction ends as if its sender had closed it;
silence: nothing passes and nothing breaks; cut-client: the connections of a broker's clients break."""

DEATHS: Final[frozenset[BrokerKind]] = frozenset(("kill", "replace", "terminate", "restart", "hang", "drain", "damage"))
"""After these another process, or the same one from its beginning, is the broker."""

USUAL_KINDS: Final[tuple[BrokerKind, ...]] = ("kill", "replace", "terminate", "restart", "pause", "hang")
"""What needs nothing that may be missing."""

WEIGHTS: Final[dict[BrokerKind, float]] = {
    "kill": 5.0,
    "replace": 4.0,
    "terminate": 3.0,
    "restart": 3.0,
    "pause": 2.0,
    "hang": 0.7,
    "drain": 1.0,
    "damage": 1.0,
    "clock": 1.0,
}
LINK_WEIGHTS: Final[dict[LinkKind, float]] = {"cut": 4.0, "half-close": 2.0, "silence": 1.0, "cut-client": 2.0}

ALL_AT_ONCE_RATIO: Final = 0.08
ADJACENT_RATIO: Final = 0.3
"""How many of the rounds at `durable` kill all brokers, and two that are linked."""

LATE_RATIO: Final = 0.15
"""How many of those that are started again are started late."""


class Lead(msgspec.Struct, frozen=True):
    """What makes publications pile up in a broker before it is killed."""

    kind: Literal["silence", "pause"]
    """Of the link to a neighbour, or of the neighbour's process."""
    neighbour: str
    before_s: float
    after_s: float
    """It begins and ends so long before and after the death."""


class BrokerEvent(msgspec.Struct, frozen=True):
    """Something happens to a broker."""

    kind: BrokerKind
    broker: str
    offset_s: float = 0.0
    """After the round has begun."""
    for_s: float = 0.0
    """Until it is started again or goes on; of a clock, by how much it is set, which may be back."""
    ratio: float = 0.0
    """How far into the log the damage is."""
    lead: Lead | None = None


class LinkEvent(msgspec.Struct, frozen=True):
    """Something happens to a link, or to the connections of a broker's clients."""

    kind: LinkKind
    link: tuple[str, str]
    """Of clients: the broker, twice."""
    pause_s: float
    """After the fault before."""
    for_s: float
    forwards: bool = True
    """Of what concerns one direction: from the broker that calls to the other."""


class Round(msgspec.Struct, frozen=True):
    """Events that belong together; the next round begins when the network is well again, if this one waits."""

    number: int
    pause_s: float
    """After the round before."""
    events: tuple[BrokerEvent, ...]
    waits: bool = True


class ScheduleOptions(msgspec.Struct, frozen=True):
    """What may happen."""

    level: Level = "safe"
    seed: int = 1
    kinds: tuple[BrokerKind, ...] = USUAL_KINDS
    pause_max_s: float = 3.0
    """Between two rounds."""
    late_max_s: float = 12.0
    """Who is started late is started after so long at most."""
    hang_s: float = 16.0
    """Long enough that neighbours notice it and give up."""

    laden_ratio: float = 0.4
    """How many of those that are killed hold something at that moment, because a neighbour takes nothing from them."""

    @property
    def has_overlaps(self) -> bool:
        """Whether several brokers may die at once, and before a takeover is over."""
        return self.level == "durable"


def rounds(options: ScheduleOptions) -> Iterator[Round]:
    """What happens to brokers, without end; the same for the same options.

    >>> first = next(rounds(ScheduleOptions(seed=3)))
    >>> first == next(rounds(ScheduleOptions(seed=3))), len(first.events)
    (True, 1)
    """
    rng = random.Random(f"brokers {options.seed}")
    bag: list[BrokerKind] = []
    number = 0
    while True:
        number += 1
        pause_s = rng.uniform(0.2, options.pause_max_s)
        if not options.has_overlaps:
            yield Round(number, pause_s, (_event(rng, _drawn(rng, bag, options), rng.choice(BROKERS), options),))
        else:
            yield Round(number, pause_s, _overlapping(rng, bag, options), waits=rng.random() < 0.75)


def _drawn(rng: random.Random, bag: list[BrokerKind], options: ScheduleOptions) -> BrokerKind:
    """A kind by its weight; the first ones are each kind once, so that a short run has them all."""
    kinds = [kind for kind in WEIGHTS if kind in options.kinds]
    if len(bag) < len(kinds):
        kind = rng.choice([kind for kind in kinds if kind not in bag])
        bag.append(kind)
        return kind
    return rng.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]


def _event(
    rng: random.Random, kind: BrokerKind, broker: str, options: ScheduleOptions, offset_s: float = 0.0
) -> BrokerEvent:
    if kind == "pause":
        for_s = rng.uniform(0.1, 3.0)
    elif kind == "hang":
        for_s = options.hang_s
    elif kind == "clock":
        for_s = rng.choice((-86_400.0, -60.0, -2.0, 5.0, 3_600.0))
    elif rng.random() < LATE_RATIO:
        for_s = rng.uniform(min(4.0, options.late_max_s), options.late_max_s)
    else:
        for_s = rng.uniform(0.0, 1.0)
    ratio = round(rng.random(), 6) if kind == "damage" else 0.0
    return BrokerEvent(kind, broker, round(offset_s, 3), round(for_s, 3), ratio, _lead(rng, kind, broker, options))


def _lead(rng: random.Random, kind: BrokerKind, broker: str, options: ScheduleOptions) -> Lead | None:
    if kind not in ("kill", "replace") or rng.random() >= options.laden_ratio:
        return None
    neighbour = rng.choice(
        [second if first == broker else first for first, second in TREE if broker in (first, second)]
    )
    before_s, after_s = rng.uniform(0.1, 2.0), rng.uniform(0.0, 2.0)
    return Lead("silence" if rng.random() < 0.6 else "pause", neighbour, round(before_s, 3), round(after_s, 3))


def _overlapping(rng: random.Random, bag: list[BrokerKind], options: ScheduleOptions) -> tuple[BrokerEvent, ...]:
    drawn = rng.random()
    if drawn < ALL_AT_ONCE_RATIO:
        order = rng.sample(BROKERS, len(BROKERS))
        return tuple(_event(rng, "kill", name, options) for name in order)
    if drawn < ALL_AT_ONCE_RATIO + ADJACENT_RATIO:
        kinds: tuple[BrokerKind, ...] = ("kill", "kill", "terminate")
        ends = rng.choice(TREE)
        return tuple(_event(rng, rng.choice(kinds), name, options, rng.uniform(0.0, 0.5)) for name in ends)
    names = rng.sample(BROKERS, rng.choice((1, 1, 2, 2, 3)))
    events = [_event(rng, _drawn(rng, bag, options), name, options, rng.uniform(0.0, 4.0)) for name in names]
    return tuple(sorted(events, key=lambda event: event.offset_s))


def link_events(options: ScheduleOptions) -> Iterator[LinkEvent]:
    """What happens to links, without end; the same for the same seed."""
    rng = random.Random(f"links {options.seed}")
    first = list(LINK_WEIGHTS)
    rng.shuffle(first)
    while True:
        kind = first.pop() if first else rng.choices(list(LINK_WEIGHTS), list(LINK_WEIGHTS.values()))[0]
        broker = rng.choice(BROKERS)
        link = (broker, broker) if kind == "cut-client" else rng.choice(TREE)
        for_s = rng.uniform(0.5, 13.0) if kind == "silence" else rng.uniform(0.0, 1.5)
        yield LinkEvent(kind, link, round(rng.uniform(1.0, 8.0), 3), round(for_s, 3), rng.random() < 0.5)
