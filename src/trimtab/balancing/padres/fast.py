"""Balancing a whole cluster in one plan: input, output and matching delay of all edge-brokers together.

This goes beyond A. Cheung's thesis (2006), where pairs of brokers level one index at a time and wait for the effect
before the next session. It uses the same samples (section 4.1.1) and estimates (sections 4.1.2 to 4.1.5).

All brokers sample the same stretch of time. Unevenness is the sum of the squared distances of the three indices from
their means over the cluster. Again and again the broker that stands out most gives the group of clients, to the broker,
that lowers the unevenness most; what is already on its way counts at its target, and may be passed on from there while
the plan is made. In the plan itself every client moves at most once, and no broker that receives clients is filled
beyond the lower overload threshold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from trimtab.balancing.padres.config import PadresConfig
from trimtab.balancing.padres.decisions import Action, NoAction, Reason
from trimtab.load.estimation import BrokerResources, LoadChange, after_change
from trimtab.load.profiles import Sample, only_once, union

_STEPS_MAX_COUNT: Final = 2_000
"""Each step moves a group; some hundred level a cluster of thousands of clients."""


class Member(msgspec.Struct, frozen=True):
    """An edge-broker: its load, and its sample on the window that all samples share (`on_common_window`)."""

    broker: str
    resources: BrokerResources
    sample: Sample


class ClusterMove(msgspec.Struct, frozen=True):
    """A client to move."""

    client: str
    from_broker: str
    to_broker: str


class ClusterPlan(msgspec.Struct, frozen=True):
    """The clients to move, and what every broker is estimated to carry after that, in the order of the members."""

    moves: tuple[ClusterMove, ...]
    after: tuple[BrokerResources, ...]
    unevenness_before: float
    unevenness_after: float
    stopped: str


def indices(broker: BrokerResources, config: PadresConfig) -> dict[Action, float]:
    """The three indices on one scale: a difference of 0.1 means as much in each."""
    return {
        Action.INPUT: broker.input_utilization_ratio,
        Action.MATCH: broker.matching_delay_s / config.delay_normalization_s,
        Action.OUTPUT: broker.output_utilization_ratio,
    }


def unevenness(brokers: Sequence[BrokerResources], config: PadresConfig) -> float:
    """The sum of the squared distances of all indices from their means."""
    total = 0.0
    for action in Action:
        values = [indices(broker, config)[action] for broker in brokers]
        mean = sum(values) / len(values)
        total += sum((value - mean) ** 2 for value in values)
    return total


class _Group:
    """Clients of one broker that want the same; those that want nothing of the sample are alike whatever they want."""

    def __init__(self, key: object, bits: int, subscription_count: int, output_bytes_per_s: float) -> None:
        self.key = key
        self.bits = bits
        self.subscription_count = subscription_count
        self.output_bytes_per_s = output_bytes_per_s
        self.clients: list[str] = []


class _Trial(msgspec.Struct, frozen=True):
    unevenness: float
    group: _Group
    count: int
    target: int
    donor_after: BrokerResources
    target_after: BrokerResources


class _Cluster:
    def __init__(self, members: Sequence[Member], config: PadresConfig) -> None:
        self.config = config
        self.members = members
        self.loads = [member.resources for member in members]
        self.groups = [_groups(member.sample) for member in members]
        self.origins: dict[str, int] = {}
        self.targets: dict[str, int] = {}

    def received_bits(self, place: int) -> int:
        return union(group.bits for group in self.groups[place].values()) | self.members[place].sample.fixed_bits

    @property
    def moves(self) -> list[ClusterMove]:
        """The moves so far: a client that was passed on moves once, one that came back does not move."""
        return [
            ClusterMove(client, self.members[self.origins[client]].broker, self.members[target].broker)
            for client, target in self.targets.items()
            if target != self.origins[client]
        ]

    def standing_out(self) -> list[int]:
        """The brokers that exceed the mean in some index, the one that exceeds it most first."""
        values = [indices(load, self.config) for load in self.loads]
        means = {action: sum(each[action] for each in values) / len(values) for action in Action}
        excess = [max(each[action] - means[action] for action in Action) for each in values]
        return sorted((place for place in range(len(values)) if excess[place] > 0), key=lambda place: -excess[place])

    def spread(self) -> float:
        """The largest difference between two brokers in any index."""
        values = [indices(load, self.config) for load in self.loads]
        return max(max(each[a] for each in values) - min(each[a] for each in values) for a in Action)

    def best_trial(self, donor: int) -> _Trial | None:
        """The move from a broker that lowers the unevenness most."""
        sample = self.members[donor].sample
        groups = self.groups[donor].values()
        spared = only_once(group.bits for group in groups) & ~sample.fixed_bits
        received = [self.received_bits(place) for place in range(len(self.members))]
        best: _Trial | None = None
        least = unevenness(self.loads, self.config) - 1e-9
        seen: set[tuple[float, ...]] = set()
        for group in groups:
            spared_per_s = sample.rate_per_s(group.bits & spared)
            for target in range(len(self.members)):
                if target == donor:
                    continue
                extra_per_s = sample.rate_per_s(group.bits & ~received[target])
                weight = (
                    target,
                    len(group.clients),
                    group.subscription_count,
                    group.output_bytes_per_s,
                    spared_per_s,
                    extra_per_s,
                )
                if weight in seen:
                    continue
                seen.add(weight)
                for count in _counts(len(group.clients)):
                    trial = self._trial(
                        donor, target, group, count=count, spared_per_s=spared_per_s, extra_per_s=extra_per_s
                    )
                    if trial is not None and trial.unevenness < least:
                        best, least = trial, trial.unevenness
        return best

    def _trial(
        self, donor: int, target: int, group: _Group, *, count: int, spared_per_s: float, extra_per_s: float
    ) -> _Trial | None:
        size_bytes = self.members[donor].sample.mean_size_bytes
        if count < len(group.clients):
            spared_per_s = 0.0
        subscription_count = count * group.subscription_count
        output_bytes_per_s = count * group.output_bytes_per_s
        target_after = after_change(
            self.loads[target],
            LoadChange(subscription_count, extra_per_s, extra_per_s * size_bytes, output_bytes_per_s),
        )
        if target_after.highest_utilization_ratio >= self.config.lower_overload_ratio:
            return None
        donor_after = after_change(
            self.loads[donor],
            LoadChange(-subscription_count, -spared_per_s, -spared_per_s * size_bytes, -output_bytes_per_s),
        )
        loads = list(self.loads)
        loads[donor], loads[target] = donor_after, target_after
        return _Trial(unevenness(loads, self.config), group, count, target, donor_after, target_after)

    def carry_out(self, donor: int, trial: _Trial) -> None:
        group, target = trial.group, trial.target
        moving, group.clients[:] = group.clients[: trial.count], group.clients[trial.count :]
        if not group.clients:
            del self.groups[donor][group.key]
        joined = self.groups[target].setdefault(
            group.key, _Group(group.key, group.bits, group.subscription_count, group.output_bytes_per_s)
        )
        joined.clients.extend(moving)
        self.loads[donor], self.loads[target] = trial.donor_after, trial.target_after
        for client in moving:
            self.origins.setdefault(client, donor)
            self.targets[client] = target


def _groups(sample: Sample) -> dict[object, _Group]:
    groups: dict[object, _Group] = {}
    for client in sample.clients:
        key = frozenset(client.filters) if client.bits else len(client.filters)
        if key not in groups:
            groups[key] = _Group(key, client.bits, len(client.filters), sample.bandwidth_bytes_per_s(client.bits))
        groups[key].bits |= client.bits
        groups[key].clients.append(client.client)
    return groups


def _counts(client_count: int) -> Iterator[int]:
    """1, 2, 4 ... and all."""
    count = 1
    while count < client_count:
        yield count
        count *= 2
    yield client_count


def plan_cluster(members: Sequence[Member], config: PadresConfig) -> ClusterPlan | NoAction:
    """Which clients to move where, so that all brokers of a cluster carry the same share of what they can."""
    if len(members) < 2:
        return NoAction(Reason.NOBODY_KNOWN)
    if len({member.sample.publications for member in members}) > 1:
        raise ValueError("the samples must be laid on a common window first")
    cluster = _Cluster(members, config)
    before = unevenness(cluster.loads, config)
    close_enough = min(config.local_ratio_threshold, config.local_delay_threshold) / 4
    for _step in range(_STEPS_MAX_COUNT):
        if cluster.spread() < close_enough:
            stopped = "all indices are close together"
            break
        found = next(
            ((donor, trial) for donor in cluster.standing_out() if (trial := cluster.best_trial(donor)) is not None),
            None,
        )
        if found is None:
            stopped = "no move makes the cluster more even"
            break
        cluster.carry_out(*found)
    else:
        stopped = "as many steps as one plan takes"
    if not cluster.moves:
        return NoAction(Reason.NOTHING_HELPS, stopped)
    return ClusterPlan(tuple(cluster.moves), tuple(cluster.loads), before, unevenness(cluster.loads, config), stopped)
