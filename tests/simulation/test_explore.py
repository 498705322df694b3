"""The explorer: canonical states, sound reduction, cases that hold, and mistakes that it finds."""

from __future__ import annotations

import json
from typing import Final

import msgspec
import pytest
from typer.testing import CliRunner

from trimtab.broker.config import Acknowledges, BrokerConfig
from trimtab.broker.core import Broker
from trimtab.cli.main import app
from trimtab.matching.engines import ENGINE_VARIABLE
from trimtab.simulation.checkers.deliveries import Violation
from trimtab.simulation.explore.cases import CASE_BY_NAME, CASES, Act, Case
from trimtab.simulation.explore.freezing import freeze
from trimtab.simulation.explore.search import Exploration, explore
from trimtab.simulation.explore.state import State, World
from trimtab.simulation.fuzz.bugs.core_bugs import BUGS, Bug, bug_named
from trimtab.simulation.fuzz.bugs.replication_bugs import REPLICATION_BUGS

_STATES_COUNT: Final = 1_000
"""So many states of each case are looked at here; 60,000 and more by hand (docs/simulation.md)."""

_PAIR: Final = Case(
    "pair",
    "two brokers",
    (("B1", "B2"),),
    (("p", "B1"), ("s", "B2")),
    (Act("p", "advertise", "a > 0"), Act("s", "subscribe", "a > 0")),
    ((Act("p", "publish", values=(1,)),),),
    dies=("B2",),
)


def _bug(name: str) -> Bug:
    return bug_named(name, (*BUGS, *REPLICATION_BUGS))


def _kinds(exploration: Exploration) -> set[str]:
    return {violation.kind for found in exploration.found for violation in found.violations}


# ---- canonical hashes ----


def test_equal_objects_have_the_same_hash_whatever_the_order_of_their_dictionaries_and_sets() -> None:
    assert freeze({"a": {1, 2}, "b": [3]}) == freeze({"b": [3], "a": {2, 1}})


def test_order_in_queues_and_who_shares_an_object_count() -> None:
    shared = ["x"]

    assert freeze([1, 2]) != freeze([2, 1])
    assert freeze([shared, shared]) != freeze([["x"], ["x"]])


def test_a_broker_that_has_only_counted_more_has_the_same_hash() -> None:
    counted, other = Broker(BrokerConfig("B1")), Broker(BrokerConfig("B1"))
    counted.counters.publications_in_count += 1

    assert freeze(counted) == freeze(other) != freeze(Broker(BrokerConfig("B2")))


def test_events_at_different_nodes_lead_to_the_same_state_in_either_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_VARIABLE, "python")
    case = msgspec.structs.replace(
        _PAIR, scripts=((Act("p", "publish", values=(1,)),), (Act("s", "subscribe", "a > 5"),))
    )
    world = World(case, "safe")
    first = world.begin()

    def after(scripts: tuple[int, ...]) -> State:
        state = first
        for script in scripts:
            state = world.step(state, ("act", script, 0))
        return state

    assert after((0, 1)) == after((1, 0)) != first


# ---- the search ----


@pytest.mark.parametrize("level", ["received", "safe", "durable"])
def test_a_pair_of_brokers_is_explored_to_the_end_and_keeps_its_promises(level: Acknowledges) -> None:
    exploration = explore(_PAIR, level, 50_000)

    assert (exploration.left_count, exploration.found) == (0, ())
    assert exploration.ends_count > 1


@pytest.mark.parametrize("level", ["received", "safe", "durable"])
def test_the_reduction_leaves_out_states_but_no_end(level: Acknowledges) -> None:
    reduced, whole = explore(_PAIR, level, 50_000), explore(_PAIR, level, 50_000, is_reduced=False)

    assert reduced.left_count == whole.left_count == 0
    assert reduced.states_count < whole.states_count
    assert reduced.ends_count == whole.ends_count


def test_exploring_twice_gives_the_same() -> None:
    case = CASE_BY_NAME["publisher-move-death-b2"]
    once, again = explore(case, "safe", 600), explore(case, "safe", 600)

    assert msgspec.structs.replace(once, took_s=0.0) == msgspec.structs.replace(again, took_s=0.0)


def test_what_is_left_at_the_bound_is_told() -> None:
    exploration = explore(_PAIR, "safe", 50)

    assert exploration.states_count >= 50
    assert exploration.left_count > 0


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []

    explore(CASE_BY_NAME["absent-client-move"], "received", 12_000, None, lambda seen, left: told.append((seen, left)))

    assert told
    assert all(0 < left < seen for seen, left in told)


# ---- the cases ----


@pytest.mark.parametrize(("case", "level"), [(case, level) for case in CASES for level in case.levels], ids=str)
def test_the_first_states_of_each_case_hold(case: Case, level: Acknowledges) -> None:
    exploration = explore(case, level, _STATES_COUNT)

    assert (exploration.violated_count, exploration.found) == (0, ())
    assert exploration.states_count >= _STATES_COUNT
    assert exploration.ends_count > 1


def test_names_of_cases_are_unique() -> None:
    assert len(CASE_BY_NAME) == len(CASES)


