"""Local detection (thesis, sections 3.3.2.1 and 3.3.2.3)."""

from __future__ import annotations

import pytest

from tests.policies.padres.loads import broker, known
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction, Reason, Status
from trimtab.policies.padres.detection import (
    BrokerAction,
    Detection,
    History,
    Reading,
    Trigger,
    balanced_with,
    detect_local,
    is_settled,
    with_reading,
)
from trimtab.policies.padres.empty_sessions import EmptySessions
from trimtab.policies.padres.snapshot import BrokerLoad

CONFIG = PadresConfig()


def detect(
    ours: BrokerLoad,
    *others: BrokerLoad,
    now_s: float = 0.0,
    history: History | None = None,
    fruitless: EmptySessions | None = None,
) -> Detection:
    return detect_local(
        ours, known(*others), history or History(), now_s, CONFIG, fruitless=fruitless or EmptySessions()
    )


def asked(detection: Detection) -> list[tuple[str, LoadIndex]]:
    assert isinstance(detection.outcome, Trigger), detection.outcome
    return [(each.broker, each.action) for each in detection.outcome.ask]


def test_two_brokers_within_the_threshold_do_not_trigger_offload() -> None:
    found = detect(broker("B1", 0.59), broker("B2", 0.5))
    assert (found.status, found.outcome, found.balanced_with) == (Status.OK, NoAction(Reason.BALANCED), ("B2",))


def test_only_the_more_loaded_of_two_brokers_acts() -> None:
    assert asked(detect(broker("B1", 0.7), broker("B2", 0.5))) == [("B2", LoadIndex.INPUT)]
    assert detect(broker("B2", 0.5), broker("B1", 0.7)).outcome == NoAction(Reason.BALANCED)


def test_the_largest_difference_is_asked_first_whatever_its_index() -> None:
    found = detect(
        broker("B1", 0.6, 0.6, matching_delay_s=0.05),
        broker("B2", 0.4, 0.6, matching_delay_s=0.05),
        broker("B3", 0.6, 0.2, matching_delay_s=0.05),
        broker("B4", 0.6, 0.6, matching_delay_s=0.02),
    )
    assert asked(found) == [
        ("B3", LoadIndex.OUTPUT),
        ("B4", LoadIndex.MATCH),
        ("B2", LoadIndex.INPUT),
    ]


def test_every_broker_has_a_card_that_says_why_it_is_asked_or_not() -> None:
    found = detect(broker("B1", 0.7), broker("B2", 0.5), broker("B3", 0.65), broker("B4", 0.3, status=Status.BUSY))
    assert [(card.broker, card.chosen, card.why) for card in found.cards] == [
        ("B4", False, "its status is BUSY"),
        ("B2", True, "we exceed it by 0.200 in input"),
        ("B3", False, "within the threshold, or more loaded than we are"),
    ]


def test_a_busy_broker_does_nothing() -> None:
    assert detect(broker("B1", 0.99, status=Status.BUSY), broker("B2", 0.1)).outcome == NoAction(Reason.BUSY)


def test_between_the_thresholds_a_broker_neither_accepts_nor_gives() -> None:
    found = detect(broker("B1", 0.93), broker("B2", 0.1))
    assert (found.status, found.outcome) == (Status.NOT_AVAILABLE, NoAction(Reason.INERT))


def test_but_not_for_ever() -> None:
    history = History()
    for at_s in (0.0, 30.0, 59.0):
        history = with_reading(history, broker("B1", 0.93), at_s, CONFIG)
        assert detect(broker("B1", 0.93), broker("B2", 0.1), now_s=at_s, history=history).outcome == NoAction(
            Reason.INERT
        )
    found = detect(broker("B1", 0.93), broker("B2", 0.1), now_s=60.0, history=history)
    assert (found.status, asked(found)) == (Status.NOT_AVAILABLE, [("B2", LoadIndex.INPUT)])
    assert with_reading(history, broker("B1", 0.8), 61.0, CONFIG).inert_since_s is None
    assert with_reading(history, broker("B1", 0.96), 61.0, CONFIG).inert_since_s is None


