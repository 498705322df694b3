"""Loads, the standing that keeps them up to date, and bounds from below."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.multistage.instances import crowded, random_instance, situations
from trimtab.policies.multistage.instance import Instance, Places
from trimtab.policies.multistage.load import broker_loads, cov, incoming_loads, outgoing_loads
from trimtab.policies.multistage.lower_bound import lower_bound
from trimtab.policies.multistage.standing import Standing


def loads_by_definition(instance: Instance, assignment: Places, brokers_count: int) -> list[float]:
    """I_j + O_j, term by term as the paper writes them."""
    loads = []
    for broker in range(brokers_count):
        rows = [instance.of_subscriber(i).tolist() for i, at in enumerate(assignment.tolist()) if at == broker]
        fetched = sum(instance.rates_bytes_per_s[k] for k in {k for row in rows for k in row})
        sent = sum(instance.rates_bytes_per_s[k] for row in rows for k in row)
        loads.append(float(fetched + sent))
    return loads


@given(situations())
def test_loads_are_what_is_fetched_once_and_sent_to_each(situation: tuple[Instance, Places, int]) -> None:
    instance, assignment, brokers_count = situation
    expected = loads_by_definition(instance, assignment, brokers_count)
    assert broker_loads(instance, assignment, brokers_count) == pytest.approx(expected)


@given(situations(), st.integers(0, 1000))
def test_loads_kept_up_to_date_equal_those_made_from_scratch(
    situation: tuple[Instance, Places, int], seed: int
) -> None:
    instance, assignment, brokers_count = situation
    standing, rng = Standing(instance, assignment, brokers_count), Random(seed)
    for _ in range(30 if brokers_count > 1 and instance.subscribers_count else 0):
        subscriber = rng.randrange(instance.subscribers_count)
        source = standing.broker_of(subscriber)
        target = rng.choice([each for each in range(brokers_count) if each != source])
        before = standing.loads.copy()
        released, added = standing.released(subscriber, source), standing.added(subscriber, target)
        standing.move(subscriber, source, target)
        fresh = Standing(instance, standing.assignment(), brokers_count)
        assert standing.loads == pytest.approx(broker_loads(instance, standing.assignment(), brokers_count), abs=1e-6)
        assert standing.loads[source] == pytest.approx(before[source] - released, abs=1e-6)
        assert standing.loads[target] == pytest.approx(before[target] + added, abs=1e-6)
        assert (standing.held == fresh.held).all()
        assert standing.cov == pytest.approx(cov(standing.loads), abs=1e-5)


def test_what_is_sent_in_total_does_not_depend_on_who_is_where_but_what_is_fetched_does() -> None:
    instance = random_instance(1, 60, 12)
    apart, together = crowded(1, 60, 4), np.zeros(60, dtype=np.int64)
    assert outgoing_loads(instance, apart, 4).sum() == pytest.approx(outgoing_loads(instance, together, 4).sum())
    assert incoming_loads(instance, apart, 4).sum() > incoming_loads(instance, together, 4).sum()


@settings(deadline=None)
@given(situations())
def test_no_assignment_is_better_than_the_lower_bound(situation: tuple[Instance, Places, int]) -> None:
    """Every assignment of up to six subscribers to up to three brokers is tried."""
    instance, _, brokers_count = situation
    brokers_count = min(brokers_count, 3)
    few = instance.part(np.arange(min(instance.subscribers_count, 6)))
    bound = lower_bound(few, brokers_count)
    best = min(
        float(broker_loads(few, np.array(each, dtype=np.int64), brokers_count).max())
        for each in product(range(brokers_count), repeat=few.subscribers_count)
    )
    assert bound.best <= best * (1 + 1e-12)
    assert bound.copies >= bound.linear_program * (1 - 1e-6)


def test_the_linear_program_has_a_dual_solution_of_the_same_value() -> None:
    """So the bound is the program's optimum: no solver could find a higher one."""
    instance, brokers_count = random_instance(3, 40, 10), 4
    counts = instance.subscribers_by_subscription_count
    rates = instance.rates_bytes_per_s
    weight = 1 / brokers_count  # of each broker's constraint; they sum up to 1
    shares = np.divide(rates * weight, counts, out=np.zeros_like(rates), where=counts > 0)  # of z_jk >= x_ij
    assert (shares * counts <= rates * weight * (1 + 1e-12)).all()  # no z_jk gets cheaper than it is
    value_of_subscribers = instance.own_loads_bytes_per_s * weight + instance.sums(shares)
    bound = lower_bound(instance, brokers_count).linear_program
    assert value_of_subscribers.sum() == pytest.approx(bound)


def test_instances_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="has no rate"):
        Instance.of([[3]], [1.0])
    with pytest.raises(ValueError, match="negative"):
        Instance.of([[0]], [-1.0])
    with pytest.raises(ValueError, match="do not fit"):
        Instance(np.array([0, 2]), np.array([0], dtype=np.int32), np.array([1.0]))