def test_two_adjacent_deaths_are_for_durable_only() -> None:
    assert CASE_BY_NAME["adjacent-deaths"].levels == ("durable",)


@pytest.mark.parametrize("level", ["received", "safe", "durable"])
def test_what_was_said_in_an_earlier_link_epoch_counts_no_more_and_the_explorer_shows_it(level: Acknowledges) -> None:
    (found, *_) = explore(CASE_BY_NAME["earlier-epoch"], level, 6_000, _bug("answer-across-epochs")).found

    assert Violation("tables", "subscriptions of B1 from B2: s/s1 should not be there") in found.violations
    assert any("Subscribe s/s1" in line for line in found.transcript)


@pytest.mark.parametrize("name", ["leave-death", "unadvertise-death"])
@pytest.mark.parametrize("level", ["safe", "durable"])
def test_ended_advertisements_are_told_to_a_replica_and_the_explorer_shows_it(name: str, level: Acknowledges) -> None:
    exploration = explore(CASE_BY_NAME[name], level, _STATES_COUNT, _bug("leave-out-the-union"))

    assert _kinds(exploration) == {"missing"}


@pytest.mark.parametrize(
    ("bug", "case", "level", "kind"),
    [
        ("skip-session-duplicate-check", "restart-backlog", "safe", "out of order"),
        ("done-when-processed", "restart-backlog", "safe", "missing"),
        ("go-on-at-once", "restart-backlog", "safe", "missing"),
        ("sweep-at-once", "restart-backlog", "safe", "missing"),
    ],
)
def test_other_deliberate_bugs_are_found(bug: str, case: str, level: Acknowledges, kind: str) -> None:
    assert kind in _kinds(explore(CASE_BY_NAME[case], level, _STATES_COUNT, _bug(bug)))


# ---- transcripts and the command ----


def _run(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(app, ["sim", "explore", *arguments])
    assert result.exit_code == exit_code, result.output
    return result.stdout


_BROKEN: Final = ("--case", "restart-backlog", "--level", "safe", "--states", "500", "--bug", "done-when-processed")


def test_a_violation_is_told_with_all_that_led_to_it() -> None:
    text = _run(*_BROKEN, exit_code=1)
    lines = [" ".join(line.split()) for line in text.splitlines()]

    assert "missing: p:1 to s/s1" in lines
    assert "1 p publish 1" in lines
    assert "13 p publish 3" in lines
    assert any("B2 DIES, " in line and "in its queues: for B3 p:1, p:2, p:3" in line for line in lines)
    assert any(line.endswith("B2 starts again as itself") for line in lines)
    assert any("B2 > B1 hello B2 incarnation 1+" in line for line in lines)


def test_json_has_counts_and_transcripts() -> None:
    text = _run(*_BROKEN, "--json", exit_code=1)
    (exploration,) = json.loads(text)["explorations"]

    assert (exploration["case"], exploration["level"]) == ("restart-backlog", "safe")
    assert exploration["states_count"] >= 300
    assert exploration["found"][0]["violations"][0] == {"kind": "missing", "text": "p:1 to s/s1"}
    assert "publish 1" in exploration["found"][0]["transcript"][0]


def test_all_levels_of_a_case_are_explored_and_nothing_wrong_is_exit_code_0() -> None:
    text = _run("--case", "subscriber-move-death-b3", "--states", "50")

    assert [line.split()[1] for line in text.splitlines()] == ["received", "safe", "durable"]


def test_cases_are_listed() -> None:
    assert [line.split()[0] for line in _run("--list").splitlines()] == [case.name for case in CASES]
    assert [each["name"] for each in json.loads(_run("--list", "--json"))] == [case.name for case in CASES]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--case", "nothing"),
        ("--level", "certain"),
        ("--case", "adjacent-deaths", "--level", "safe"),
        ("--bug", "nothing"),
    ],
)
def test_what_does_not_exist_is_refused(arguments: tuple[str, ...]) -> None:
    _run(*arguments, exit_code=2)


# ---- disks ----


def test_a_death_with_unsynced_writes_leaves_any_number_of_the_first_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_VARIABLE, "python")
    world = World(CASE_BY_NAME["unsynced-death"], "durable")
    state = world.begin()
    while not any(disk.pending for disk in state.disks):
        state = world.step(state, world.actions(state)[0])
    deaths = [action for action in world.actions(state) if action[0] == "kill"]
    place = deaths[0][1]
    entries_count = len(state.disks[place].pending)
    assert [kept_count for _, _, kept_count in deaths] == list(range(entries_count + 1))
    kept = [len(world.step(state, action).disks[place].stored) for action in deaths]
    assert (kept[0], kept[-1]) == (len(state.disks[place].stored), len(state.disks[place].written().stored))


def test_an_acknowledgement_before_the_write_is_found() -> None:
    with _bug("acknowledge-before-fsync").active():
        exploration = explore(CASE_BY_NAME["unsynced-death"], "durable", 3_000)
    assert _kinds(exploration) & {"missing", "accepted too early"}