@pytest.mark.parametrize(
    ("ours", "action"),
    [
        (broker("B1", 0.96, 1.5), LoadIndex.INPUT),
        (broker("B1", 0.5, 0.96), LoadIndex.OUTPUT),
        (broker("B1", 0.5, 0.96, cpu_utilization_ratio=0.97), LoadIndex.MATCH),
        (broker("B1", 0.5, 0.5, memory_utilization_ratio=0.96), LoadIndex.MATCH),
    ],
)
def test_the_overloaded_resource_decides_what_is_balanced(ours: BrokerLoad, action: LoadIndex) -> None:
    found = detect(ours, broker("B2", 0.1, 0.1))
    assert (found.status, asked(found)) == (Status.NOT_AVAILABLE, [("B2", action)])


def test_an_overloaded_broker_asks_the_least_loaded_first_and_never_the_unavailable() -> None:
    found = detect(
        broker("B1", 0.99),
        broker("B2", 0.6),
        broker("B3", 0.4),
        broker("B4", 0.2, status=Status.STABILIZING),
        broker("B5", 0.1, status=Status.NOT_AVAILABLE),
    )
    assert asked(found) == [("B3", LoadIndex.INPUT), ("B2", LoadIndex.INPUT), ("B4", LoadIndex.INPUT)]


def test_an_overloaded_broker_without_anybody_to_ask_calls_for_help() -> None:
    found = detect(broker("B1", 0.99), broker("B2", 0.92, status=Status.NOT_AVAILABLE))
    assert (found.call_for_help, found.outcome) == (True, NoAction(Reason.NOBODY_AVAILABLE))
    assert detect(broker("B1", 0.99)).outcome == NoAction(Reason.NOBODY_KNOWN)


def test_overloaded_brokers_go_first() -> None:
    others = broker("B2", 0.3), broker("B3", 0.97, status=Status.NOT_AVAILABLE)
    assert detect(broker("B1", 0.7), *others).outcome == NoAction(Reason.OVERLOADED_FIRST, "B3")
    assert asked(detect(broker("B1", 0.97), *others)) == [("B2", LoadIndex.INPUT)]
    assert asked(detect(broker("B1", 0.7), *others, now_s=120.0)) == [("B2", LoadIndex.INPUT)], "but not for ever"


def test_a_broker_that_is_unavailable_without_acting_stops_nobody() -> None:
    inert = broker("B3", 0.92, status=Status.NOT_AVAILABLE)
    assert asked(detect(broker("B1", 0.7), broker("B2", 0.3), inert)) == [("B2", LoadIndex.INPUT)]


def readings(*inputs: tuple[float, float]) -> History:
    return History(tuple(Reading(at_s, broker("B1", ratio)) for at_s, ratio in inputs), session_ended_s=100.0)


def test_after_a_session_a_broker_waits_at_least_the_stabilize_duration() -> None:
    steady = readings((60.0, 0.7), (110.0, 0.7))
    found = detect(broker("B1", 0.7), broker("B2", 0.5), now_s=129.0, history=steady)
    assert (found.status, found.outcome) == (Status.STABILIZING, NoAction(Reason.STABILIZING))
    assert detect(broker("B1", 0.7), broker("B2", 0.5), now_s=130.0, history=steady).status == Status.OK


def test_and_until_its_indices_change_little() -> None:
    assert not is_settled(readings((110.0, 0.7), (170.0, 0.64)), 170.0, CONFIG)
    assert is_settled(readings((110.0, 0.7), (170.0, 0.66)), 170.0, CONFIG)
    assert not is_settled(History((), 100.0), 150.0, CONFIG)


def test_over_a_whole_interval_of_60_s() -> None:
    assert not is_settled(readings((111.0, 0.7), (170.0, 0.7)), 170.0, CONFIG)
    assert is_settled(readings((111.0, 0.7), (171.0, 0.7)), 171.0, CONFIG)


