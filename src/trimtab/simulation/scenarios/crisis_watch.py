"""What became of latency requirements: late deliveries and latencies by topic, queues, uplinks and moves over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trimtab.protocol.effects import Deliver
from trimtab.protocol.records import AnyRecord, MoveRecord, SessionRecord
from trimtab.simulation.scenarios.topics import CrisisPart, TopicPart
from trimtab.simulation.world.delays import Delays

if TYPE_CHECKING:
    from trimtab.simulation.world.world import World

ATTACKER_MARK = "A"
"""The names of clients that misbehave on purpose begin with it; then comes the topic, as with all clients."""

QUIET_S = 5.0
"""Brokers count as balanced when no uplink is beyond its bandwidth for so long."""


class TopicFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How one topic fared."""

    within_s: float | None
    deliveries: int
    late: int
    late_before_burst: int
    late_in_window: int
    late_outside_window: int
    """After the burst began, but not in the paper's balancing stage."""
    first_late_s: float | None
    last_late_s: float | None
    latency_p50_s: float
    latency_p99_s: float


class MovedSession(msgspec.Struct, frozen=True, kw_only=True):
    """Clients that moved for one reason."""

    at_s: float
    done_s: float
    cause: str
    from_broker: str
    to_broker: str
    topics: list[int]
    clients: int
    reason: str


class CrisisSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a scenario with topics showed."""

    topics: dict[str, TopicFigures]
    late_deliveries: dict[str, int]
    """By topic, those without left out."""
    late_total: int
    late_outside_window: int
    moves: list[MovedSession]
    """After the burst began; those before stand in `moves_before_burst`."""
    unnecessary_moves: list[str] | None = None
    """Causes of moves without which no requirement would have been missed; None if that was not looked at."""
    moves_before_burst: int
    bundles_moved_after_burst: int
    placement: dict[str, list[int]]
    """The topics with subscribers at each broker when the burst begins."""
    worst_topic: int | None
    """The topic whose queues came closest to, or went furthest beyond, what its requirement allows, after the burst."""
    worst_topic_queue_empty_at_s: float | None
    balanced_at_s: float | None
    queue_depth: dict[str, list[int]]
    """Messages that wait for the subscribers of a topic, at all brokers, each time that the load was read."""
    uplink_utilization: dict[str, list[float]]
    read_at_s: list[float]


class CrisisWatch:
    """Sees deliveries and moves as they happen, and queues at steady times."""

    def __init__(self, part: CrisisPart, topics: list[TopicPart]) -> None:
        self._part = part
        self._topics = {topic.id: topic for topic in topics}
        self._delays = {topic.id: Delays() for topic in topics}
        self._late_s: dict[int, list[float]] = {topic.id: [] for topic in topics}
        self._moves: list[MoveRecord] = []
        self._sessions: dict[str, SessionRecord] = {}
        self._read_at_s: list[float] = []
        self._queues: dict[int, list[int]] = {topic.id: [] for topic in topics}
        self._waits_s: dict[int, list[float]] = {topic.id: [] for topic in topics}
        self._uplinks: dict[str, list[float]] = {}
        self._placement: dict[str, list[int]] = {}

    @staticmethod
    def topic_of(client: str) -> int:
        """The topic of a client by its name."""
        return int(client[1:].partition(".")[0])

    def delivered(self, deliver: Deliver, now_s: float) -> None:
        """A subscriber was handed a publication; those of attackers nobody waits for."""
        if deliver.publisher[0] == ATTACKER_MARK:
            return
        topic = self.topic_of(deliver.publisher)
        delays = self._delays[topic]
        delays.recent_s.append(deliver.delay_s)
        delays.fold_if_many()
        if deliver.late_for:
            self._late_s[topic].append(now_s)

    def record(self, record: AnyRecord) -> None:
        """Keep moves, and why they were made."""
        if isinstance(record, MoveRecord) and record.outcome == "moved":
            self._moves.append(record)
        elif isinstance(record, SessionRecord):
            self._sessions[record.session] = record

    def read(self, world: World) -> None:
        """Look at the queues and uplinks of all brokers."""
        self._read_at_s.append(world.now_s)
        depths = dict.fromkeys(self._topics, 0)
        placement: dict[str, set[int]] = {}
        for name, host in world.brokers.items():
            load = host.load()
            self._uplinks.setdefault(name, []).append(round(load.output_utilization_ratio, 4))
            served: set[int] = set()
            for peer in host.broker.peers.values():
                if peer.role == "client" and peer.subscriptions:
                    topic = self.topic_of(peer.name)
                    depths[topic] += peer.link.queued_data_count
                    served.add(topic)
            placement[name] = served
        for topic, depth in depths.items():
            part = self._topics[topic]
            burst = self._part.burst_factor if part.bursts and world.now_s >= self._part.burst_s else 1.0
            rate_per_s = part.publishers * part.rate_per_s * part.subscribers * burst
            self._queues[topic].append(depth)
            self._waits_s[topic].append(depth / rate_per_s)
        if world.now_s <= self._part.burst_s:
            self._placement = {name: sorted(served) for name, served in placement.items()}

    def summary(self) -> CrisisSummary:
        """What was seen."""
        figures = {str(id): self._figures(id) for id in self._topics}
        after = [move for move in self._moves if move.begin_s >= self._part.burst_s]
        moves = self._grouped(after)
        worst = self._worst_topic()
        return CrisisSummary(
            topics=figures,
            late_deliveries={name: each.late for name, each in figures.items() if each.late},
            late_total=sum(each.late for each in figures.values()),
            late_outside_window=sum(each.late_outside_window for each in figures.values()),
            moves=moves,
            moves_before_burst=len(self._moves) - len(after),
            bundles_moved_after_burst=len({(each.cause, topic) for each in moves for topic in each.topics}),
            placement=self._placement,
            worst_topic=worst,
            worst_topic_queue_empty_at_s=None if worst is None else self._empty_from(worst),
            balanced_at_s=self._balanced_at_s(),
            queue_depth={str(id): depths for id, depths in self._queues.items()},
            uplink_utilization=self._uplinks,
            read_at_s=self._read_at_s,
        )

    def _figures(self, id: int) -> TopicFigures:
        late, delays = self._late_s[id], self._delays[id]
        begin_s, end_s = self._part.window_s
        before = sum(time_s < self._part.burst_s for time_s in late)
        inside = sum(begin_s <= time_s <= end_s for time_s in late)
        return TopicFigures(
            within_s=self._topics[id].within_s,
            deliveries=delays.count,
            late=len(late),
            late_before_burst=before,
            late_in_window=inside,
            late_outside_window=len(late) - before - inside,
            first_late_s=min(late, default=None),
            last_late_s=max(late, default=None),
            latency_p50_s=delays.percentile_s(50),
            latency_p99_s=delays.percentile_s(99),
        )

    def _grouped(self, moves: list[MoveRecord]) -> list[MovedSession]:
        """Moves with one cause and one way together."""
        groups: dict[tuple[str, str, str], list[MoveRecord]] = {}
        for move in moves:
            groups.setdefault((move.cause, move.from_broker, move.to_broker), []).append(move)
        return [
            MovedSession(
                at_s=min(move.begin_s for move in group),
                done_s=max(move.end_s for move in group),
                cause=cause,
                from_broker=from_broker,
                to_broker=to_broker,
                topics=sorted({self.topic_of(move.client) for move in group}),
                clients=len(group),
                reason=self._sessions[cause].reason if cause in self._sessions else "",
            )
            for (cause, from_broker, to_broker), group in groups.items()
        ]

    def _after_burst(self) -> list[int]:
        return [number for number, time_s in enumerate(self._read_at_s) if time_s > self._part.burst_s]

    def _worst_topic(self) -> int | None:
        after = self._after_burst()
        if not after:
            return None
        ratios = {
            id: max(self._waits_s[id][number] for number in after) / topic.within_s
            for id, topic in self._topics.items()
            if topic.within_s is not None
        }
        return max(ratios, key=lambda id: ratios[id], default=None)

    def _empty_from(self, topic: int) -> float | None:
        """Since when no more waits for a topic than is on its way anyway: less than a tenth of a second's worth."""
        empty_s: float | None = None
        for number in self._after_burst():
            if self._waits_s[topic][number] < 0.1:
                empty_s = self._read_at_s[number] if empty_s is None else empty_s
            else:
                empty_s = None
        return empty_s

    def _balanced_at_s(self) -> float | None:
        """Since when all uplinks are within their bandwidth, from the burst on."""
        balanced_s: float | None = None
        for number in self._after_burst():
            if all(ratios[number] <= 1.0 for ratios in self._uplinks.values()):
                balanced_s = self._read_at_s[number] if balanced_s is None else balanced_s
            else:
                balanced_s = None
        if balanced_s is None or self._read_at_s[-1] - balanced_s < QUIET_S:
            return None
        return balanced_s
