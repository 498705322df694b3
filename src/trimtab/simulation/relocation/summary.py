"""What a run with publishers that move showed, and how much less that is than without moves.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009), section 5.2: message rate,
input and output utilisation are means over all brokers, delay and hop count means over all deliveries, taken at the
end.

Messages are what brokers receive over links, publications and others alike. The overhead is the share of others, from
the first publication on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from trimtab.policies.relocation.agent import RelocationAgent
from trimtab.protocol.effects import Deliver
from trimtab.protocol.records import AnyRecord, MoveRecord, RelocationRecord
from trimtab.simulation.relocation.scenario import RelocationScenario, distance
from trimtab.simulation.scenarios.summary import Summary, counted

if TYPE_CHECKING:
    from trimtab.simulation.world.world import World


class RelocationReading(msgspec.Struct, frozen=True):
    """What was so on average between the reading before and this one."""

    time_s: float
    message_rate_per_s: float
    delivery_delay_s: float | None
    hops: float | None


class RelocationDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What a run with publishers that move showed of its own."""

    workload: str
    spread: int
    threshold: int
    message_rate_mean_per_s: float
    """Of a broker, at the end."""
    input_ratio_mean: float
    output_ratio_mean: float
    input_ratio_max: float
    """Of any broker at any reading since publishing began."""
    delivery_delay_mean_s: float
    hops_mean: float
    """Brokers that a delivery at the end came through."""
    overhead_ratio: float
    memory_bytes_mean: float
    """Of a broker, tracing included, since publishing began."""
    selection_time_s: float | None
    """From enough traces to a decision, mean."""
    selections_count: int
    publisher_wait_s: dict[str, float]
    """How long moves held publications back, by the number of links between the old and the new broker, mean."""
    moves_per_publisher_max: int
    last_move_s: float | None
    traced_count: int
    """Publications that were tagged."""
    control_messages: dict[str, int]
    """What agents said to each other, by kind."""
    messages_per_trace: float | None
    """Of tracing and selection, for each tagged publication."""
    reductions: dict[str, float] = {}
    """How much less than with policy none and the same seed, in percent; below 0 it is more."""
    series: list[RelocationReading] = []


RelocationSummary: TypeAlias = Summary[RelocationDetails]


REDUCED: Final = (
    "message_rate_mean_per_s",
    "input_ratio_mean",
    "output_ratio_mean",
    "delivery_delay_mean_s",
    "hops_mean",
    "overhead_ratio",
    "memory_bytes_mean",
)
"""The figures that are compared with those of policy none."""


def reductions(run: RelocationSummary, baseline: RelocationSummary) -> dict[str, float]:
    """How much less than the baseline, in percent; what the baseline has none of is left out."""
    ours, theirs = run.details, baseline.details
    pairs = {name: (float(getattr(ours, name)), float(getattr(theirs, name))) for name in REDUCED}
    return {name: 100 * (1 - own / other) for name, (own, other) in pairs.items() if other}


def with_reductions(run: RelocationSummary, baseline: RelocationSummary) -> RelocationSummary:
    """A run with how much less it took than the baseline."""
    details = msgspec.structs.replace(run.details, reductions=reductions(run, baseline))
    return msgspec.structs.replace(run, details=details)


class _Reading(msgspec.Struct, frozen=True):
    at_s: float
    publications_count: int
    control_count: int
    input_ratios: list[float]
    output_ratios: list[float]
    memory_bytes: float
    deliveries_count: int
    delays_s: float
    hops: int