def test_an_overload_does_not_wait() -> None:
    found = detect(broker("B1", 0.99), broker("B2", 0.5), now_s=101.0, history=readings((100.0, 0.5)))
    assert isinstance(found.outcome, Trigger)
    assert found.outcome.overloaded


def test_readings_are_kept_as_long_as_stabilising_needs_them() -> None:
    history = History()
    for at_s in (0.0, 30.0, 60.0, 90.0, 120.0):
        history = with_reading(history, broker("B1"), at_s, CONFIG)
    assert [each.at_s for each in history.readings] == [60.0, 90.0, 120.0]


def test_the_balanced_set_holds_those_within_the_thresholds_in_every_index() -> None:
    ours = broker("B1", 0.5, 0.5)
    others = [broker("B2", 0.58), broker("B3", 0.65), broker("B4", 0.5, 0.35), broker("B5", matching_delay_s=0.031)]
    assert balanced_with(ours, others, EmptySessions(), 0.0, CONFIG) == ("B2",)


def test_the_list_is_what_the_mediator_takes() -> None:
    found = detect(broker("B1", 0.7), broker("B2", 0.5))
    assert isinstance(found.outcome, Trigger)
    assert found.outcome.ask == (BrokerAction("B2", LoadIndex.INPUT),)
    assert not found.outcome.overloaded


# Sessions that found nothing to move


def test_an_index_in_which_nothing_could_be_moved_is_left_alone_for_a_while() -> None:
    ours, other = broker("B1", 0.7, 0.9), broker("B2", 0.5, 0.5)
    tries = EmptySessions().gave_nothing("B2", LoadIndex.OUTPUT, 100.0)
    assert asked(detect(ours, other, now_s=99.0)) == [("B2", LoadIndex.OUTPUT)]
    assert asked(detect(ours, other, now_s=110.0, fruitless=tries)) == [("B2", LoadIndex.INPUT)]
    assert asked(detect(ours, other, now_s=160.0, fruitless=tries)) == [("B2", LoadIndex.OUTPUT)]
    tries = tries.gave_nothing("B2", LoadIndex.INPUT, 105.0)
    found = detect(ours, other, now_s=110.0, fruitless=tries)
    assert found.outcome == NoAction(Reason.BALANCED)
    assert [card.why for card in found.cards] == ["a plan for it found nothing to move a short while ago"]


def test_both_brokers_count_as_balanced_in_what_could_not_be_levelled() -> None:
    high, low = broker("B1", 0.5, 0.9), broker("B2", 0.5, 0.5)
    gave = EmptySessions().gave_nothing("B2", LoadIndex.OUTPUT, 100.0)
    took = EmptySessions().took_nothing("B1", LoadIndex.OUTPUT, 100.0)
    assert detect(high, low, now_s=150.0).balanced_with == ()
    assert detect(high, low, now_s=150.0, fruitless=gave).balanced_with == ("B2",)
    assert detect(low, high, now_s=150.0, fruitless=took).balanced_with == ("B1",)
    assert detect(high, low, now_s=221.0, fruitless=gave).balanced_with == (), "long ago"
    assert detect(low, high, now_s=150.0, fruitless=gave).balanced_with == (), "the other way round"


def test_an_overloaded_broker_that_could_not_be_relieved_calls_for_help_and_soon_asks_again() -> None:
    tries = EmptySessions().gave_nothing("B2", LoadIndex.INPUT, 100.0)
    found = detect(broker("B1", 0.97), broker("B2", 0.2), now_s=110.0, fruitless=tries)
    assert (found.outcome, found.call_for_help) == (NoAction(Reason.NOBODY_AVAILABLE), True)
    assert asked(detect(broker("B1", 0.97), broker("B2", 0.2), now_s=120.0, fruitless=tries)) == [
        ("B2", LoadIndex.INPUT)
    ]
