"""Random runs keep all promises, are reproducible, and find deliberate bugs."""

import os
import subprocess
import sys

import msgspec
import pytest

from trimtab.broker.core import Broker
from trimtab.protocol.link import Link
from trimtab.simulation.faults.faults import KINDS
from trimtab.simulation.fuzz.bugs.core_bugs import BUGS, Bug, bug_named
from trimtab.simulation.fuzz.fuzz import fuzz, fuzz_bug
from trimtab.simulation.fuzz.plans import AGENTS_NEED_MHZ, FuzzPlan, draw_plan, draw_plan_of_any_speed
from trimtab.simulation.fuzz.run import run_plan

RUNS_COUNT = 150


def test_random_runs_keep_all_promises() -> None:
    report = fuzz(first_seed=50_000, runs_count=RUNS_COUNT)
    assert [(failure.seed, failure.violations[:3]) for failure in report.failures] == []
    assert report.deliveries_count > 20 * RUNS_COUNT
    assert report.moves_count > RUNS_COUNT // 2
    assert sorted(report.faults_count) == sorted(KINDS)


def test_what_an_old_broker_has_for_a_client_is_waited_for_while_it_is_kept() -> None:
    """The client moves, its connection to the old broker breaks, and the new broker lets it publish meanwhile."""
    assert run_plan(draw_plan(30_115)).violations == []


def test_a_slow_broker_amid_hasty_agents_comes_to_its_data_in_time() -> None:
    """Nine brokers report to a coordinator five times a second, through one that is among the slowest."""
    assert run_plan(draw_plan(5_606)).violations == []


def test_agents_that_talk_all_the_time_never_work_in_the_slowest_brokers() -> None:
    """What they say is matched before any data. Everything else about a run stays as drawn."""

    def slowest_mhz(plan: FuzzPlan) -> float:
        return min(capacity.cpu_mhz or float("inf") for capacity in plan.brokers.values())

    pairs = [(draw_plan_of_any_speed(seed), draw_plan(seed)) for seed in range(5_500, 5_700)]
    talkative = [(drawn, plan) for drawn, plan in pairs if plan.is_balanced or plan.coordinator]
    assert min(slowest_mhz(drawn) for drawn, _ in talkative) == 0.2
    assert min(slowest_mhz(plan) for _, plan in talkative) == AGENTS_NEED_MHZ
    assert all(msgspec.structs.replace(plan, brokers=drawn.brokers) == drawn for drawn, plan in talkative)
    others = [pair for pair in pairs if pair not in talkative]
    assert min(slowest_mhz(plan) for _, plan in others) == 0.2
    assert all(drawn == plan for drawn, plan in others)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_deliberate_bug_is_found_within_200_runs(bug: Bug) -> None:
    assert fuzz_bug(bug, first_seed=bug.first_seed, runs_max_count=200).found_after_runs_count is not None


def test_a_bug_is_gone_after_its_run() -> None:
    before = (Broker.receive, Link.receive)
    for bug in BUGS:
        with bug.active():
            pass
    assert (Broker.receive, Link.receive) == before


def test_an_unknown_bug_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ValueError, match="no bug is called nonsense; there are forget-uncovering"):
        bug_named("nonsense")


def test_a_marker_of_an_undone_move_is_void_when_the_client_has_left_and_come_back() -> None:
    assert run_plan(draw_plan(1_855)).violations == []


def test_the_same_seed_gives_the_same_plan_and_the_same_trace() -> None:
    assert draw_plan(7) == draw_plan(7)
    assert run_plan(draw_plan(7)).trace_hash == run_plan(draw_plan(7)).trace_hash != run_plan(draw_plan(8)).trace_hash


def test_the_trace_does_not_depend_on_the_hash_seed() -> None:
    program = "from trimtab.simulation.fuzz.fuzz import fuzz; print(fuzz(1, 20).trace_hash)"
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(found) == 1