class RelocationWatch:
    """Reads the load of all brokers from time to time, hears of deliveries and moves, and sums up."""

    def __init__(self, scenario: RelocationScenario, agents: Mapping[str, Sequence[object]]) -> None:
        self._scenario = scenario
        self._agents = {
            name: [agent for agent in own if isinstance(agent, RelocationAgent)] for name, own in agents.items()
        }
        self._readings: list[_Reading] = []
        self._moves: list[MoveRecord] = []
        self._decisions: list[RelocationRecord] = []
        self._end_from_s = scenario.duration_s - scenario.measure_s
        self._delays_s = 0.0
        self._hops = 0
        self._deliveries_count = 0

    def record(self, record: AnyRecord) -> None:
        """Keep what matters here."""
        if isinstance(record, MoveRecord):
            self._moves.append(record)
        elif isinstance(record, RelocationRecord):
            self._decisions.append(record)

    def delivered(self, deliver: Deliver, now_s: float) -> None:
        """A client handed a publication to its application."""
        self._deliveries_count += 1
        self._delays_s += deliver.delay_s
        self._hops += deliver.hops

    def read(self, world: World) -> None:
        """Read the load of every broker."""
        loads = {name: world.load(name) for name in world.brokers}
        counters = [host.broker.counters for host in world.brokers.values()]
        own_count = sum(agent.told_counts.total() for own in self._agents.values() for agent in own)
        kept_bytes = sum(agent.kept_bytes for own in self._agents.values() for agent in own)
        self._readings.append(
            _Reading(
                at_s=world.now_s,
                publications_count=sum(each.publications_in_count for each in counters),
                control_count=sum(each.control_in_count for each in counters) - own_count,
                input_ratios=[load.input_utilization_ratio for load in loads.values()],
                output_ratios=[load.output_utilization_ratio for load in loads.values()],
                memory_bytes=(sum(load.memory_bytes for load in loads.values()) + kept_bytes) / len(loads),
                deliveries_count=self._deliveries_count,
                delays_s=self._delays_s,
                hops=self._hops,
            )
        )

    def summary(self, world: World, seed: int) -> RelocationSummary:
        """What the run showed."""
        scenario, checker = self._scenario, world.checker
        publishing = [each for each in self._readings if each.at_s >= scenario.publish_from_s]
        end = [each for each in publishing if each.at_s >= self._end_from_s]
        first, last = end[0], end[-1]
        over_s = last.at_s - first.at_s
        delivered_count = last.deliveries_count - first.deliveries_count
        received = (last.publications_count - first.publications_count) + (last.control_count - first.control_count)
        whole = publishing[0]
        publications_count = last.publications_count - whole.publications_count
        control_count = last.control_count - whole.control_count
        moved = [move for move in self._moves if move.outcome == "moved"]
        by_publisher: dict[str, int] = {}
        waits: dict[int, list[float]] = {}
        for move in moved:
            by_publisher[move.client] = by_publisher.get(move.client, 0) + 1
            hops = distance(move.from_broker, move.to_broker, scenario.fan_out)
            waits.setdefault(hops, []).append(move.publisher_wait_s)
        agents = [agent for own in self._agents.values() for agent in own]
        said: dict[str, int] = {}
        for agent in agents:
            for kind, count in agent.told_counts.items():
                said[kind] = said.get(kind, 0) + count
        traced_count = sum(agent.traced_count for agent in agents)
        for_tracing_count = sum(count for kind, count in said.items() if not kind.startswith(("echo", "room")))
        details = RelocationDetails(
            workload=scenario.workload,
            spread=scenario.spread,
            threshold=scenario.threshold,
            message_rate_mean_per_s=received / over_s / len(world.brokers) if over_s else 0.0,
            input_ratio_mean=fmean(ratio for each in end for ratio in each.input_ratios),
            output_ratio_mean=fmean(ratio for each in end for ratio in each.output_ratios),
            input_ratio_max=max(ratio for each in publishing for ratio in each.input_ratios),
            delivery_delay_mean_s=(last.delays_s - first.delays_s) / delivered_count if delivered_count else 0.0,
            hops_mean=(last.hops - first.hops) / delivered_count if delivered_count else 0.0,
            overhead_ratio=control_count / (control_count + publications_count) if publications_count else 0.0,
            memory_bytes_mean=fmean(each.memory_bytes for each in publishing),
            selection_time_s=fmean(each.end_s - each.begin_s for each in self._decisions) if self._decisions else None,
            selections_count=len(self._decisions),
            publisher_wait_s={str(hops): fmean(times) for hops, times in sorted(waits.items())},
            moves_per_publisher_max=max(by_publisher.values(), default=0),
            last_move_s=max((move.end_s for move in moved), default=None),
            traced_count=traced_count,
            control_messages=dict(sorted(said.items())),
            messages_per_trace=for_tracing_count / traced_count if traced_count else None,
            series=[_between(*pair, len(world.brokers)) for pair in pairwise(publishing)],
        )
        return Summary(
            scenario=scenario.name,
            kind=scenario.kind,
            seed=seed,
            policy=scenario.policy.name,
            simulated_s=world.now_s,
            brokers=len(world.brokers),
            clients=len(world.clients),
            moves=len(moved),
            violations=checker.violations,
            trace_hash=world.trace.hexdigest(),
            details=details,
            **counted(checker),
        )


def _between(first: _Reading, last: _Reading, brokers_count: int) -> RelocationReading:
    received = (last.publications_count - first.publications_count) + (last.control_count - first.control_count)
    count = last.deliveries_count - first.deliveries_count
    return RelocationReading(
        last.at_s,
        received / (last.at_s - first.at_s) / brokers_count,
        (last.delays_s - first.delays_s) / count if count else None,
        (last.hops - first.hops) / count if count else None,
    )
