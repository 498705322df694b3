"""The emergency application: the generator, and a short run end to end on Spark and real brokers."""

from __future__ import annotations

from trimtab.operations.emergency.application import EmergencyWorld, definitions_at_speed
from trimtab.operations.emergency.run import EmergencyOptions, run_emergency


def test_the_generated_city_has_the_papers_numbers() -> None:
    world = EmergencyWorld(1)
    wants = [wanted for person in world.people for wanted in person.wants]
    assert len(world.people) == 400 and len(world.shelters) == 200 and world.ticks_count == 180
    assert sum(len(world.reports(tick)) for tick in range(180)) == 10_000
    assert 1_800 <= len(wants) <= 2_600  # theirs: 2,200
    assert 450 <= len(set(wants)) <= 800  # theirs: 610
    again = EmergencyWorld(1)
    assert world.people == again.people and world.reports(3) == again.reports(3)
    assert world.places(5) == again.places(5)


def test_periods_follow_the_speed_of_the_run() -> None:
    text = definitions_at_speed(20.0)
    assert "PERIOD 0.500 SECONDS" in text and "PERIOD 10 SECONDS" not in text


def test_every_notification_comes_once_and_in_order_while_subscribers_move() -> None:
    summary = run_emergency(EmergencyOptions(people_count=15, minutes=1.2, speed=50.0, policy="gsh"))
    assert summary.notifications_count == summary.expected_count > 300
    assert (summary.missing_count, summary.twice_count, summary.wrong_count, summary.out_of_order_count) == (0, 0, 0, 0)
    assert summary.moves > 0
