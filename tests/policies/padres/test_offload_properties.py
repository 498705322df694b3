"""Plans on random brokers: estimates hold, nobody is made worse, the accepting broker is never overloaded."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.padres.stocks import Quotes, clients, covering_filters
from trimtab import Filter
from trimtab.load.estimation import BrokerResources
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction
from trimtab.policies.padres.offload import OffloadPlan, overload_measure
from trimtab.policies.padres.planning import plan_offload

SYMBOLS = [f"S{number}" for number in range(8)]
CONFIG = PadresConfig()
INDICES = (
    "input_rate_per_s",
    "input_utilization_ratio",
    "matching_delay_s",
    "output_utilization_ratio",
    "memory_utilization_ratio",
    "cpu_utilization_ratio",
    "subscription_count",
)


class Pair:
    """Two brokers with random clients and capacities, and a plan of the first."""

    def __init__(self, seed: int, action: LoadIndex) -> None:
        rng = Random(seed)
        self.quotes = Quotes(rng, SYMBOLS, count=60, rate_per_s=rng.uniform(2.0, 30.0))
        self.mine = clients(rng, "m", rng.randrange(1, 60), SYMBOLS)
        self.theirs = clients(rng, "t", rng.randrange(0, 30), SYMBOLS)
        self.capacities = [(rng.uniform(10, 200), rng.uniform(2e4, 4e5)) for _ in range(2)]
        self.ours_before = self.quotes.resources(self.mine, *self.capacities[0])
        self.theirs_before = self.quotes.resources(self.theirs, *self.capacities[1])
        self.plan = plan_offload(
            action,
            self.ours_before,
            self.theirs_before,
            self.quotes.sample(self.mine, self.theirs),
            covering_filters(self.theirs),
            config=CONFIG,
        )

    def after(self) -> tuple[BrokerResources, BrokerResources]:
        """Both brokers with the plan carried out, computed from scratch."""
        assert isinstance(self.plan, OffloadPlan)
        moving = {move.client for move in self.plan.moves}
        staying: dict[str, tuple[Filter, ...]] = {n: f for n, f in self.mine.items() if n not in moving}
        arrived = {**self.theirs, **{n: f for n, f in self.mine.items() if n in moving}}
        return (
            self.quotes.resources(staying, *self.capacities[0]),
            self.quotes.resources(arrived, *self.capacities[1]),
        )


pairs = st.builds(Pair, st.integers(0, 10_000), st.sampled_from(list(LoadIndex)))


@given(pairs)
@settings(max_examples=60, deadline=None)
def test_estimates_equal_what_is_computed_from_scratch(pair: Pair) -> None:
    if isinstance(pair.plan, NoAction):
        return
    for estimated, true in zip((pair.plan.ours_after, pair.plan.theirs_after), pair.after(), strict=True):
        for name in INDICES:
            assert getattr(estimated, name) == pytest.approx(getattr(true, name), abs=1e-9), name


@given(pairs)
@settings(max_examples=60, deadline=None)
def test_the_accepting_broker_is_never_overloaded(pair: Pair) -> None:
    if isinstance(pair.plan, OffloadPlan):
        assert pair.plan.theirs_after.highest_utilization_ratio < CONFIG.lower_overload_ratio


@given(pairs)
@settings(max_examples=60, deadline=None)
def test_a_plan_never_makes_the_pair_worse_in_its_index(pair: Pair) -> None:
    if isinstance(pair.plan, NoAction):
        return
    plan = pair.plan
    if overload_measure(plan.action, pair.ours_before) > CONFIG.higher_overload_ratio:
        before = overload_measure(plan.action, pair.ours_before)
        assert overload_measure(plan.action, plan.ours_after) < before
    else:
        assert abs(plan.difference_after) < abs(plan.difference_before)


@given(pairs)
@settings(max_examples=60, deadline=None)
def test_every_client_moves_at_most_once_and_every_candidate_has_a_card(pair: Pair) -> None:
    if isinstance(pair.plan, NoAction):
        return
    moving = [move.client for move in pair.plan.moves]
    assert len(moving) == len(set(moving)) > 0
    assert set(moving) <= set(pair.mine)
    assert [client for card in pair.plan.cards if card.taken for client in card.clients] == moving
    assert all(card.why for card in pair.plan.cards)


@given(pairs)
@settings(max_examples=60, deadline=None)
def test_output_plans_do_not_raise_the_other_input_above_ours_by_more_than_the_threshold(pair: Pair) -> None:
    plan = pair.plan
    if isinstance(plan, NoAction) or plan.action != LoadIndex.OUTPUT:
        return
    if overload_measure(LoadIndex.OUTPUT, pair.ours_before) > CONFIG.higher_overload_ratio:
        return
    if excess_of_input(plan.theirs_before, plan.ours_before) > CONFIG.local_ratio_threshold:
        assert plan.theirs_after.input_rate_per_s == plan.theirs_before.input_rate_per_s, "only what comes there anyway"
    else:
        assert excess_of_input(plan.theirs_after, plan.ours_before) <= CONFIG.local_ratio_threshold + 1e-9


def excess_of_input(theirs: BrokerResources, ours: BrokerResources) -> float:
    return theirs.input_utilization_ratio - ours.input_utilization_ratio
