"""The naive balancer that others are compared with."""

from __future__ import annotations

from random import Random

from tests.policies.padres.loads import broker, known
from trimtab.policies.naive.selection import NaivePlan, plan_naively
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction, Reason, Status

CONFIG = PadresConfig()
CLIENTS = [f"c{number}" for number in range(20)]


def test_half_of_the_difference_goes_to_a_less_loaded_broker() -> None:
    found = plan_naively(broker("B1", 0.8), known(broker("B2", 0.4)), CLIENTS, Random(1), CONFIG)
    assert isinstance(found, NaivePlan)
    assert (found.to_broker, found.action, len(found.clients)) == ("B2", LoadIndex.INPUT, 5)
    assert len(set(found.clients)) == 5


def test_the_broker_and_the_clients_are_drawn_with_the_given_generator() -> None:
    others = known(broker("B2", 0.4), broker("B3", 0.5), broker("B4", 0.79), broker("B5", 0.1, status=Status.BUSY))
    plans = [plan_naively(broker("B1", 0.8), others, CLIENTS, Random(seed), CONFIG) for seed in range(30)]
    assert {plan.to_broker for plan in plans if isinstance(plan, NaivePlan)} == {"B2", "B3"}
    assert plans == [plan_naively(broker("B1", 0.8), others, CLIENTS, Random(seed), CONFIG) for seed in range(30)]


def test_nothing_is_done_without_a_difference_clients_or_freedom() -> None:
    others = known(broker("B2", 0.5))
    assert plan_naively(broker("B1", 0.55), others, CLIENTS, Random(1), CONFIG) == NoAction(Reason.BALANCED)
    assert plan_naively(broker("B1", 0.9), others, [], Random(1), CONFIG) == NoAction(Reason.NO_CLIENTS)
    busy = broker("B1", 0.9, status=Status.BUSY)
    assert plan_naively(busy, others, CLIENTS, Random(1), CONFIG) == NoAction(Reason.BUSY)
