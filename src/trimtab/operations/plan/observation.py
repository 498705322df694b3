"""Reads what a continued network does, from the records that every run writes, and sums it up for a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final

import msgspec

from trimtab.policies.padres.config import PadresConfig
from trimtab.protocol.records import (
    AnyRecord,
    DeliveryRecord,
    LoadRecord,
    MoveRecord,
    Recorder,
    RelocationRecord,
    SessionRecord,
)
from trimtab.simulation.scenarios.run import MessagesSummary
from trimtab.simulation.world.delays import Delays

READ_EVERY_S: Final = 5.0
"""Virtual time between two readings of all brokers' loads."""

END_RATIO: Final = 0.1
END_MIN_S: Final = 30.0
"""What holds at the end is the mean over the last tenth, but over no less than this where the time allows it."""

LEVEL_OVER_S: Final = 10.0
"""Ratios are judged by their means over so long, as `trimtab load` does."""

SESSIONS_TOLD_MAX_COUNT: Final = 1_000
VIOLATIONS_TOLD_MAX_COUNT: Final = 20


class Indices(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's load and what it serves: at one moment, or the mean over some."""

    input_utilization_ratio: float
    output_utilization_ratio: float
    matching_delay_s: float
    input_queue_count: float
    output_queue_count: float
    clients_count: float


class BrokerOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a broker."""

    begin: Indices
    """When the policy began."""
    end: Indices
    highest_ratio: float
    """The highest of its utilisation ratios at any reading."""
    overloaded_s: float
    """How long one of them was above 1."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a network; times are since its policy began."""

    policy: str
    duration_s: float
    brokers: dict[str, BrokerOutcome]
    deliveries_count: int
    """Those that came in this time; what still waits at its end is not among them."""
    delay_mean_s: float
    delay_p99_s: float
    end_delay_mean_s: float
    end_delay_p99_s: float
    late_count: int
    late_clients: tuple[str, ...]
    """Clients that got something later than they want it."""
    moves_count: int
    stayed_count: int
    """Moves that were refused or undone."""
    moved_again: dict[str, int]
    """Clients that moved more than once, and how often."""
    last_move_s: float | None
    level_after_s: float | None
    """When for the first time no edge broker was overloaded and no two differed by more than the policy's threshold."""
    is_level_at_end: bool
    sessions: tuple[str, ...]
    """What balancing moved, in words, in the order of its beginning."""
    sessions_in_vain_count: int
    """Sessions of two brokers that moved nobody."""
    violations: tuple[str, ...]
    """What the checkers found wrong; nothing unless the protocol is broken."""
    times_s: tuple[float, ...]
    input_ratios: dict[str, tuple[float, ...]]
    output_ratios: dict[str, tuple[float, ...]]
    """By broker, at these times."""


class PlanWatch:
    """A recorder that keeps what a plan tells."""

    def __init__(
        self,
        begin_s: float,
        duration_s: float,
        *,
        padres: PadresConfig,
        edges: Sequence[str],
        on_progress: Callable[[float], None] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """With a recorder all records are kept elsewhere, too."""
        self._recorder = recorder
        self._begin_s = begin_s
        self._duration_s = duration_s
        self._padres = padres
        self._edges = edges
        self._on_progress = on_progress
        self._loads: dict[float, dict[str, LoadRecord]] = {}
        self._delays = Delays()
        self._end_delays = Delays()
        self._late: Counter[str] = Counter()
        self._moves: list[MoveRecord] = []
        self._told: list[tuple[float, str]] = []
        self._sessions_in_vain_count = 0

    @property
    def _end_from_s(self) -> float:
        length_s = min(max(END_RATIO * self._duration_s, END_MIN_S), 0.5 * self._duration_s)
        return self._duration_s - length_s

    def record(self, record: AnyRecord) -> None:
        """Something happened."""
        if self._recorder is not None:
            self._recorder.record(record)
        match record:
            case DeliveryRecord() if 0 <= record.time_s - self._begin_s <= self._duration_s:
                self._delays.recent_s.append(record.delay_s)
                if record.time_s - self._begin_s >= self._end_from_s:
                    self._end_delays.recent_s.append(record.delay_s)
                if record.late_count:
                    self._late[record.client] += 1
            case LoadRecord():
                self._read(record)
            case MoveRecord():
                if record.end_s - self._begin_s <= self._duration_s:
                    self._moves.append(record)
            case SessionRecord():
                if not record.subscribers_moved_count:
                    self._sessions_in_vain_count += bool(record.acceptor)
                else:
                    self._told.append((record.begin_s, _session_words(record, record.begin_s - self._begin_s)))
            case RelocationRecord():
                if record.to_broker:
                    time_s = record.end_s - self._begin_s
                    words = f"{time_s:.0f} s: publisher {record.publisher} from {record.broker} to {record.to_broker}"
                    self._told.append((record.end_s, f"{words}: {record.reason}"))

    def _read(self, record: LoadRecord) -> None:
        time_s = record.time_s - self._begin_s
        if time_s > self._duration_s + 1e-6:
            return  # after the end only what is under way is delivered
        if time_s not in self._loads:
            self._delays.fold_if_many()
            self._end_delays.fold_if_many()
            if self._on_progress is not None:
                self._on_progress(min(max(time_s, 0.0) / self._duration_s, 1.0))
        self._loads.setdefault(time_s, {})[record.broker] = record

    def outcome(self, policy: str, summary: MessagesSummary) -> Outcome:
        """What it came to."""
        readings = [(time_s, loads) for time_s, loads in sorted(self._loads.items()) if time_s >= 0]
        moved = Counter(each.client for each in self._moves if each.outcome == "moved")
        level = [time_s for time_s, _ in readings if self._is_level(readings, time_s)]
        return Outcome(
            policy=policy,
            duration_s=self._duration_s,
            brokers={name: self._broker(name, readings) for name in (readings[-1][1] if readings else {})},
            deliveries_count=self._delays.count,
            delay_mean_s=self._delays.mean_s,
            delay_p99_s=self._delays.percentile_s(99),
            end_delay_mean_s=self._end_delays.mean_s,
            end_delay_p99_s=self._end_delays.percentile_s(99),
            late_count=sum(self._late.values()),
            late_clients=tuple(sorted(self._late)),
            moves_count=sum(moved.values()),
            stayed_count=sum(each.outcome == "stayed" for each in self._moves),
            moved_again={name: count for name, count in sorted(moved.items()) if count > 1},
            last_move_s=max((each.end_s - self._begin_s for each in self._moves), default=None),
            level_after_s=min(level, default=None),
            is_level_at_end=bool(readings) and bool(level) and level[-1] == readings[-1][0],
            sessions=tuple(words for _, words in sorted(self._told)[:SESSIONS_TOLD_MAX_COUNT]),
            sessions_in_vain_count=self._sessions_in_vain_count,
            violations=tuple(f"{each.kind}: {each.text}" for each in summary.violations[:VIOLATIONS_TOLD_MAX_COUNT]),
            times_s=tuple(time_s for time_s, _ in readings),
            input_ratios=_series(readings, lambda load: load.input_utilization_ratio),
            output_ratios=_series(readings, lambda load: load.output_utilization_ratio),
        )

    def _broker(self, name: str, readings: Sequence[tuple[float, Mapping[str, LoadRecord]]]) -> BrokerOutcome:
        own = [(time_s, loads[name]) for time_s, loads in readings if name in loads]
        begin = [load for time_s, load in own if time_s < READ_EVERY_S]
        end = [load for time_s, load in own if time_s >= self._end_from_s]
        overloaded_s = sum(
            later_s - earlier_s for (earlier_s, _), (later_s, load) in pairwise(own) if _highest(load) > 1.0
        )
        return BrokerOutcome(
            begin=mean_indices(begin or [own[-1][1]]),
            end=mean_indices(end or [own[-1][1]]),
            highest_ratio=max(_highest(load) for _, load in own),
            overloaded_s=overloaded_s,
        )

    def _is_level(self, readings: Sequence[tuple[float, Mapping[str, LoadRecord]]], time_s: float) -> bool:
        over = [loads for at_s, loads in readings if time_s - LEVEL_OVER_S <= at_s <= time_s]
        for index in ("input_utilization_ratio", "output_utilization_ratio"):
            means = [fmean(getattr(loads[name], index) for loads in over) for name in self._edges]
            if max(means) > self._padres.lower_overload_ratio:
                return False
            if max(means) - min(means) > self._padres.local_ratio_threshold:
                return False
        return True


def mean_indices(loads: Sequence[LoadRecord]) -> Indices:
    """The means of some readings."""
    return Indices(**{name: fmean(getattr(load, name) for load in loads) for name in Indices.__struct_fields__})


def _highest(load: LoadRecord) -> float:
    return max(load.input_utilization_ratio, load.output_utilization_ratio)


def _series(
    readings: Sequence[tuple[float, Mapping[str, LoadRecord]]], value: Callable[[LoadRecord], float]
) -> dict[str, tuple[float, ...]]:
    names = readings[-1][1] if readings else {}
    return {name: tuple(round(value(loads[name]), 4) for _, loads in readings if name in loads) for name in names}


def _session_words(record: SessionRecord, begin_s: float) -> str:
    count = record.subscribers_moved_count
    what = f"{count:,} subscriber{'' if count == 1 else 's'}"
    to = f" to {record.acceptor}" if record.acceptor else ""
    words = f"{begin_s:.0f} s: {record.initiator} gave {what}{to} ({record.index}): {record.reason}"
    return words if record.outcome in ("", "done") else f"{words}; {record.outcome}"
