"""Tracing by POP: how many publications are tagged, and what a profile remembers."""

from __future__ import annotations

from random import Random

from trimtab.policies.relocation.config import RelocationConfig
from trimtab.policies.relocation.pop_tracing import PopTraces, Profile, Tagger

CONFIG = RelocationConfig()


def tagged(rate_per_s: float, for_s: float, seed: int = 1) -> list[float]:
    rng, tagger = Random(seed), Tagger(CONFIG, 0.0)
    times = [number / rate_per_s for number in range(int(rate_per_s * for_s))]
    return [at_s for at_s in times if tagger.tags(rng, at_s)]


def test_the_first_publication_of_every_window_is_tagged() -> None:
    assert tagged(1 / 60, 600.0) == [60.0 * number for number in range(10)]


def test_at_most_n_publications_are_tagged_in_a_window() -> None:
    assert len(tagged(1_000.0, 59.9)) == CONFIG.pop_window_count


def test_the_window_begins_anew_after_w() -> None:
    times = tagged(100.0, 120.0)
    assert sum(at_s < 60 for at_s in times) == 50
    assert sum(at_s >= 60 for at_s in times) == 50


def test_a_running_average_weighs_the_newest_value_with_a_quarter() -> None:
    profile = Profile()
    for count in (8, 4, 0):
        profile = profile.with_result(0, {"B2": count}, 0.25)
    assert profile.by_neighbour == {"B2": 0.75 * (0.75 * 8 + 0.25 * 4)}


def test_a_neighbour_that_appears_later_has_had_nothing_before() -> None:
    profile = Profile().with_result(2, {}, 0.25).with_result(2, {"B2": 4}, 0.25)
    assert profile.by_neighbour == {"B2": 1.0}


def test_a_result_that_does_not_come_counts_nothing_after_a_while() -> None:
    traces = PopTraces(CONFIG)
    traces.saw(("P", 1), "B0", 1, ["B2", "B3"], 5.0)
    traces.heard(("P", 1), "B2", 6)
    assert traces.next_overdue_s() == 35.0
    (result,) = traces.overdue(35.0)
    assert (result.to, result.subscribers_count) == ("B0", 7)
    assert traces.heard(("P", 1), "B3", 9) is None, "too late"


def test_what_is_known_of_a_publisher_that_moves_is_forgotten() -> None:
    traces = PopTraces(CONFIG)
    traces.saw(("P", 1), "", 1, [], 0.0)
    traces.saw(("P", 2), "", 1, ["B2"], 0.0)
    traces.forget("P")
    assert (traces.profiles, traces.outstanding_count("P")) == ({}, 0)


def test_memory_is_bounded() -> None:
    traces = PopTraces(RelocationConfig(traces_max_count=10))
    for number in range(100):
        traces.saw((f"P{number}", 1), "", 1, ["B2"], 0.0)
        traces.saw((f"Q{number}", 1), "", 1, [], 0.0)
    assert len(traces.profiles) <= 10
    assert sum(traces.outstanding_count(f"P{number}") for number in range(100)) <= 10


def test_what_is_overdue_at_the_time_told_is_given_up_then_whatever_the_rounding() -> None:
    rng = Random(1)
    for number in range(1_000):
        traces = PopTraces(RelocationConfig(answer_timeout_s=1.0))
        traces.saw(("P", number), "B0", 1, ["B2"], rng.uniform(0, 1_000))
        due_s = traces.next_overdue_s()
        assert due_s is not None
        assert len(traces.overdue(due_s)) == 1
