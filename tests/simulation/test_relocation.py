"""Scenarios of publisher relocation: the tree, the workloads, and publishers that really move."""

from __future__ import annotations

from random import Random
from statistics import fmean

import msgspec
import pytest

from trimtab.policies.registry import PolicyChoice
from trimtab.policies.relocation.config import RelocationConfig
from trimtab.simulation.relocation.run import RelocationRun
from trimtab.simulation.relocation.scenario import (
    RelocationScenario,
    broker_names,
    distance,
    links_of,
)
from trimtab.simulation.relocation.summary import RelocationSummary, reductions
from trimtab.simulation.scenarios.documents import ScenarioError, parse_document
from trimtab.simulation.scenarios.kinds import load, points_of
from trimtab.simulation.workloads.quotes import generate_quotes
from trimtab.simulation.workloads.rated import (
    Distribution,
    Rating,
    rated_advertisement,
    rated_filter,
    rated_publication,
    rated_subscribers,
)

SMALL = RelocationScenario(
    name="small",
    workload="clustered",
    brokers_count=15,
    publishers_count=4,
    subscribers_count=20,
    spread=4,
    threshold=20,
    join_s=10.0,
    duration_s=200.0,
    measure_s=40.0,
    rate_per_min=120.0,
)
PUBLICATIONS = [rated_publication(quote) for quote in generate_quotes(Random(3), symbols_count=1)]


def run(policy: str, seed: int = 1, **changes: object) -> RelocationSummary:
    return RelocationRun(msgspec.structs.replace(SMALL, policy=PolicyChoice(policy), **changes), seed).run()


def test_sixty_three_brokers_make_a_balanced_tree_with_fan_out_two() -> None:
    scenario = RelocationScenario()
    degrees = dict.fromkeys(broker_names(scenario), 0)
    for link in links_of(scenario):
        for name in link:
            degrees[name] += 1
    assert sorted(degrees.values()) == [1] * 32 + [2] + [3] * 30
    assert max(distance("B1", name, 2) for name in degrees) == 5
    assert distance("B32", "B63", 2) == 10


@pytest.mark.parametrize(
    ("rating", "least", "most"), [(Rating.LOW, 0.04, 0.16), (Rating.MEDIUM, 0.35, 0.65), (Rating.HIGH, 1.0, 1.0)]
)
def test_subscribers_sink_what_their_rating_says(rating: Rating, least: float, most: float) -> None:
    rng = Random(1)
    for _ in range(30):
        filter = rated_filter(rating, PUBLICATIONS, rng)
        assert least <= fmean(filter.matches(each) for each in PUBLICATIONS) <= most


def test_publications_are_announced() -> None:
    advertisement = rated_advertisement(str(PUBLICATIONS[0]["symbol"]))
    assert all(advertisement.announces(each) for each in PUBLICATIONS)


@pytest.mark.parametrize(("spread", "others"), [(1, {"B1"}), (4, {"B2", "B3", "B4"})])
def test_clustered_has_all_high_rated_subscribers_at_one_broker(spread: int, others: set[str]) -> None:
    brokers = [f"B{number}" for number in range(1, spread + 1)]
    found = rated_subscribers("clustered", 200, brokers, PUBLICATIONS, Random(1))
    assert {each.broker for each in found if each.rating == Rating.HIGH} == {"B1"}
    assert {each.broker for each in found if each.rating == Rating.LOW} == others


@pytest.mark.parametrize("distribution", ["clustered", "random"])
def test_all_brokers_of_the_spread_are_used(distribution: Distribution) -> None:
    brokers = ["B1", "B2", "B3"]
    found = rated_subscribers(distribution, 200, brokers, PUBLICATIONS, Random(1))
    assert {each.broker for each in found} == set(brokers)


@pytest.mark.parametrize("policy", ["pop", "grape-load100", "grape-delay100", "grape-joint"])
def test_publishers_move_to_the_only_broker_with_subscribers(policy: str) -> None:
    still, moving = run("none", spread=1), run(policy, spread=1)
    assert still.moves == 0
    assert moving.moves >= 3
    assert moving.details.hops_mean == pytest.approx(1.0), "a delivery goes through one broker"
    less = reductions(moving, still)
    assert less["message_rate_mean_per_s"] > 50
    assert less["delivery_delay_mean_s"] > 30
    assert (moving.lost, moving.duplicated, moving.reordered, moving.violations) == (0, 0, 0, [])
    assert moving.deliveries == still.deliveries


def test_a_publisher_moves_once_where_nothing_changes() -> None:
    moving = run("grape-load100", spread=1)
    assert moving.details.moves_per_publisher_max == 1
    assert moving.details.selections_count > moving.moves, (
        "new evidence is gathered, and says that nothing is to be done"
    )


def test_without_relocation_nothing_is_traced() -> None:
    still = run("none")
    assert (still.details.traced_count, still.details.control_messages, still.details.overhead_ratio) == (0, {}, 0.0)


def test_the_same_seed_gives_the_same_history() -> None:
    assert run("grape-load100").trace_hash == run("grape-load100").trace_hash


def test_padres_and_grape_run_at_the_same_time() -> None:
    both = run("padres+grape-load100", brokers_count=7)
    assert (both.lost, both.duplicated, both.reordered, both.violations) == (0, 0, 0, [])
    assert both.details.selections_count > 0


@pytest.mark.parametrize("name", [f"relocation-{name}" for name in ("clustered", "random", "trigger", "weights")])
def test_bundled_scenarios_have_the_papers_tree(name: str) -> None:
    scenarios = [point.scenario for point in load(name).points]
    assert {(each.brokers_count, each.fan_out) for each in scenarios} == {(63, 2)}
    assert all(each.description for each in scenarios)


def test_the_weights_go_from_load100_to_delay100_over_the_ones() -> None:
    scenarios = [point.scenario for point in load("relocation-weights").points]
    policies = [each.policy.name for each in scenarios]
    assert (policies[0], policies[-1]) == ("grape-load100", "grape-delay100")
    assert {"grape-load1", "grape-delay1"} <= set(policies)


def test_pop_tags_half_of_the_threshold_within_a_window() -> None:
    scenarios = [point.scenario for point in load("relocation-trigger").points]
    for each in scenarios:
        config = each.choice.config(RelocationConfig)
        assert config.pop_window_count == each.threshold // 2
        assert config.pop_threshold_count == config.grape_threshold_count == each.threshold


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"spread": "64"}, "spread 64 is not between 1 and 63"),
        ({"policy": "grape-load101"}, "no policy is called grape-load101"),
        ({"workload": "spread"}, "workload: expected one of clustered, random"),
        ({"duration_s": "60"}, "leaves no time"),
        ({"speed": "1"}, "speed: there is no such key"),
    ],
)
def test_a_mistake_is_named(overrides: dict[str, str], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        points_of(parse_document('kind = "relocation"', "my.toml"), overrides)
