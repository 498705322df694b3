"""Clients that misbehave on purpose, and what becomes of the others meanwhile.

Source: R. Tao, S. Poslad, J. Bigham, resilient delay sensitive load management in environment crisis messaging systems
(2013), section I: publishers with high rates, with large messages and with many useless topics, and subscribers that do
not read. A subscriber with very many filters is ours.

What the others bear is the 99th percentile of their latencies while the attack lasts, beside that of the same seed
without it: all of them together, and the topic that fares worst.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from trimtab.language import Filter, Publication, Value
from trimtab.protocol.effects import Deliver
from trimtab.simulation.scenarios.crisis_watch import ATTACKER_MARK
from trimtab.simulation.scenarios.topics import topic_filter_text
from trimtab.simulation.world.delays import Delays

if TYPE_CHECKING:
    from trimtab.simulation.world.world import World

AttackKind: TypeAlias = Literal["flood", "huge", "advertisements", "stalled", "filters"]

BEARABLE_FACTOR: Final = 1.2
"""An attack is contained if the others' latencies grow by no more than this."""

TICK_S: Final = 0.01
"""A flood is sent in portions of so long."""


class AttackPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[attack]`: who misbehaves, how, and when."""

    kind: AttackKind
    """What is done."""
    broker: str
    """Where the attacker connects."""

    begin_s: float
    """When it begins."""
    topics: list[int]
    """What it subscribes to; it publishes for the first of them."""

    rate_per_s: float = 5_000.0
    """Publications that a flood tries to send, or large ones."""

    message_bytes: int = 400
    """The size of what it publishes."""

    count: int = 10_000
    """Advertisements or filters that it sends at once."""

    measures: bool = True
    """Whether the seed is run again without the attack, for the others' latencies then."""


class AttackSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What an attack did to others and to itself."""

    kind: AttackKind
    p99_s: float
    """The others' latency while the attack lasts, its 99th percentile."""
    p99_without_s: float | None = None
    """The same without the attack; None if that was not looked at."""
    p99_ratio: float | None = None
    worst_topic: int | None = None
    """The topic whose latency has grown most."""
    worst_topic_ratio: float | None = None
    contained: bool | None = None
    told: dict[str, int]
    """What the attacker was told, and how often."""
    sent: int
    """Publications, advertisements or filters that the attacker sent."""
    taken: int
    """Those of them that its broker has taken over or put in force."""
    deliveries: int
    """To the others, while the attack lasts."""
    topics_p99_s: dict[int, float]


class Attack:
    """One attacker in a world, and a watch over the others."""

    def __init__(self, world: World, part: AttackPart | None, begin_s: float, until_s: float) -> None:
        """Without a part nobody attacks, and the others are watched all the same."""
        self._world = world
        self._part = part
        self._begin_s = begin_s
        self._until_s = until_s
        self._all = Delays()
        self._topics: dict[int, Delays] = {}
        self._name = f"{ATTACKER_MARK}{part.topics[0]}.1" if part is not None else ""
        self._sent_count = 0
        self._taken_count = 0
        self._ids: list[str] = []
        world.on_delivery = self._delivered

    def plan(self, latency_s: float) -> None:
        """Put the attack into the world's calendar: the attacker joins a second before, and leaves at the end."""
        part, world = self._part, self._world
        if part is None:
            return
        world.checker.misbehaving[self._name] = None
        world.at(max(0.0, self._begin_s - 1.0), self._join, part, latency_s)
        world.at(self._begin_s, self._begin, part)
        world.at(self._until_s, self._leave)

    def _join(self, part: AttackPart, latency_s: float) -> None:
        world = self._world
        world.set_publication_bytes(self._name, part.message_bytes)
        world.add_client(self._name, part.broker, latency_s)
        if part.kind in ("flood", "huge"):
            world.advertise(self._name, Filter.parse(topic_filter_text(part.topics[0]) + ",[number,isPresent,0]"))
        elif part.kind == "stalled":
            for topic in part.topics:
                world.subscribe(self._name, Filter.parse(topic_filter_text(topic)))

    def _begin(self, part: AttackPart) -> None:
        world = self._world
        match part.kind:
            case "flood" | "huge":
                self._flood(part, self._begin_s)
            case "advertisements":
                for number in range(part.count):
                    filter = Filter.parse(f"[class,eq,'USELESS'],[topic,=,{number}]")
                    self._ids.append(world.advertise(self._name, filter))
            case "filters":
                for number in range(part.count):
                    filter = Filter.parse(f"[class,eq,'EWS'],[number,=,{number}]")
                    self._ids.append(world.subscribe(self._name, filter))
            case "stalled":
                world.clients[self._name].stop_reading()
        self._sent_count = self._sent_count or len(self._ids)

    def _flood(self, part: AttackPart, since_s: float) -> None:
        """Publish as much as the rate says and the session takes."""
        world = self._world
        host = world.clients[self._name]
        if host.has_left:
            return
        wanted_count = round((world.now_s - since_s) * part.rate_per_s)
        while self._sent_count < wanted_count and not host.session.window_is_full:
            self._sent_count += 1
            values: dict[str, Value] = {"class": "EWS", "topic": part.topics[0], "number": self._sent_count}
            world.publish(self._name, Publication.trusted(values))
        if world.now_s + TICK_S < self._until_s:
            world.at(world.now_s + TICK_S, self._flood, part, since_s)

    def _leave(self) -> None:
        if not self._world.clients[self._name].has_left:
            self._taken_count = self._taken()
            self._world.leave(self._name)

    def _taken(self) -> int:
        """What the broker has taken over of what was sent."""
        if self._ids:
            return sum(self._world.checker.is_in_force(id) for id in self._ids)
        return self._sent_count - self._world.clients[self._name].session.waiting_count if self._sent_count else 0

    def _delivered(self, client: str, deliver: Deliver, at_s: float) -> None:
        """Note what an honest subscriber gets of an honest publisher while the attack lasts."""
        published_s = at_s - deliver.delay_s
        if client[0] == ATTACKER_MARK or deliver.publisher[0] == ATTACKER_MARK or published_s < self._begin_s:
            return
        topic = int(deliver.publisher[1:].partition(".")[0])
        for delays in (self._all, self._topics.setdefault(topic, Delays())):
            delays.recent_s.append(deliver.delay_s)
            delays.fold_if_many()

    def summary(self, kind: AttackKind) -> AttackSummary:
        """What was seen, by itself."""
        told: dict[str, int] = {}
        if self._part is not None:
            host = self._world.clients[self._name]
            told = dict(host.told)
            if host.dismissed_because:
                told[host.dismissed_because] = 1
        return AttackSummary(
            kind=kind,
            p99_s=self._all.percentile_s(99),
            told=told,
            sent=self._sent_count,
            taken=self._taken_count,
            deliveries=self._all.count,
            topics_p99_s={topic: self._topics[topic].percentile_s(99) for topic in sorted(self._topics)},
        )


def compared(attacked: AttackSummary, calm: AttackSummary) -> AttackSummary:
    """What an attack showed beside the same seed without it; a topic that got nothing has fared infinitely badly."""
    ratios = {
        topic: attacked.topics_p99_s[topic] / p99_s if topic in attacked.topics_p99_s else float("inf")
        for topic, p99_s in calm.topics_p99_s.items()
        if p99_s > 0
    }
    worst = max(ratios, key=lambda topic: ratios[topic], default=None)
    ratio = attacked.p99_s / calm.p99_s if calm.p99_s else float("inf")
    return msgspec.structs.replace(
        attacked,
        p99_without_s=calm.p99_s,
        p99_ratio=ratio,
        worst_topic=worst,
        worst_topic_ratio=None if worst is None else ratios[worst],
        contained=ratio <= BEARABLE_FACTOR and attacked.deliveries >= 0.99 * calm.deliveries,
    )
