"""Cities by their load: the coordinator in them, and what the summary says."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.simulation.coordination.scenario import CoordinationScenario
from trimtab.simulation.coordination.world import CoordinationSummary, CoordinationWorld
from trimtab.simulation.scenarios.documents import ScenarioError
from trimtab.simulation.scenarios.kinds import load, load_one


def small(**settings: str) -> CoordinationScenario:
    """A small city for ten minutes."""
    city = {"subscribers_count": "400", "brokers_count": "4", "duration_s": "600", "join_s": "[0, 60]"}
    scenario = load_one("bad-scale", {**city, **settings})
    assert isinstance(scenario, CoordinationScenario)
    return scenario


def run(seed: int = 1, **settings: str) -> CoordinationSummary:
    """A run of it."""
    return CoordinationWorld(small(**settings), seed).run()


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first, again, other = run(policy="ldm"), run(policy="ldm"), run(2, policy="ldm")
    assert first == again
    assert first.trace_hash != other.trace_hash


def test_everybody_comes_and_goes_alike_whatever_the_policy() -> None:
    runs = [run(policy=policy) for policy in ("none", "ldm", "gsh", "groups")]
    assert (
        len(
            {(each.details.connected_count, each.details.front_end_count, each.details.back_end_count) for each in runs}
        )
        == 1
    )
    assert len({tuple(reading.connected_count for reading in each.details.series) for each in runs}) == 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_balancing_lowers_the_largest_load_of_nearest_placement(seed: int) -> None:
    none, ldm, gsh, groups = (run(seed, policy=policy) for policy in ("none", "ldm", "gsh", "groups"))
    assert none.moves == 0
    assert ldm.details.max_load < none.details.max_load
    assert gsh.details.max_load < ldm.details.max_load
    assert groups.details.ratio < gsh.details.ratio
    assert ldm.details.cov <= 0.2 < none.details.cov
    assert ldm.moves < gsh.moves
    for each in (none, ldm, gsh, groups):
        assert each.details.max_load >= each.details.lower_bound
        assert each.details.ratio >= 1.0
        assert each.details.total_load == pytest.approx(sum(sum(r.loads) for r in each.details.series[-30:]) / 30)


def test_loads_in_the_summary_are_those_that_the_coordinator_knows_once_all_is_told() -> None:
    scenario = small(policy="none", rate_deviation="0.0", connected_mean_s="1e9", join_s="[0, 60]")
    world = CoordinationWorld(scenario)
    summary = world.run()
    assert sorted(world.coordinator.population.loads()) == pytest.approx(sorted(summary.details.series[-1].loads))


def test_a_coordinator_that_is_replaced_half_way_goes_on_with_what_brokers_tell() -> None:
    from random import Random

    from trimtab.policies.multistage.coordinator import AskForReports, BrokerTold, ClientTold, Coordinator

    scenario = small(policy="ldm", connected_mean_s="1e9", rate_deviation="0.0")
    world = CoordinationWorld(scenario)

    def replace() -> None:
        known = world.coordinator.population.loads()
        world.coordinator = Coordinator(scenario.coordinator(), Random(5))
        assert world.coordinator.start(world.now_s) == [AskForReports()]
        for broker, site in world._sites.items():
            here = [each for each in world._subscribers.values() if each.broker == broker]
            told = BrokerTold(
                broker=broker,
                is_whole=True,
                clients=tuple(ClientTold(each.name, tuple(wish.name for wish in each.wishes)) for each in here),
                rates_bytes_per_s=dict(zip(world._names, world._rates_now().tolist(), strict=True)),
                site=site,
            )
            world.coordinator.handle(told, world.now_s)
        assert sorted(world.coordinator.population.loads()) == pytest.approx(sorted(known))

    world._at(305.0, replace)
    summary = world.run()
    assert summary.details.cov <= 0.16


def test_bad_scenarios_are_refused_in_words(tmp_path: Path) -> None:
    for key, value, reason in (
        ("policy", "best", "policy: best is none of none, ldm"),
        ("placement", "far", "placement: expected one of nearest, random"),
        ("brokers_count", "0", "brokers_count 0 is not between 1 and 1,000"),
        ("policy.multistage.migrate_cov", "0.9", "migrate_cov 0.9 is not between 0 and shuffle_cov 0.5"),
        ("colour", "blue", "colour: there is no such key"),
        ("round_every_s", "0", "round_every_s must be positive"),
        ("policy.padres.press_sample_count", "9", "a coordinator has no table padres; expected multistage"),
    ):
        with pytest.raises(ScenarioError, match=reason):
            load_one("bad-scale", {key: value})
    (tmp_path / "mine.toml").write_text('kind = "coordination"\nsubscribers_count = 5\n')
    assert load_one(str(tmp_path / "mine.toml")).subscribers_count == 5
    assert len(load("bad-scale", {"policy": "ldm,gsh", "placement": "nearest, random"}).points) == 4
