"""What the nemesis does follows from its seed."""

from __future__ import annotations

from itertools import islice

import pytest

from trimtab.lab.bench.nemesis.schedule import BROKERS, LEVELS, TREE, Level, ScheduleOptions, link_events, rounds


@pytest.mark.parametrize("level", LEVELS)
def test_the_same_seed_gives_the_same_schedule(level: Level) -> None:
    options = ScheduleOptions(level, 7)
    assert list(islice(rounds(options), 200)) == list(islice(rounds(options), 200))
    assert list(islice(link_events(options), 200)) == list(islice(link_events(options), 200))
    other = ScheduleOptions(level, 8)
    assert list(islice(rounds(options), 20)) != list(islice(rounds(other), 20))


def test_at_safe_one_broker_dies_at_a_time_and_the_next_waits() -> None:
    found = list(islice(rounds(ScheduleOptions("safe", 3)), 500))
    assert all(len(each.events) == 1 and each.waits for each in found)
    assert {each.events[0].broker for each in found} == set(BROKERS)


def test_at_durable_several_die_at_once_also_neighbours_and_all() -> None:
    found = list(islice(rounds(ScheduleOptions("durable", 3)), 500))
    dead = [{event.broker for event in each.events if event.kind == "kill"} for each in found]
    assert any(names == set(BROKERS) for names in dead)
    assert any(set(ends) <= names for names in dead if len(names) == 2 for ends in TREE)
    assert any(not each.waits for each in found)
    assert all(len({event.broker for event in each.events}) == len(each.events) for each in found)


@pytest.mark.parametrize("level", LEVELS)
def test_a_short_run_has_each_kind(level: Level) -> None:
    options = ScheduleOptions(level, 11)
    drawn = [event.kind for each in islice(rounds(options), 30) for event in each.events]
    assert set(drawn) == set(options.kinds)
    if level == "safe":
        assert sorted(drawn[: len(options.kinds)]) == sorted(options.kinds)
    assert len({event.kind for event in islice(link_events(options), 4)}) == 4
