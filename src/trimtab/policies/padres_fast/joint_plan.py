"""Balancing many brokers in one plan: input, output and matching delay of all of them together.

This goes beyond A. Cheung's thesis (2006), where pairs of brokers level one index at a time and wait for the effect
before the next session. It uses the same samples (section 4.1.1) and estimates (sections 4.1.2 to 4.1.5).

All brokers sample the same stretch of time. Unevenness is the sum of the squared distances of the three indices from
their means over the brokers. Again and again the broker that stands out most gives the group of clients, to the broker,
that lowers the unevenness most; what is already on its way counts at its target, and may be passed on from there while
the plan is made. In the plan itself every client moves at most once, and no broker that receives clients is filled
beyond the lower overload threshold.

A step looks at some groups of the broker that gives, in turn, and at all of them only if none of those helps. So a plan
for thousands of clients takes a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from trimtab.load.estimation import BrokerResources, LoadChange, after_change
from trimtab.load.profiles import Sample, only_once, union
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction, Reason

_STEPS_MAX_COUNT: Final = 4_000
"""Each step moves a group; some hundred to a thousand level a cluster of thousands of clients."""

_GROUPS_PER_STEP_COUNT: Final = 40
"""Groups of a broker that one step looks at: with so many, one that fits well is among them."""

_AGAIN_COST: Final = 3e-5
"""By how much the unevenness must fall for each client that was moved before, where brokers differ by the threshold
or more: about what moving one client changes when brokers are 0.01 apart."""


class Member(msgspec.Struct, frozen=True):
    """An edge-broker: its load, and its sample on the window that all samples share (`on_common_window`)."""

    broker: str
    resources: BrokerResources
    sample: Sample
    moved_before: frozenset[str] = frozenset()
    """Clients that an earlier plan moved; they move again only if that helps clearly."""

    room_count: int | None = None
    """How many clients it may receive; None if only its load limits that."""


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


def indices(broker: BrokerResources, config: PadresConfig) -> dict[LoadIndex, float]:
    """The three indices on one scale: a difference of 0.1 means as much in each."""
    return {
        LoadIndex.INPUT: broker.input_utilization_ratio,
        LoadIndex.MATCH: broker.matching_delay_s / config.delay_normalization_s,
        LoadIndex.OUTPUT: broker.output_utilization_ratio,
    }


def unevenness(brokers: Sequence[BrokerResources], config: PadresConfig) -> float:
    """The sum of the squared distances of all indices from their means."""
    total = 0.0
    for action in LoadIndex:
        values = [indices(broker, config)[action] for broker in brokers]
        mean = sum(values) / len(values)
        total += sum((value - mean) ** 2 for value in values)
    return total


def spread(brokers: Sequence[BrokerResources], config: PadresConfig) -> float:
    """The largest difference between two brokers in any index."""
    values = [indices(broker, config) for broker in brokers]
    return max(max(each[action] for each in values) - min(each[action] for each in values) for action in LoadIndex)


class _Group:
    """Clients of one broker that want the same; those that want nothing of the sample are alike whatever they want."""

    def __init__(
        self, key: object, bits: int, subscription_count: int, output_bytes_per_s: float, *, again: bool
    ) -> None:
        self.key = key
        self.bits = bits
        self.subscription_count = subscription_count
        self.output_bytes_per_s = output_bytes_per_s
        self.again = again
        self.clients: list[str] = []


class _Trial(msgspec.Struct, frozen=True):
    """Moving some clients of a group: what it would cost, and what would change at both brokers."""

    cost: float
    group: _Group
    count: int
    target: int
    spared_per_s: float
    extra_per_s: float


class _Target:
    """A broker while a plan is made: the estimates of `load/estimation.py` as plain numbers."""

    def __init__(self, member: Member, config: PadresConfig) -> None:
        before = member.resources
        self.before = before
        self.sample = member.sample
        self.room_count = member.room_count
        self.groups = _groups(member)
        self.turn = 0
        self.change = LoadChange()
        self.received_bits = union(group.bits for group in self.groups.values()) | member.sample.fixed_bits
        self._normalization_s = config.delay_normalization_s
        self.slope_s = before.matching_delay_slope_s
        if self.slope_s is None:
            count = before.subscription_count
            self.slope_s = before.matching_delay_s / count if count > 0 else 0.0
        self.indices = self.after(0, 0.0, 0.0)

    def after(
        self, subscription_count: int, input_rate_per_s: float, output_bytes_per_s: float
    ) -> tuple[float, float, float]:
        """Input ratio, matching delay on the scale of ratios, and output ratio after one more change."""
        before, change = self.before, self.change
        assert self.slope_s is not None
        delay_s = before.matching_delay_s + self.slope_s * (change.subscription_count + subscription_count)
        delay_s = max(delay_s, 0.0)
        rate_per_s = max(before.input_rate_per_s + change.input_rate_per_s + input_rate_per_s, 0.0)
        output_bytes_per_s += before.output_rate_bytes_per_s + change.output_rate_bytes_per_s
        return (
            rate_per_s * delay_s,
            delay_s / self._normalization_s,
            max(output_bytes_per_s, 0.0) / before.bandwidth_bytes_per_s,
        )

    def bears(self, change: LoadChange, limit_ratio: float) -> bool:
        """Whether the broker stays below the limit in all four utilisations."""
        return after_change(self.before, self.change + change).highest_utilization_ratio < limit_ratio

    def candidates(self, *, all_groups: bool) -> list[_Group]:
        """The groups whose turn it is, those that were never moved first."""
        groups = list(self.groups.values())
        if all_groups or len(groups) <= _GROUPS_PER_STEP_COUNT:
            return groups
        fresh = [group for group in groups if not group.again]
        pool = fresh if len(fresh) >= _GROUPS_PER_STEP_COUNT else groups
        begin = self.turn % len(pool)
        self.turn += _GROUPS_PER_STEP_COUNT
        return (pool[begin:] + pool[:begin])[:_GROUPS_PER_STEP_COUNT]


class _Cluster:
    def __init__(self, members: Sequence[Member], config: PadresConfig) -> None:
        self.config = config
        self.names = [member.broker for member in members]
        self.places = [_Target(member, config) for member in members]
        self.origins: dict[str, int] = {}
        self.targets: dict[str, int] = {}

    @property
    def moves(self) -> list[ClusterMove]:
        """The moves so far: a client that was passed on moves once, one that came back does not move."""
        return [
            ClusterMove(client, self.names[self.origins[client]], self.names[target])
            for client, target in self.targets.items()
            if target != self.origins[client]
        ]

    def after(self) -> list[BrokerResources]:
        """All brokers with the plan carried out."""
        return [after_change(place.before, place.change) for place in self.places]

    def standing_out(self) -> list[int]:
        """The brokers that exceed the mean in some index, the one that exceeds it most first."""
        count = len(self.places)
        means = [sum(place.indices[index] for place in self.places) / count for index in range(3)]
        excess = [max(place.indices[index] - means[index] for index in range(3)) for place in self.places]
        return sorted((number for number in range(count) if excess[number] > 0), key=lambda number: -excess[number])

    def spread(self) -> float:
        """The largest difference between two brokers in any index."""
        return max(
            max(place.indices[index] for place in self.places) - min(place.indices[index] for place in self.places)
            for index in range(3)
        )

    def unevenness(self) -> float:
        """The sum of the squared distances of all indices from their means."""
        total = 0.0
        for index in range(3):
            values = [place.indices[index] for place in self.places]
            total += sum(value * value for value in values) - sum(values) ** 2 / len(values)
        return total

    def again_cost(self) -> float:
        """By how much the unevenness must fall for each client that moves again: the more, the closer together the
        brokers are, so that an almost level cluster is left alone."""
        threshold = min(self.config.local_ratio_threshold, self.config.local_delay_threshold)
        return _AGAIN_COST * max(threshold / max(self.spread(), 1e-6), 1.0)

    def best_trial(self, donor: int, *, all_groups: bool) -> _Trial | None:
        """The move from a broker that lowers the unevenness most."""
        place = self.places[donor]
        sample = place.sample
        spared = only_once(group.bits for group in place.groups.values()) & ~sample.fixed_bits
        trials: list[_Trial] = []
        now = self.unevenness()
        again_cost = self.again_cost()
        seen: set[tuple[object, ...]] = set()
        open_targets = [number for number, each in enumerate(self.places) if number != donor and each.room_count != 0]
        for group in place.candidates(all_groups=all_groups):
            spared_per_s = sample.rate_per_s(group.bits & spared)
            for target in open_targets:
                extra_per_s = sample.rate_per_s(group.bits & ~self.places[target].received_bits)
                weight = (
                    target,
                    len(group.clients),
                    group.subscription_count,
                    group.output_bytes_per_s,
                    spared_per_s,
                    extra_per_s,
                    group.again,
                )
                if weight in seen:
                    continue
                seen.add(weight)
                room_count = self.places[target].room_count
                for count in _counts(len(group.clients), room_count):
                    given_up_per_s = spared_per_s if count == len(group.clients) else 0.0
                    cost = self._cost(
                        donor, target, group, count=count, spared_per_s=given_up_per_s, extra_per_s=extra_per_s
                    )
                    cost += again_cost * count if group.again else 0.0
                    if cost < now - 1e-9:
                        trials.append(_Trial(cost, group, count, target, given_up_per_s, extra_per_s))
        trials.sort(key=lambda trial: trial.cost)
        size_bytes = sample.mean_size_bytes
        for trial in trials:
            change = _change(trial, size_bytes)
            if self.places[trial.target].bears(change, self.config.lower_overload_ratio):
                return trial
        return None

    def _cost(
        self, donor: int, target: int, group: _Group, *, count: int, spared_per_s: float, extra_per_s: float
    ) -> float:
        """The unevenness after a move."""
        subscription_count = count * group.subscription_count
        output_bytes_per_s = count * group.output_bytes_per_s
        donor_after = self.places[donor].after(-subscription_count, -spared_per_s, -output_bytes_per_s)
        target_after = self.places[target].after(subscription_count, extra_per_s, output_bytes_per_s)
        total = 0.0
        places = self.places
        for index in range(3):
            values = [place.indices[index] for place in places]
            values[donor], values[target] = donor_after[index], target_after[index]
            total += sum([value * value for value in values]) - sum(values) ** 2 / len(values)
        return total

    def carry_out(self, donor: int, trial: _Trial) -> None:
        """Count a move as made."""
        group, target = trial.group, trial.target
        giver, taker = self.places[donor], self.places[target]
        change = _change(trial, giver.sample.mean_size_bytes)
        moving, group.clients[:] = group.clients[: trial.count], group.clients[trial.count :]
        if not group.clients:
            del giver.groups[group.key]
            giver.received_bits = union(each.bits for each in giver.groups.values()) | giver.sample.fixed_bits
        joined = taker.groups.setdefault(
            group.key,
            _Group(group.key, group.bits, group.subscription_count, group.output_bytes_per_s, again=group.again),
        )
        joined.clients.extend(moving)
        taker.received_bits |= group.bits
        if taker.room_count is not None:
            taker.room_count -= trial.count
        size_bytes = giver.sample.mean_size_bytes
        giver.change += LoadChange(
            -change.subscription_count,
            -trial.spared_per_s,
            -trial.spared_per_s * size_bytes,
            -change.output_rate_bytes_per_s,
        )
        taker.change += change
        giver.indices = giver.after(0, 0.0, 0.0)
        taker.indices = taker.after(0, 0.0, 0.0)
        for client in moving:
            self.origins.setdefault(client, donor)
            self.targets[client] = target


def _change(trial: _Trial, size_bytes: float) -> LoadChange:
    """What comes to the broker that receives."""
    return LoadChange(
        trial.count * trial.group.subscription_count,
        trial.extra_per_s,
        trial.extra_per_s * size_bytes,
        trial.count * trial.group.output_bytes_per_s,
    )


def _groups(member: Member) -> dict[object, _Group]:
    groups: dict[object, _Group] = {}
    sample = member.sample
    for client in sample.clients:
        again = client.client in member.moved_before
        key = (again, frozenset(client.filters) if client.bits else len(client.filters))
        if key not in groups:
            bandwidth = sample.bandwidth_bytes_per_s(client.bits)
            groups[key] = _Group(key, client.bits, len(client.filters), bandwidth, again=again)
        groups[key].bits |= client.bits
        groups[key].clients.append(client.client)
    return groups


def _counts(client_count: int, room_count: int | None) -> Iterator[int]:
    """1, 2, 4 ... and all, as far as there is room."""
    most = client_count if room_count is None else min(client_count, room_count)
    count = 1
    while count < most:
        yield count
        count *= 2
    yield most


def plan_cluster(
    members: Sequence[Member], config: PadresConfig, *, close_enough: float | None = None
) -> ClusterPlan | NoAction:
    """Which clients to move where, so that all brokers carry the same share of what they can.

    Brokers whose indices differ by less than `close_enough`, a quarter of the threshold that triggers unless given, are
    left as they are.
    """
    if len(members) < 2:
        return NoAction(Reason.NOBODY_KNOWN)
    if len({member.sample.publications for member in members}) > 1:
        raise ValueError("the samples must be laid on a common window first")
    cluster = _Cluster(members, config)
    before = cluster.unevenness()
    if close_enough is None:
        close_enough = min(config.local_ratio_threshold, config.local_delay_threshold) / 4
    for _step in range(_STEPS_MAX_COUNT):
        if cluster.spread() < close_enough:
            stopped = "all indices are close together"
            break
        found = _find_step(cluster)
        if found is None:
            stopped = "no move makes the cluster more even"
            break
        cluster.carry_out(*found)
    else:
        stopped = "as many steps as one plan takes"
    if not cluster.moves:
        return NoAction(Reason.NOTHING_HELPS, stopped)
    return ClusterPlan(tuple(cluster.moves), tuple(cluster.after()), before, cluster.unevenness(), stopped)


def _find_step(cluster: _Cluster) -> tuple[int, _Trial] | None:
    """The next move: from the broker that stands out most, or from the next one if it has nothing to give."""
    donors = cluster.standing_out()
    for all_groups in (False, True):
        for donor in donors:
            trial = cluster.best_trial(donor, all_groups=all_groups)
            if trial is not None:
                return donor, trial
    return None
