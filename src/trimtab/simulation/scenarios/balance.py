"""What a scenario showed of balance: when loads were level, how level, at what price, and how good the estimates were.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 5.2.

Loads of the edge-brokers (those with one neighbour) are read at steady times. They are level from the first reading on,
after which every two of them stay within the thresholds for 300 s in input ratio and matching delay; the output ratio
is only balanced as well as possible (section 4.2.3) and therefore reported separately. "At rest" is the time from then
on, but not before the last client has moved and what had piled up in queues is gone, until the change of rates; "after"
is the same behind the change, until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.broker.peers import Counters
from trimtab.load.indices import LoadIndices
from trimtab.protocol.records import AnyRecord, MoveRecord, SessionRecord
from trimtab.simulation.scenarios.levelness import (
    DifferenceFigures,
    ErrorFigures,
    NearestFigures,
    differences,
    errors,
    nearest,
    share_above_mean,
)

if TYPE_CHECKING:
    from trimtab.simulation.world.world import World

LEVEL_FOR_S: Final = 300.0
"""Loads are level if they stay so for this long."""

OVERHEAD_OVER_S: Final = 100.0
"""The overhead's peak is that of any window of this length."""

AROUND_CHANGE_S: Final = 60.0
"""A session so near to the change of rates measures before it and observes after it."""


DRAINED_S: Final = 1.0
"""What waits longer in a queue is a backlog; at rest queues hold some hundredths of a second."""

POINT: Final = 0.01
"""A point of utilisation."""


class BalancePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[balance]`: what the summary of balance refers to."""

    joined_s: float
    """When the last subscriber has joined."""
    change_s: float
    """When publication rates change."""
    ratio_threshold: float = 0.1
    """Ratios within this of each other are level."""
    delay_threshold: float = 0.1
    """Matching delays within this share of the next key are level."""
    delay_normalization_s: float = 0.1
    """Differences of delays are told as a share of this."""
    clusters: bool = False
    """Compare the means of clusters instead of single edge-brokers: loads are level when those of neighbouring clusters
    are, since only neighbours are compared by the thesis's global thresholds (section 3.3.1.2)."""


class BalanceSummary(msgspec.Struct, frozen=True):
    """What was reached; None where it was not."""

    converged_at_s: float | None
    reconverged_at_s: float | None
    output_converged_at_s: float | None
    output_reconverged_at_s: float | None
    input_ratio_std_at_rest: float | None
    output_ratio_std_at_rest: float | None
    matching_delay_min_s: float | None
    matching_delay_max_s: float | None
    largest_input_difference_at_rest: float | None
    largest_output_difference_at_rest: float | None
    rest_from_s: float | None
    """When the loads were level, the last client had moved and no queue held more than a second's work; None if that
    was not reached before the change of rates."""
    rest_after_from_s: float | None
    """The same behind the change of rates."""
    input_difference: DifferenceFigures | None
    """Between brokers, or between any two clusters, from the first moment at which loads were level to the change."""
    output_difference: DifferenceFigures | None
    above_optimum: dict[str, float]
    """By how much the largest output ratio and the largest matching delay at rest are above the least that is possible,
    as a share of that: were clients divisible, all brokers would have the same (a lower bound by relaxation)."""
    nearest: NearestFigures | None
    """How near the loads came to being level before the change of rates, and when."""
    nearest_after: NearestFigures | None
    subscribers_by_broker: dict[str, int]
    subscribers_at_rest_by_broker: dict[str, int]
    sessions_by_kind: dict[str, int]
    sessions_without_moves_count: int
    moves_per_subscriber_max: int
    overhead_ratio_at_rest: float | None
    overhead_ratio_peak_after_change: float | None
    estimation_error: dict[str, ErrorFigures]
    estimation_error_at_steady_rates: dict[str, ErrorFigures]
    """Without the sessions around the change of rates, which was no part of what they estimated."""
    delivery_delay_mean_s: dict[str, float | None]
    overloaded_broker_seconds: float
    never_overloaded_acceptors: bool
    acceptors_overloaded_by: list[str]


class _Machine(msgspec.Struct, frozen=True):
    """What the load of a broker is divided by."""

    bandwidth: float
    """Bytes per second."""
    matching: float
    """Subscriptions per second of matching delay; 0 if that is not known."""


class _Reading(msgspec.Struct, frozen=True):
    at_s: float
    loads: dict[str, LoadIndices]
    clients: dict[str, int]
    control_count: int
    data_count: int
    delays_count: int
    delays_sum_s: float


class BalanceWatch:
    """Reads the load of all edge-brokers from time to time, keeps records of sessions and moves, and sums up."""

    def __init__(self, part: BalancePart, lower_overload_ratio: float, higher_overload_ratio: float) -> None:
        self._part = part
        self._lower = lower_overload_ratio
        self._higher = higher_overload_ratio
        self._readings: list[_Reading] = []
        self._sessions: list[SessionRecord] = []
        self._moves_by_client: dict[str, int] = {}
        self._moved_s: list[float] = []
        self._heads: dict[str, str] = {}
        self._neighbours: dict[str, list[str]] = {}
        self._machines: dict[str, _Machine] = {}

    def record(self, record: AnyRecord) -> None:
        """Keep what matters here."""
        if isinstance(record, SessionRecord):
            if record.acceptor:  # somebody agreed
                self._sessions.append(record)
        elif isinstance(record, MoveRecord) and record.outcome == "moved":
            self._moves_by_client[record.client] = self._moves_by_client.get(record.client, 0) + 1
            self._moved_s.append(record.end_s)

    def read(self, world: World) -> None:
        """Take a reading."""
        loads: dict[str, LoadIndices] = {}
        clients: dict[str, int] = {}
        control_count = data_count = 0
        for name, host in world.brokers.items():
            counters: Counters = host.broker.counters
            control_count += counters.control_out_count
            data_count += counters.publications_out_count
            neighbours = [peer.name for peer in host.broker.peers.values() if peer.role == "broker"]
            self._neighbours[name] = neighbours
            if len(neighbours) == 1:
                self._heads[name] = neighbours[0]
                loads[name] = host.load()
                meters = host.broker.meters.config
                cost_s = meters.matching_s_per_subscription
                self._machines[name] = _Machine(meters.bandwidth_bytes_per_s, 1 / cost_s if cost_s else 0.0)
                clients[name] = sum(
                    peer.role == "client" and bool(peer.subscriptions) for peer in host.broker.peers.values()
                )
        delays = world.checker.delays
        self._readings.append(
            _Reading(world.now_s, loads, clients, control_count, data_count, delays.count, delays.total_s)
        )

    # ---- summing up ----

    def summary(self) -> BalanceSummary:
        """What the readings and records show."""
        part = self._part
        before = [reading for reading in self._readings if reading.at_s < part.change_s]
        after = [reading for reading in self._readings if reading.at_s >= part.change_s]
        converged_s = self._level_from(before, self._is_level)
        reconverged_s = self._level_from(after, self._is_level)
        level = [reading for reading in before if converged_s is not None and reading.at_s >= converged_s]
        at_rest = self._from_rest(before, converged_s)
        done = self._from_rest(after, reconverged_s)
        joining = [reading for reading in before if converged_s is None or reading.at_s < converged_s]
        overloading = self._overloading_sessions()
        settled = [each for each in self._sessions if each.begin_s > part.joined_s and each.subscribers_moved_count]
        return BalanceSummary(
            converged_at_s=converged_s,
            reconverged_at_s=reconverged_s,
            output_converged_at_s=self._level_from(before, self._is_output_level),
            output_reconverged_at_s=self._level_from(after, self._is_output_level),
            input_ratio_std_at_rest=self._deviation(at_rest, lambda load: load.input_utilization_ratio),
            output_ratio_std_at_rest=self._deviation(at_rest, lambda load: load.output_utilization_ratio),
            matching_delay_min_s=_extreme(min, at_rest),
            matching_delay_max_s=_extreme(max, at_rest),
            largest_input_difference_at_rest=self._largest(at_rest, lambda load: load.input_utilization_ratio),
            largest_output_difference_at_rest=self._largest(at_rest, lambda load: load.output_utilization_ratio),
            rest_from_s=at_rest[0].at_s if at_rest else None,
            rest_after_from_s=done[0].at_s if done else None,
            input_difference=self._differences(level, lambda load: load.input_utilization_ratio),
            output_difference=self._differences(level, lambda load: load.output_utilization_ratio),
            above_optimum=self._above_optimum(at_rest),
            nearest=self._nearest(before),
            nearest_after=self._nearest(after),
            subscribers_by_broker=self._readings[-1].clients if self._readings else {},
            subscribers_at_rest_by_broker=at_rest[-1].clients if at_rest else {},
            sessions_by_kind=self._sessions_by_kind(),
            sessions_without_moves_count=sum(
                not each.subscribers_moved_count and not self._is_between_heads(each) for each in self._sessions
            ),
            moves_per_subscriber_max=max(self._moves_by_client.values(), default=0),
            overhead_ratio_at_rest=_overhead(at_rest),
            overhead_ratio_peak_after_change=self._overhead_peak(after),
            estimation_error=self._estimation_errors(settled),
            estimation_error_at_steady_rates=self._estimation_errors(
                [each for each in settled if abs(each.begin_s - part.change_s) > AROUND_CHANGE_S]
            ),
            delivery_delay_mean_s={
                "before": _mean_delay_s(joining),
                "at_rest": _mean_delay_s(at_rest),
                "after": _mean_delay_s(done),
            },
            overloaded_broker_seconds=self._overloaded_s(),
            never_overloaded_acceptors=not overloading,
            acceptors_overloaded_by=overloading,
        )

    def _level_from(self, readings: Sequence[_Reading], is_level: Callable[[_Reading], bool]) -> float | None:
        """The first moment after which the loads are level for long enough."""
        begin_s: float | None = None
        for reading in readings:
            if reading.at_s < self._part.joined_s or not is_level(reading):
                begin_s = None
            elif begin_s is None:
                begin_s = reading.at_s
            if begin_s is not None and reading.at_s - begin_s >= LEVEL_FOR_S:
                return begin_s
        return None

    def _is_level(self, reading: _Reading) -> bool:
        return self._share_of_threshold(reading) <= 1.0

    def _share_of_threshold(self, reading: _Reading) -> float:
        """The largest difference in input ratio or matching delay, as a share of what may be."""
        part = self._part
        return max(
            self._gap(reading, lambda load: load.input_utilization_ratio) / part.ratio_threshold,
            self._gap(reading, lambda load: load.matching_delay_s)
            / (part.delay_threshold * part.delay_normalization_s),
        )

    def _above_optimum(self, readings: Sequence[_Reading]) -> dict[str, float]:
        if not readings:
            return {}
        outputs, delays = [], []
        for reading in readings:
            loads = [(reading.loads[name], self._machines[name]) for name in reading.loads if name in self._machines]
            outputs.append(share_above_mean([(load.output_utilization_ratio, each.bandwidth) for load, each in loads]))
            delays.append(share_above_mean([(load.matching_delay_s, each.matching) for load, each in loads]))
        return {"output ratio": fmean(outputs), "matching delay": fmean(delays)}

    def _nearest(self, readings: Sequence[_Reading]) -> NearestFigures | None:
        shares = [(each.at_s, self._share_of_threshold(each)) for each in readings if each.at_s >= self._part.joined_s]
        return nearest(shares, LEVEL_FOR_S)

    def _from_rest(self, readings: Sequence[_Reading], level_s: float | None) -> list[_Reading]:
        """The readings of the time at rest: level, nobody moves any more, and nothing old waits."""
        if level_s is None or not readings:
            return []
        moves_s = [moved_s for moved_s in self._moved_s if moved_s <= readings[-1].at_s]
        quiet_s = max([level_s, *moves_s[-1:]])
        late = [reading for reading in readings if reading.at_s >= quiet_s]
        first = next((number for number, reading in enumerate(late) if _is_drained(reading)), len(late))
        return late[first:]

    def _differences(
        self, readings: Sequence[_Reading], value: Callable[[LoadIndices], float]
    ) -> DifferenceFigures | None:
        return differences([self._difference(reading, value) for reading in readings])

    def _is_output_level(self, reading: _Reading) -> bool:
        return self._gap(reading, lambda load: load.output_utilization_ratio) <= self._part.ratio_threshold

    def _values(self, reading: _Reading, value: Callable[[LoadIndices], float]) -> list[float]:
        """One value for each edge-broker, or for each cluster."""
        if not self._part.clusters:
            return [value(load) for load in reading.loads.values()]
        return list(self._means(reading, value).values())

    def _means(self, reading: _Reading, value: Callable[[LoadIndices], float]) -> dict[str, float]:
        """The mean of each cluster."""
        clusters: dict[str, list[float]] = {}
        for name, load in reading.loads.items():
            clusters.setdefault(self._heads[name], []).append(value(load))
        return {head: fmean(values) for head, values in clusters.items()}

    def _gap(self, reading: _Reading, value: Callable[[LoadIndices], float]) -> float:
        """The largest difference that the thresholds apply to: of two edge-brokers, or of two neighbouring clusters."""
        if not self._part.clusters:
            return self._difference(reading, value)
        means = self._means(reading, value)
        return max(
            (
                abs(mean - means[other])
                for head, mean in means.items()
                for other in self._neighbours.get(head, ())
                if other in means
            ),
            default=0.0,
        )

    def _difference(self, reading: _Reading, value: Callable[[LoadIndices], float]) -> float:
        values = self._values(reading, value)
        return max(values) - min(values) if values else 0.0

    def _largest(self, readings: Sequence[_Reading], value: Callable[[LoadIndices], float]) -> float | None:
        return max((self._difference(reading, value) for reading in readings), default=None)

    def _deviation(self, readings: Sequence[_Reading], value: Callable[[LoadIndices], float]) -> float | None:
        """The mean over time of the standard deviation over brokers."""
        return fmean(pstdev(self._values(reading, value)) for reading in readings) if readings else None

    def _sessions_by_kind(self) -> dict[str, int]:
        kinds: dict[str, int] = {}
        for session in self._sessions:
            kind = "between cluster-heads" if self._is_between_heads(session) else f"{session.kind} {session.index}"
            kinds[kind] = kinds.get(kind, 0) + 1
        return dict(sorted(kinds.items()))

    def _is_between_heads(self, session: SessionRecord) -> bool:
        """Two heads agreed that their clusters balance; edge-brokers then have sessions of their own."""
        return session.initiator in self._heads.values()

    def _overhead_peak(self, readings: Sequence[_Reading]) -> float | None:
        step_s = readings[1].at_s - readings[0].at_s if len(readings) > 1 else OVERHEAD_OVER_S
        length = max(1, round(OVERHEAD_OVER_S / step_s))
        windows = (readings[first : first + length + 1] for first in range(len(readings) - length))
        return max((ratio for window in windows if (ratio := _overhead(window)) is not None), default=None)

    def _estimation_errors(self, sessions: Sequence[SessionRecord]) -> dict[str, ErrorFigures]:
        """Of sessions after all subscribers have joined, as in the thesis."""
        figures: dict[str, ErrorFigures] = {}
        for side, name in (("initiator", "own"), ("acceptor", "other")):
            for index in ("input_utilization_ratio", "output_utilization_ratio", "matching_delay_s"):
                pairs = [
                    (getattr(each, f"{side}_estimated_{index}"), getattr(each, f"{side}_observed_{index}"))
                    for each in sessions
                ]
                is_delay = index == "matching_delay_s"
                found = errors(pairs, POINT * (self._part.delay_normalization_s if is_delay else 1.0))
                if found is not None:
                    figures[f"{name} {index}"] = found
        return figures

    def _overloaded_s(self) -> float:
        total_s = 0.0
        for earlier, later in pairwise(self._readings):
            total_s += (later.at_s - earlier.at_s) * sum(_highest(load) > self._higher for load in later.loads.values())
        return total_s

    def _overloading_sessions(self) -> list[str]:
        """Sessions by which an acceptor was expected to rise, or was seen to have risen, above the lower threshold."""
        found: list[str] = []
        for each in self._sessions:
            ratios = (
                (each.acceptor_before_input_utilization_ratio, each.acceptor_observed_input_utilization_ratio),
                (each.acceptor_before_output_utilization_ratio, each.acceptor_observed_output_utilization_ratio),
            )
            if each.subscribers_moved_count and any(
                before is not None and seen is not None and before <= self._lower < seen for before, seen in ratios
            ):
                found.append(each.session)
        return found


def _is_drained(reading: _Reading) -> bool:
    """Whether no broker has more than a second's work waiting in its queues."""
    return all(
        load.input_queue_count * load.matching_delay_s <= DRAINED_S and load.output_queue_delay_s <= DRAINED_S
        for load in reading.loads.values()
    )


def _highest(load: LoadIndices) -> float:
    return max(load.input_utilization_ratio, load.output_utilization_ratio)


def _extreme(which: Callable[[list[float]], float], readings: Sequence[_Reading]) -> float | None:
    """The extreme over brokers of their mean matching delays."""
    if not readings:
        return None
    names: Mapping[str, LoadIndices] = readings[-1].loads
    means = [fmean(each.loads[name].matching_delay_s for each in readings if name in each.loads) for name in names]
    return which(means)


def _overhead(readings: Sequence[_Reading]) -> float | None:
    """The share of messages that are not clients' publications."""
    if len(readings) < 2:
        return None
    control = readings[-1].control_count - readings[0].control_count
    data = readings[-1].data_count - readings[0].data_count
    return control / (control + data) if control + data else None


def _mean_delay_s(readings: Sequence[_Reading]) -> float | None:
    if len(readings) < 2:
        return None
    count = readings[-1].delays_count - readings[0].delays_count
    return (readings[-1].delays_sum_s - readings[0].delays_sum_s) / count if count else None
