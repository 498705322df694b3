"""An overloaded cluster-head gives publishers to heads with less load.

Source: R. Tao, S. Poslad, J. Bigham (2013), sections IV.C.2 (groups of publishers) and IV.D.

Heads tell each other how loaded their two links are. One that is overloaded looks at what its publishers send and
where that goes, takes them in the order of their groups, and has as many go on publishing at another head (by the
migration of `relocation`) as end the overload, as long as they overload nobody there.

Deviations:
- A publisher relieves the downlink only if nobody in this cluster hears it, and the uplink only by what goes to other
  clusters: otherwise its publications come back, or still go to the same edges. One that relieves nothing stays.
- Within a group the one that relieves most goes first; the paper orders subscribers by how long they may wait, which
  publishers do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trimtab.policies.api import AgentAction, AgentHost, Listen, RelocatePublisher, Tell, Unlisten
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.messages import HEADS, EdgeLoad, HeadLoad, filter_for, to_values
from trimtab.policies.delay.metrics import HeadMetrics, Metric, State, head_overload, head_state
from trimtab.policies.delay.priorities import PUBLISHER_ORDER, Locality, reach_of


class PublisherLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a publisher costs its head."""

    publisher: str
    input_bytes_per_s: float
    remote_bytes_per_s: float
    """What is sent to other heads for it."""
    reach: Locality


class HeadCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A head that may take publishers."""

    name: str
    metrics: HeadMetrics
    bandwidth_bytes_per_s: float
    """Up."""
    downlink_bytes_per_s: float

    def with_publisher(self, load: PublisherLoad) -> HeadCandidate:
        """The same with one more publisher, whose publications it may have to send back to where they came from."""
        metrics = HeadMetrics(
            self.metrics.downlink_ratio + load.input_bytes_per_s / self.downlink_bytes_per_s,
            self.metrics.uplink_ratio + load.input_bytes_per_s / self.bandwidth_bytes_per_s,
        )
        return msgspec.structs.replace(self, metrics=metrics)


def relief_bytes_per_s(load: PublisherLoad, metric: Metric) -> float:
    """By how much a head's link is relieved if a publisher goes elsewhere.

    >>> heard_here = PublisherLoad(publisher="p", input_bytes_per_s=5.0, remote_bytes_per_s=3.0, reach=Locality.BOTH)
    >>> relief_bytes_per_s(heard_here, Metric.DOWNLINK), relief_bytes_per_s(heard_here, Metric.UPLINK)
    (0.0, 3.0)
    """
    if metric is Metric.UPLINK:
        return load.remote_bytes_per_s
    return load.input_bytes_per_s if load.reach in (Locality.NONE, Locality.REMOTE) else 0.0


def plan_publishers(  # noqa: PLR0917 (an overload, who is there, and where to)
    metric: Metric,
    ours: HeadMetrics,
    bandwidth_bytes_per_s: float,
    loads: Sequence[PublisherLoad],
    candidates: Sequence[HeadCandidate],
    config: DelayConfig,
) -> dict[str, str]:
    """Which publishers go to which heads, until the overload is over."""
    ratio = ours.uplink_ratio if metric is Metric.UPLINK else ours.downlink_ratio
    excess_bytes_per_s = (ratio - config.high_ratio) * bandwidth_bytes_per_s
    order = PUBLISHER_ORDER[metric]
    room = {candidate.name: candidate for candidate in candidates}
    chosen: dict[str, str] = {}
    for load in sorted(loads, key=lambda each: (order[each.reach], -relief_bytes_per_s(each, metric))):
        relief = relief_bytes_per_s(load, metric)
        if excess_bytes_per_s <= 0:
            break
        fitting = [after for each in room.values() if _bears(after := each.with_publisher(load), config)]
        if relief <= 0 or not fitting:
            continue
        after = min(fitting, key=lambda each: _ratio(each.metrics, metric))
        room[after.name] = after
        chosen[load.publisher] = after.name
        excess_bytes_per_s -= relief
    return chosen


def _ratio(metrics: HeadMetrics, metric: Metric) -> float:
    return metrics.uplink_ratio if metric is Metric.UPLINK else metrics.downlink_ratio


def _bears(candidate: HeadCandidate, config: DelayConfig) -> bool:
    return head_overload(candidate.metrics, config) is None


class _Seen(msgspec.Struct):
    """What was seen of a publisher."""

    input_bytes: float = 0.0
    remote_bytes: float = 0.0
    has_local: bool = False
    has_remote: bool = False


class PublisherOffload:
    """The part of a head that looks after its own load."""

    def __init__(self, host: AgentHost, config: DelayConfig, now_s: float) -> None:
        self._host = host
        self._config = config
        self._heads: dict[str, tuple[HeadLoad, float]] = {}
        self._overloaded_count = 0
        self._next_read_s = now_s + config.read_every_s
        self._next_tell_s = now_s + config.tell_every_s
        self._settles_until_s = now_s
        self._sampled_from_s: float | None = None
        self._metric = Metric.UPLINK
        self._seen: dict[str, _Seen] = {}
        self._plans_count = 0
        self.decision = ""
        """What was decided last; empty if nothing was."""

    @property
    def observes(self) -> bool:
        """Whether publications are looked at."""
        return self._sampled_from_s is not None

    def begin(self) -> list[AgentAction]:
        """Listen to other heads."""
        return [Listen("heads", filter_for(HEADS))]

    def end(self) -> list[AgentAction]:
        """The broker is no head any more."""
        return [Unlisten("heads")]

    def wake_at_s(self) -> float:
        """When something is to be done next."""
        sampled_s = self._sampled_from_s
        sample_ends_s = [] if sampled_s is None else [sampled_s + self._config.sample_timeout_s]
        return min(self._next_read_s, self._next_tell_s, *sample_ends_s)

    def heard(self, sender: str, load: HeadLoad, now_s: float) -> None:
        """A head tells its load."""
        if sender != self._host.name:
            self._heads[sender] = (load, now_s)

    def free_edges(self, now_s: float) -> dict[str, EdgeLoad]:
        """Edge-brokers of other clusters that could take subscribers."""
        fresh = [load for load, heard_s in self._heads.values() if now_s - heard_s < self._config.believed_s]
        return {name: edge for load in fresh for name, edge in load.edges.items()}

    def other_heads(self, now_s: float) -> list[str]:
        """Heads that were heard of lately."""
        return [name for name, (_, heard_s) in self._heads.items() if now_s - heard_s < self._config.believed_s]

    @property
    def knows_others(self) -> bool:
        """Whether there are other clusters."""
        return bool(self._heads)

    def woken(self, metrics: HeadMetrics, edges: Mapping[str, EdgeLoad], now_s: float) -> list[AgentAction]:
        """Tell the own load and what the edge-brokers of this cluster told, and see whether it is too much."""
        config, actions = self._config, list[AgentAction]()
        if now_s >= self._next_tell_s:
            self._next_tell_s = now_s + config.tell_every_s
            free = {
                name: msgspec.structs.replace(load, filters=())
                for name, load in edges.items()
                if load.state is State.LOW and not load.is_busy
            }
            state, capacity = head_state(metrics, config), self._host.capacity()
            load = HeadLoad(metrics=metrics, state=state, capacity=capacity, edges=free)
            actions.append(Tell(to_values(load, self._host.name, HEADS)))
        if self._sampled_from_s is not None:
            if now_s >= self._sampled_from_s + config.sample_timeout_s:
                actions += self._plan(metrics, now_s - self._sampled_from_s, now_s)
        elif now_s >= self._next_read_s:
            self._next_read_s = now_s + config.read_every_s
            self._read(metrics, now_s)
        return actions

    def _read(self, metrics: HeadMetrics, now_s: float) -> None:
        metric = head_overload(metrics, self._config)
        self._overloaded_count = 0 if metric is None else self._overloaded_count + 1
        if metric is None or self._overloaded_count < self._config.overloaded_readings_count:
            return
        if now_s >= self._settles_until_s and self._host.publishers():
            self._metric, self._sampled_from_s, self._seen = metric, now_s, {}

    def matched(self, publisher: str, size_bytes: float, hops: Sequence[str], edges: Mapping[str, object]) -> None:
        """A publication was matched while publications are looked at."""
        if self._sampled_from_s is None or publisher not in self._host.publishers():
            return
        seen = self._seen.setdefault(publisher, _Seen())
        remote_count = sum(hop in self._host.neighbours() and hop not in edges for hop in hops)
        seen.input_bytes += size_bytes
        seen.remote_bytes += remote_count * size_bytes
        seen.has_remote |= remote_count > 0
        seen.has_local |= len(hops) > remote_count

    def _plan(self, metrics: HeadMetrics, sampled_s: float, now_s: float) -> list[AgentAction]:
        self._sampled_from_s = None
        self._overloaded_count = 0
        self._settles_until_s = now_s + self._config.settle_s
        loads = [
            PublisherLoad(
                publisher=publisher,
                input_bytes_per_s=seen.input_bytes / sampled_s,
                remote_bytes_per_s=seen.remote_bytes / sampled_s,
                reach=reach_of(has_local=seen.has_local, has_remote=seen.has_remote),
            )
            for publisher, seen in self._seen.items()
        ]
        candidates = [
            HeadCandidate(
                name=name,
                metrics=load.metrics,
                bandwidth_bytes_per_s=load.capacity.bandwidth_bytes_per_s,
                downlink_bytes_per_s=load.capacity.receivable_bytes_per_s,
            )
            for name, (load, heard_s) in self._heads.items()
            if load.state is State.LOW and now_s - heard_s < self._config.believed_s
        ]
        capacity = self._host.capacity()
        is_uplink = self._metric is Metric.UPLINK
        bandwidth_bytes_per_s = capacity.bandwidth_bytes_per_s if is_uplink else capacity.receivable_bytes_per_s
        chosen = plan_publishers(self._metric, metrics, bandwidth_bytes_per_s, loads, candidates, self._config)
        reason = f"overloaded in {self._metric.value} ({_ratio(metrics, self._metric):.0%})"
        if not chosen:
            why = "no publisher would relieve it" if candidates else "no other head is in a low load state"
            self.decision = f"{reason}; {why}"
            return []
        self._plans_count += 1
        cause = f"{self._host.name}/publishers{self._plans_count}"
        self.decision = f"{reason}; gives {', '.join(f'{name} to {head}' for name, head in chosen.items())}"
        return [RelocatePublisher(publisher, head, cause) for publisher, head in chosen.items()]
