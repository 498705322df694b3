"""Groups: subscribers who share back-end subscriptions move together, so that what they share is fetched once.

Source: the future work of Nguyen, Uddin, Venkatasubramanian, multistage adaptive load balancing (clustering
subscribers into groups by shared subscriptions, and moving groups). The paper names the aim; what follows is ours.

1. The most loaded broker's subscribers are put into groups: around a heavy one those gather who add least to what the
   group fetches, up to a load that fits elsewhere.
2. Of all its groups and all other brokers the pair is taken that lowers the total load most (what the source need not
   fetch any more, less what the target must fetch in addition), as long as the target stays below the mean and the
   larger of the two loads falls. Then the loads are known anew.
3. What is left uneven is levelled subscriber by subscriber, to the most similar broker, then to the least loaded.
4. The few who share a subscription at a broker go together to another one that has room, if the total load falls by
   enough to be worth the moves; what is uneven then is levelled again. This counts only if the largest load falls.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from trimtab.policies.multistage.config import MultistageConfig
from trimtab.policies.multistage.instance import Instance, Places
from trimtab.policies.multistage.ldm import least_loaded
from trimtab.policies.multistage.load import broker_loads
from trimtab.policies.multistage.migration import SAME_RATIO, migrate
from trimtab.policies.multistage.sdm import most_similar
from trimtab.policies.multistage.standing import Standing

_GATHERINGS_MAX_COUNT: Final = 8
"""Gathering is repeated at most so often; each finds less than the one before."""

_ROOM_RATIO: Final = 0.05
"""While groups gather a broker may be above the mean by this share; levelling follows."""


def plan_groups(instance: Instance, assignment: Places, brokers_count: int, config: MultistageConfig) -> Places:
    """Who is to be where.

    >>> crowd = Instance.of([[0, 1], [2, 3], [0, 1], [2, 3]], [400.0] * 4)
    >>> plan_groups(crowd, np.zeros(4, dtype=np.int64), 2, MultistageConfig(group_load_ratio=1.0)).tolist()
    [1, 0, 1, 0]
    """
    level = msgspec.structs.replace(config, migrate_cov=config.groups_cov / 2, idle_load_bytes_per_s=0.0)
    present = _levelled(instance, _move_groups(instance, assignment, brokers_count, level), brokers_count, level)
    least = float(broker_loads(instance, present, brokers_count).max())
    for _ in range(_GATHERINGS_MAX_COUNT):
        gathered = _levelled(instance, _gather(instance, present, brokers_count, level), brokers_count, level)
        largest = float(broker_loads(instance, gathered, brokers_count).max())
        if largest >= least:
            break
        present, least = gathered, largest
    return present


def _levelled(instance: Instance, assignment: Places, brokers_count: int, config: MultistageConfig) -> Places:
    similar = migrate(instance, assignment, brokers_count, config, most_similar).assignment
    return migrate(instance, similar, brokers_count, config, least_loaded).assignment


# ---- groups ----


def group(instance: Instance, subscribers: Places, load_max_bytes_per_s: float) -> list[Places]:
    """Groups of subscribers with much in common, each with a limit of what it is sent and fetches.

    >>> [each.tolist() for each in group(Instance.of([[0], [1], [0]], [2.0, 1.0]), np.arange(3), 100.0)]
    [[0, 2], [1]]
    """
    part = instance.part(subscribers)
    own_loads = part.own_loads_bytes_per_s
    is_free = np.ones(part.subscribers_count, dtype=np.bool_)
    groups: list[Places] = []
    for seed in np.argsort(-own_loads, kind="stable").tolist():
        if is_free[seed]:
            members = _grown(part, seed, is_free, load_max_bytes_per_s)
            is_free[members] = False
            groups.append(subscribers[members])
    return groups


def _grown(part: Instance, seed: int, is_free: npt.NDArray[np.bool_], load_max_bytes_per_s: float) -> Places:
    """A group around a subscriber: in steps, each at most as many as are in it, those who fit it best."""
    own_loads = part.own_loads_bytes_per_s
    rates = part.rates_bytes_per_s.copy()
    members = [seed]
    is_open = is_free & (own_loads > 0)
    is_open[seed] = False
    load = 2 * float(own_loads[seed])
    rates[part.of_subscriber(seed)] = 0.0
    while is_open.any():
        places = np.flatnonzero(is_open)
        missing = part.sums(rates)[places]
        fitting = places[np.argsort(missing / own_loads[places], kind="stable")[: len(members)]]
        for each in fitting.tolist():
            wanted = part.of_subscriber(each)
            more = float(own_loads[each] + rates[wanted].sum())
            if more >= own_loads[each] * 2 * (1 - SAME_RATIO) or load + more > load_max_bytes_per_s:
                return np.array(members, dtype=np.int64)
            members.append(each)
            is_open[each] = False
            load += more
            rates[wanted] = 0.0
    return np.array(members, dtype=np.int64)


class _Groups:
    """The groups of one broker, as arrays: what each wants, and how often."""

    def __init__(self, instance: Instance, groups: list[Places]) -> None:
        self.groups = groups
        self.counts = np.zeros((len(groups), instance.subscriptions_count))
        self.sent = np.zeros(len(groups))
        for number, members in enumerate(groups):
            part = instance.part(members)
            self.counts[number] = part.subscribers_by_subscription_count
            self.sent[number] = part.own_loads_bytes_per_s.sum()

    def take(self, number: int) -> Places:
        """A group that leaves."""
        members = self.groups.pop(number)
        self.counts = np.delete(self.counts, number, axis=0)
        self.sent = np.delete(self.sent, number)
        return members


def _move_groups(instance: Instance, assignment: Places, brokers_count: int, config: MultistageConfig) -> Places:
    standing = Standing(instance, assignment, brokers_count)
    rates = instance.rates_bytes_per_s
    known: dict[int, _Groups] = {}
    while standing.cov > config.migrate_cov:
        source = int(np.argmax(standing.loads))
        if standing.loads[source] < standing.mean * (1 + config.group_load_ratio):
            break  # no group fits between
        if source not in known:
            members = np.flatnonzero(standing.assignment() == source)
            most = config.group_load_ratio * standing.mean
            known[source] = _Groups(instance, group(instance, members, most))
        ours = known[source]
        counts = standing.counts_of(source)
        released = ((ours.counts == counts) & (ours.counts > 0)) @ rates
        added = ((ours.counts > 0) * rates) @ (1 - standing.held)
        after_target = standing.loads + ours.sent[:, None] + added
        fits = (after_target <= standing.mean) & (ours.sent[:, None] > 0)
        fits[:, source] = False
        if not fits.any():
            break
        saved = np.where(fits, (released[:, None] - added) / np.where(ours.sent > 0, ours.sent, 1.0)[:, None], -np.inf)
        number, target = divmod(int(np.argmax(saved)), brokers_count)
        known.pop(target, None)
        for subscriber in ours.take(number).tolist():
            standing.move(subscriber, source, target)
    return standing.assignment()


# ---- gathering ----


def _gather(instance: Instance, assignment: Places, brokers_count: int, config: MultistageConfig) -> Places:
    """Those who share a subscription leave a broker if that saves enough."""
    standing = Standing(instance, assignment, brokers_count)
    cells = assignment[instance.owners] * instance.subscriptions_count + instance.subscriptions
    weights = instance.own_loads_bytes_per_s[instance.owners]
    sent = np.bincount(cells, weights=weights, minlength=brokers_count * instance.subscriptions_count)
    sent = sent.reshape(brokers_count, instance.subscriptions_count)
    brokers, subscriptions = np.nonzero((sent > 0) & (instance.rates_bytes_per_s > config.gather_ratio * sent))
    saved_ratio = instance.rates_bytes_per_s[subscriptions] / sent[brokers, subscriptions]
    wanting = np.argsort(instance.subscriptions, kind="stable")
    ends = np.cumsum(instance.subscribers_by_subscription_count)
    for place in np.argsort(-saved_ratio, kind="stable").tolist():
        source, subscription = int(brokers[place]), int(subscriptions[place])
        begin = int(ends[subscription - 1]) if subscription else 0
        everyone = instance.owners[wanting[begin : int(ends[subscription])]].tolist()
        members = [each for each in everyone if standing.broker_of(each) == source]
        target = _better_place(standing, members, source, config.gather_ratio) if members else None
        if target is not None:
            for each in members:
                standing.move(each, source, target)
    return standing.assignment()


def _better_place(standing: Standing, members: list[int], source: int, worth_ratio: float) -> int | None:
    """The broker below the largest load where a group saves most, if that is worth the moves."""
    instance = standing.instance
    together = np.concatenate([instance.of_subscriber(each) for each in members])
    wanted, counts = np.unique(together, return_counts=True)
    rates = instance.rates_bytes_per_s[wanted]
    sent = float(instance.own_loads_bytes_per_s[members].sum())
    released = float(rates[standing.counts_of_some(source, wanted) == counts].sum())
    if released <= worth_ratio * sent:
        return None
    added = rates @ (1 - standing.held[wanted])
    added[standing.loads + sent + added >= standing.mean * (1 + _ROOM_RATIO)] = np.inf
    added[source] = np.inf
    target = int(np.argmin(added))
    return target if released - added[target] > worth_ratio * sent else None
