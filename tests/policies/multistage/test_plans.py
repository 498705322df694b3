"""Placement, migration, shuffle, groups: what they promise for every instance."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.multistage.instances import crowded, random_instance, situations
from trimtab.policies.multistage.config import BALANCINGS, Balancing, MultistageConfig
from trimtab.policies.multistage.groups import group, plan_groups
from trimtab.policies.multistage.gsh import plan_gsh, renamed, shuffle
from trimtab.policies.multistage.instance import Instance, Places
from trimtab.policies.multistage.ldm import least_loaded, plan_ldm
from trimtab.policies.multistage.load import broker_loads, cov
from trimtab.policies.multistage.migration import Migration, migrate
from trimtab.policies.multistage.multistage import plan_round
from trimtab.policies.multistage.placement import place_nearest, place_randomly
from trimtab.policies.multistage.sdm import most_similar, plan_sdm
from trimtab.policies.multistage.standing import Standing

EAGER = MultistageConfig(migrate_cov=0.0, idle_load_bytes_per_s=0.0)


@settings(deadline=None)
@given(situations(), st.sampled_from([least_loaded, most_similar]))
def test_a_move_lowers_the_larger_of_the_two_loads_and_migration_ends(
    situation: tuple[Instance, Places, int], scheme: object
) -> None:
    instance, assignment, brokers_count = situation
    seen = [sorted(broker_loads(instance, assignment, brokers_count).tolist(), reverse=True)]

    def watched(standing: Standing, subscriber: int, source: int) -> int | None:
        loads = sorted(standing.loads.tolist(), reverse=True)
        if loads != seen[-1]:
            seen.append(loads)
        target = scheme(standing, subscriber, source)  # type: ignore[operator]
        assert target is None or isinstance(target, int)
        return target

    after = migrate(instance, assignment, brokers_count, EAGER, watched)
    final = broker_loads(instance, after.assignment, brokers_count)
    assert final.max(initial=0.0) <= max(seen[0], default=0.0) + 1e-6
    for before, then in pairwise(seen):
        changed = [(old, new) for old, new in zip(before, then, strict=True) if abs(old - new) > 1e-6]
        assert not changed or changed[0][1] < changed[0][0]  # the first that differs, the larger one, has fallen


@pytest.mark.parametrize("plan", [plan_ldm, plan_sdm])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_migration_makes_a_crowd_even_enough(plan: object, seed: int) -> None:
    instance, assignment = random_instance(seed, 400, 60), crowded(seed, 400, 5)
    after = plan(instance, assignment, 5, MultistageConfig())  # type: ignore[operator]
    assert isinstance(after, Migration)
    assert after.ended == "even enough"
    assert cov(broker_loads(instance, after.assignment, 5)) <= 0.15
    assert 0 < np.count_nonzero(after.assignment != assignment) <= after.steps_count


def test_the_heaviest_subscriber_that_fits_goes_first() -> None:
    instance = Instance.of([[0], [1], [2], [3]], [100.0, 60.0, 50.0, 10.0])
    after = plan_ldm(instance, np.array([0, 0, 0, 1]), 2, MultistageConfig(migrate_cov=0.2, idle_load_bytes_per_s=0.0))
    assert after.assignment.tolist() == [1, 0, 0, 1]


def test_similar_subscribers_join_those_who_share_their_subscriptions() -> None:
    """Two brokers are below the mean; LDM takes the emptier one, SDM the one that fetches the subscription already."""
    rows = [[0], [1], [2], [3], [0], [4]]
    instance = Instance.of(rows, [500.0, 400.0, 400.0, 400.0, 100.0])
    assignment = np.array([0, 0, 0, 0, 1, 2])
    one_move = MultistageConfig(migrate_cov=0.5, idle_load_bytes_per_s=0.0)
    assert plan_ldm(instance, assignment, 3, one_move).assignment.tolist()[0] == 2
    assert plan_sdm(instance, assignment, 3, one_move).assignment.tolist()[0] == 1


def test_sdm_adds_less_to_the_total_load_than_ldm() -> None:
    for seed in range(1, 6):
        instance, assignment = random_instance(seed, 400, 300), crowded(seed, 400, 5)
        by_load, by_likeness = (
            plan(instance, assignment, 5, MultistageConfig()).assignment for plan in (plan_ldm, plan_sdm)
        )
        assert broker_loads(instance, by_likeness, 5).sum() < broker_loads(instance, by_load, 5).sum(), f"seed {seed}"


def test_nothing_is_done_at_little_load_or_when_it_is_even_enough() -> None:
    instance, assignment = Instance.of([[0], [0]], [10.0]), np.array([0, 0])
    assert plan_ldm(instance, assignment, 2, MultistageConfig()).ended == "little load"
    for policy in BALANCINGS:
        wanted: Balancing = policy  # type: ignore[assignment]
        assert plan_round(wanted, instance, assignment, 2, MultistageConfig()).tolist() == [0, 0]


@given(situations())
def test_a_shuffle_takes_the_heaviest_first_and_the_least_loaded_broker(
    situation: tuple[Instance, Places, int],
) -> None:
    """By definition, with loads made from scratch at every step."""
    instance, _, brokers_count = situation
    chosen = shuffle(instance, brokers_count)
    order = np.argsort(-instance.own_loads_bytes_per_s, kind="stable")
    for place, subscriber in enumerate(order.tolist()):
        before = broker_loads(instance.part(order[:place]), chosen[order[:place]], brokers_count)
        assert before[chosen[subscriber]] == pytest.approx(before.min(), abs=1e-6)


def test_a_shuffle_is_nearly_even_and_keeps_names_where_it_can() -> None:
    instance, assignment = random_instance(4, 1000, 80), crowded(4, 1000, 6)
    after = plan_gsh(instance, assignment, 6)
    assert cov(broker_loads(instance, after, 6)) < 0.01
    assert np.count_nonzero(after != assignment) <= np.count_nonzero(shuffle(instance, 6) != assignment)
    assert renamed(assignment, assignment, instance.own_loads_bytes_per_s, 6).tolist() == assignment.tolist()


@given(situations(), st.floats(1.0, 5000.0))
def test_groups_hold_everybody_once_and_share_something(
    situation: tuple[Instance, Places, int], load_max_bytes_per_s: float
) -> None:
    instance, _, _ = situation
    everybody = np.arange(instance.subscribers_count)
    groups = group(instance, everybody, load_max_bytes_per_s)
    assert sorted(each for members in groups for each in members.tolist()) == everybody.tolist()
    for members in groups:
        if len(members) > 1:
            part = instance.part(members)
            together = broker_loads(part, np.zeros(len(members), dtype=np.int64), 1)[0]
            assert together < 2 * part.own_loads_bytes_per_s.sum()
            assert together <= load_max_bytes_per_s * (1 + 1e-9)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_groups_are_at_least_as_level_as_a_shuffle_at_less_total_load_and_fewer_moves(seed: int) -> None:
    instance, assignment = random_instance(seed, 600, 400), crowded(seed, 600, 5)
    grouped = plan_groups(instance, assignment, 5, MultistageConfig())
    shuffled = plan_gsh(instance, assignment, 5)
    assert broker_loads(instance, grouped, 5).max() < broker_loads(instance, shuffled, 5).max()
    assert broker_loads(instance, grouped, 5).sum() < broker_loads(instance, shuffled, 5).sum()
    assert np.count_nonzero(grouped != assignment) < np.count_nonzero(shuffled != assignment)


@settings(deadline=None)
@given(situations(), st.sampled_from(BALANCINGS))
def test_no_policy_makes_the_largest_load_of_a_skewed_start_larger(
    situation: tuple[Instance, Places, int], policy: Balancing
) -> None:
    instance, assignment, brokers_count = situation
    before = broker_loads(instance, assignment, brokers_count)
    config = MultistageConfig(idle_load_bytes_per_s=0.0)
    after = plan_round(policy, instance, assignment, brokers_count, config)
    assert len(after) == len(assignment)
    assert ((after >= 0) & (after < brokers_count)).all()
    if policy not in {"gsh", "multistage"}:  # a shuffle of a handful may end worse than it began
        assert broker_loads(instance, after, brokers_count).max(initial=0.0) <= before.max(initial=0.0) * (1 + 1e-9)
    again = plan_round(policy, instance, assignment, brokers_count, config)
    assert again.tolist() == after.tolist()


def test_stages_follow_the_imbalance() -> None:
    instance, crowd = random_instance(5, 500, 50), crowded(5, 500, 5)
    config = MultistageConfig()
    before = cov(broker_loads(instance, crowd, 5))
    assert before > config.shuffle_cov
    shuffled = plan_round("multistage", instance, crowd, 5, config)
    assert shuffled.tolist() == plan_gsh(instance, crowd, 5).tolist()
    some = crowd.copy()
    some[some == 0] = np.arange(np.count_nonzero(some == 0)) % 5  # the most loaded broker's people everywhere
    assert config.migrate_cov < cov(broker_loads(instance, some, 5)) <= config.shuffle_cov
    migrated = plan_round("multistage", instance, some, 5, config)
    assert migrated.tolist() == plan_ldm(instance, some, 5, config).assignment.tolist()
    assert plan_round("multistage", instance, shuffled, 5, config).tolist() == shuffled.tolist()


def test_placement_by_distance_and_by_lot() -> None:
    rng = np.random.default_rng(1)
    positions, sites = rng.uniform(0, 100, (50, 2)), rng.uniform(0, 100, (7, 2))
    expected = [min(range(7), key=lambda j: float(((p - sites[j]) ** 2).sum())) for p in positions]
    assert place_nearest(positions, sites).tolist() == expected
    drawn = place_randomly(3000, 3, Random(1))
    assert drawn.tolist() == place_randomly(3000, 3, Random(1)).tolist()
    assert np.bincount(drawn).min() > 900
