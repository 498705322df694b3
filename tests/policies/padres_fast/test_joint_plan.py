"""Balancing a whole cluster in one plan."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.padres.stocks import Quotes, clients
from trimtab import Filter
from trimtab.load.estimation import BrokerResources
from trimtab.load.profiles import ClientProfile, Sample, on_common_window
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import NoAction, Reason
from trimtab.policies.padres_fast.joint_plan import ClusterPlan, Member, plan_cluster, unevenness

SYMBOLS = [f"S{number}" for number in range(10)]
CONFIG = PadresConfig()
Served = dict[str, tuple[Filter, ...]]


class Cluster:
    """Edge-brokers with random clients and capacities, and the plan for all of them."""

    def __init__(self, seed: int, client_count: int = 60, capacities: tuple[float, ...] = (100, 200, 400)) -> None:
        rng = Random(seed)
        self.quotes = Quotes(rng, SYMBOLS, count=50, rate_per_s=20.0)
        self.capacities = [(mhz, mhz * 400) for mhz in capacities]
        self.served: list[Served] = [clients(rng, "b0-", client_count, SYMBOLS)]
        self.served += [clients(rng, f"b{number}-", rng.randrange(5), SYMBOLS) for number in range(1, len(capacities))]
        self.before = [self.resources(place, served) for place, served in enumerate(self.served)]
        samples = on_common_window([self.quotes.sample(served, {}) for served in self.served])
        members = zip(self.before, samples, strict=True)
        self.plan = plan_cluster([Member(f"B{n}", *member) for n, member in enumerate(members)], CONFIG)

    def resources(self, place: int, served: Served) -> BrokerResources:
        return self.quotes.resources(served, *self.capacities[place])

    def after(self) -> list[BrokerResources]:
        """All brokers with the plan carried out, computed from scratch."""
        assert isinstance(self.plan, ClusterPlan)
        served = [dict(each) for each in self.served]
        for move in self.plan.moves:
            filters = served[int(move.from_broker[1:])].pop(move.client)
            served[int(move.to_broker[1:])][move.client] = filters
        return [self.resources(place, each) for place, each in enumerate(served)]


def test_a_crowded_broker_is_levelled_with_its_cluster_in_one_plan() -> None:
    cluster = Cluster(seed=1, client_count=200)
    assert isinstance(cluster.plan, ClusterPlan)
    for name in ("input_utilization_ratio", "output_utilization_ratio"):
        before = [getattr(load, name) for load in cluster.before]
        after = [getattr(load, name) for load in cluster.after()]
        assert max(before) - min(before) > 0.3
        assert max(after) - min(after) < CONFIG.local_ratio_threshold
    delays = [load.matching_delay_s / CONFIG.delay_normalization_s for load in cluster.after()]
    assert max(delays) - min(delays) < CONFIG.local_delay_threshold


@given(st.builds(Cluster, st.integers(0, 10_000), st.integers(5, 60)))
@settings(max_examples=25, deadline=None)
def test_plans_on_random_clusters(cluster: Cluster) -> None:
    plan = cluster.plan
    if isinstance(plan, NoAction):
        return
    moving = [move.client for move in plan.moves]
    assert len(moving) == len(set(moving)), "every client moves at most once"
    assert plan.unevenness_after < plan.unevenness_before
    assert unevenness(cluster.after(), CONFIG) < unevenness(cluster.before, CONFIG)
    targets = {int(move.to_broker[1:]) for move in plan.moves}
    for place in targets:
        assert plan.after[place].highest_utilization_ratio < CONFIG.lower_overload_ratio
    for estimated, true in zip(plan.after, cluster.after(), strict=True):
        assert estimated.matching_delay_s == pytest.approx(true.matching_delay_s)
        assert estimated.output_utilization_ratio == pytest.approx(true.output_utilization_ratio)
        assert estimated.input_rate_per_s == pytest.approx(true.input_rate_per_s)


def test_one_broker_has_nobody_to_balance_with() -> None:
    assert Cluster(seed=1, capacities=(100,)).plan == NoAction(Reason.NOBODY_KNOWN)


def test_samples_of_different_windows_are_refused() -> None:
    rng = Random(3)
    quotes = Quotes(rng, SYMBOLS, count=50, rate_per_s=20.0)
    served = [clients(rng, "a", 5, SYMBOLS), clients(rng, "b", 1, SYMBOLS)]
    members = [
        Member(f"B{n}", quotes.resources(each, 100, 1e5), quotes.sample(each, {})) for n, each in enumerate(served)
    ]
    with pytest.raises(ValueError, match="common window"):
        plan_cluster(members, CONFIG)


def two_strong_brokers(extra_count: int, *, moved_before: bool) -> ClusterPlan | NoAction:
    """Brokers with a thousand clients each, and some more at the first: each is 0.0002 of a ratio, and quiet."""
    stock = Filter.parse("[class,eq,'STOCK']")
    members: list[Member] = []
    for name, count in (("B1", 1_000 + extra_count), ("B2", 1_000)):
        resources = BrokerResources(
            input_rate_per_s=10.0,
            input_rate_bytes_per_s=3_000.0,
            matching_delay_s=2e-5 * count,
            subscription_count=count,
            output_rate_bytes_per_s=0.0,
            bandwidth_bytes_per_s=1e6,
            matching_delay_slope_s=2e-5,
        )
        clients = tuple(ClientProfile(f"{name}-{number}", (stock,), 0) for number in range(count))
        sample = Sample((("p", 1),), (300,), 1.0, 1.0, clients)
        before = frozenset(client.client for client in clients) if moved_before else frozenset()
        members.append(Member(name, resources, sample, before))
    return plan_cluster(members, CONFIG)


def test_where_brokers_are_almost_level_clients_that_were_moved_before_stay() -> None:
    fresh = two_strong_brokers(300, moved_before=False)
    assert isinstance(fresh, ClusterPlan)
    assert isinstance(two_strong_brokers(300, moved_before=True), NoAction), "0.06 apart"
    again = two_strong_brokers(600, moved_before=True)
    assert isinstance(again, ClusterPlan), "0.12 apart"
    left_apart = 0.12 - 2 * len(again.moves) * 0.0002
    assert left_apart <= CONFIG.local_ratio_threshold
