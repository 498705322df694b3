"""Detection and the three offload algorithms together: a crowded cluster comes to rest, and stays there.

Sessions are carried out one after the other on loads that are computed from scratch each time, as if every session's
effect had settled before the next detection.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.policies.padres.stocks import Quotes, clients, covering_filters
from trimtab import Filter
from trimtab.load.estimation import BrokerResources
from trimtab.load.profiles import on_common_window
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, Status
from trimtab.policies.padres.detection import History, Trigger, detect_local
from trimtab.policies.padres.offload import OffloadPlan
from trimtab.policies.padres.planning import plan_offload
from trimtab.policies.padres.snapshot import BrokerLoad, KnownBroker, broker_load
from trimtab.policies.padres_fast.joint_plan import ClusterPlan, Member, indices, plan_cluster

CONFIG = PadresConfig()
SYMBOLS = [f"S{number}" for number in range(20)]
CAPACITIES = {"B1": (100, 62_500), "B2": (200, 125_000), "B3": (400, 250_000), "B4": (1_000, 625_000)}
"""Processor (MHz) and bandwidth (bytes/s) of Table 5.3."""


class Cluster:
    """The edge-brokers of section 5.2.1; all subscribers begin at B1."""

    def __init__(self, seed: int, client_count: int) -> None:
        rng = Random(seed)
        self.rng = rng
        self.quotes = Quotes(rng, SYMBOLS, count=50, rate_per_s=10.0)
        self.served: dict[str, dict[str, tuple[Filter, ...]]] = {name: {} for name in CAPACITIES}
        self.served["B1"] = clients(rng, "c", client_count, SYMBOLS)
        self.sessions: list[tuple[str, str, str, int]] = []

    def resources(self, name: str) -> BrokerResources:
        return self.quotes.resources(self.served[name], *CAPACITIES[name])

    def load(self, name: str) -> BrokerLoad:
        resources = self.resources(name)
        overloaded = resources.highest_utilization_ratio > CONFIG.lower_overload_ratio
        return broker_load(name, "C1", Status.NOT_AVAILABLE if overloaded else Status.OK, resources)

    def step(self) -> bool:
        """Let each broker look at its load, in random order, until one has a session; False if none has."""
        known = {name: KnownBroker(self.load(name), 0.0, 0.0) for name in CAPACITIES}
        for name in self.rng.sample(list(CAPACITIES), len(CAPACITIES)):
            found = detect_local(known[name].load, known, History(inert_since_s=-60.0), 0.0, CONFIG).outcome
            if isinstance(found, Trigger) and any(self.session(name, ask.broker, ask.action) for ask in found.ask):
                return True
        return False

    def session(self, name: str, partner: str, action: LoadIndex) -> bool:
        plan = plan_offload(
            action,
            self.resources(name),
            self.resources(partner),
            self.quotes.sample(self.served[name], self.served[partner]),
            covering_filters(self.served[partner]),
            config=CONFIG,
        )
        if not isinstance(plan, OffloadPlan):
            return False
        for move in plan.moves:
            self.served[partner][move.client] = self.served[name].pop(move.client)
        self.sessions.append((name, partner, action.value, len(plan.moves)))
        return True


@pytest.mark.parametrize(("seed", "client_count"), [(1, 400), (2, 400), (3, 400), (11, 1_200)])
def test_a_crowded_cluster_comes_to_rest_within_the_thresholds(seed: int, client_count: int) -> None:
    cluster = Cluster(seed, client_count)
    assert cluster.resources("B1").highest_utilization_ratio > 1
    while cluster.step():
        assert len(cluster.sessions) < 60, cluster.sessions
    loads = [cluster.resources(name) for name in CAPACITIES]
    ratios = [(load.input_utilization_ratio, load.output_utilization_ratio) for load in loads]
    for values in zip(*ratios, strict=True):
        assert max(values) - min(values) <= CONFIG.local_ratio_threshold, (ratios, cluster.sessions)
    delays = [load.matching_delay_s / CONFIG.delay_normalization_s for load in loads]
    assert max(delays) - min(delays) <= CONFIG.local_delay_threshold, (delays, cluster.sessions)


def spreads(cluster: Cluster) -> list[float]:
    """The largest differences in input, output and matching delay."""
    values = [indices(cluster.resources(name), CONFIG) for name in CAPACITIES]
    return [max(each[action] for each in values) - min(each[action] for each in values) for action in LoadIndex]


def test_one_plan_for_the_cluster_levels_more_with_fewer_moves_than_sessions_of_pairs() -> None:
    """The figures of docs/balancing.md."""
    pairs, at_once = Cluster(0, 1_200), Cluster(0, 1_200)
    while pairs.step():
        assert len(pairs.sessions) < 60, pairs.sessions
    samples = on_common_window([at_once.quotes.sample(at_once.served[name], {}) for name in CAPACITIES])
    members = [Member(name, at_once.resources(name), each) for name, each in zip(CAPACITIES, samples, strict=True)]
    plan = plan_cluster(members, CONFIG)
    assert isinstance(plan, ClusterPlan)
    for move in plan.moves:
        at_once.served[move.to_broker][move.client] = at_once.served[move.from_broker].pop(move.client)
    assert len(plan.moves) < 1_200
    assert sum(count for _, _, _, count in pairs.sessions) > 1_800
    assert len(pairs.sessions) > 8
    assert max(spreads(at_once)) < 0.03 < max(spreads(pairs)) <= 0.1
