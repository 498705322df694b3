"""A broker that knows nothing learns its routes in two waves; its neighbours forget what was not told again."""

from __future__ import annotations

from random import Random

import pytest

from tests.broker.told_broker import ToldBroker
from tests.client.slow import Slow
from tests.transcripts import OtherEnd
from trimtab.language import Filter
from trimtab.protocol.events import LinkRemoved
from trimtab.protocol.frames import Hello
from trimtab.protocol.messages import VERSION

NUMBERS = Filter.parse("[n,isPresent,0]")


def new_broker(level: str = "received") -> ToldBroker:
    told = ToldBroker()
    told.happens(f"a new {level} broker B with neighbours N1 N2")
    return told


def broker(level: str = "received") -> ToldBroker:
    told = ToldBroker()
    told.happens(f"a {level} broker B with neighbours N1 N2")
    return told


# ---- the waves ----


def test_a_telling_is_complete_when_all_others_have_completed_theirs_and_clients_are_known() -> None:
    told = new_broker()
    assert told.happens("N1 greets") == ["to N1: Members B", "to N1: ClientRecords"]
    assert told.happens("from N1: Synced") == []
    assert told.happens("from N1: ClientRecords") == []
    assert told.happens("N2 greets") == ["to N1: Members N2", "to N2: Members B N1", "to N2: ClientRecords"]
    assert told.happens("from N2: ClientRecords") == ["to N2: Synced"], "N2 does not wait for itself"
    assert told.happens("from N2: Synced") == [
        "to N1: Synced",
        "to N1: SubscriptionsWanted",
        "to N2: SubscriptionsWanted",
    ]


def test_it_is_complete_when_all_subscriptions_are_told() -> None:
    told = new_broker()
    for name in ("N1", "N2"):
        told.happens(f"{name} greets")
        told.happens(f"from {name}: ClientRecords")
        told.happens(f"from {name}: Synced")
    assert told.happens("from N2: SubscriptionsTold") == []
    assert told.broker.takeover.is_learning
    assert told.happens("from N1: SubscriptionsTold") == ["to N1: Swept B N2", "to N2: Swept B N1"]
    assert not told.broker.takeover.is_learning


def test_repeated_and_late_answers_change_nothing() -> None:
    told = new_broker()
    for said in ("Synced", "ClientRecords", "SubscriptionsTold") * 2:
        for name in ("N1", "N2"):
            if name not in told.peers:
                told.happens(f"{name} greets")
            told.happens(f"from {name}: {said}")
    assert not told.broker.takeover.is_learning
    for said in ("Synced", "ClientRecords version 7, records (s, stay 1)", "SubscriptionsTold"):
        assert told.happens(f"from N1: {said}") == []
    assert "s" not in told.broker.peers


def test_nothing_is_confirmed_and_no_data_passes_before_it_is_complete() -> None:
    told = new_broker()
    told.happens("s greets with stay 1")
    assert told.happens("from s: Subscribe s/s1, number 1") == []
    told.happens("N1 tells all")
    assert told.happens("from N1: Publish q, sequence 1") == []
    told.happens("N2 greets")
    for said in ("Members N2", "ClientRecords", "Synced"):
        told.happens(f"from N2: {said}")
    assert told.happens("from N2: SubscriptionsTold") == [
        "to s: Confirmed s/s1, number 1",
        "to s: Publish q, sequence 1",
        "to N1: Swept B N2",
        "to N2: Swept B N1",
    ]


def test_a_neighbour_that_has_not_told_all_yet_holds_up_what_came_from_others() -> None:
    """This broker knows all its routes, but a neighbour has lost its memory, and what is behind it is not known."""
    told = broker()
    told.happens("N1 greets, started again")
    told.happens("from N2: Subscribe r/s1, number 1")
    assert "Confirmed" not in str(told.happens("from N2: Subscribe r/s2, number 2"))
    assert told.happens("from N1: Subscribe r/s3, number 1") == ["to N1: Confirmed r/s3, number 1"]
    assert told.happens("from N1: Synced") == [
        "to N2: Confirmed r/s1, number 1",
        "to N2: Confirmed r/s2, number 2",
    ]


def test_a_neighbour_that_is_replaced_half_way_is_asked_again() -> None:
    told = new_broker()
    for name in ("N1", "N2"):
        told.happens(f"{name} greets")
        for said in (f"Members {name}", "ClientRecords", "Synced"):
            told.happens(f"from {name}: {said}")
    told.happens("from N1: SubscriptionsTold")
    told.happens("N1 greets, started again")
    assert told.happens("from N2: SubscriptionsTold") == []
    assert told.broker.takeover.is_learning
    told.happens("from N1: ClientRecords")
    assert "to N1: SubscriptionsWanted" in told.happens("from N1: Synced")
    told.happens("from N1: SubscriptionsTold")
    assert not told.broker.takeover.is_learning


def knew_the_one_before(told: ToldBroker, name: str) -> list[str]:
    """A neighbour greets that had a link to the incarnation before, of which nobody has told this one."""
    told.peers[name] = OtherEnd()
    told.connect(name, Hello(VERSION, "broker", name, "1", 1, "1"))
    return told.said()


def test_it_learns_again_with_a_neighbour_of_the_incarnation_before_that_nobody_told_of() -> None:
    """That one came shortly before the death; it waits to hear what is known now, and has data for who was there."""
    told = new_broker()
    for name in ("N1", "N2"):
        told.happens(f"{name} tells all")
    assert "to G: Synced" not in knew_the_one_before(told, "G"), "it may have kept records"
    told.happens("from G: Members G")
    told.happens("from G: Advertise q/a1, number 1")
    assert told.happens("from G: Publish q, sequence 1") == [], "nobody has said yet who wants it"
    assert told.happens("from G: ClientRecords") == ["to G: Synced"]
    assert told.happens("from G: Synced") == [f"to {name}: SubscriptionsWanted" for name in ("N1", "N2", "G")]
    told.happens("from N1: Subscribe r/s1, number 1")
    told.happens("from G: SubscriptionsTold")
    told.happens("from N1: SubscriptionsTold")
    said = told.happens("from N2: SubscriptionsTold")
    assert [line for line in said if "Publish" in line] == ["to N1: Publish q, sequence 1"]
    assert [line for line in said if "Swept" in line] == [
        "to N1: Swept B N2 G",
        "to N2: Swept B N1 G",
        "to G: Swept B N1 N2",
    ]


def test_a_neighbour_that_is_new_makes_nobody_learn_again() -> None:
    told = new_broker()
    for name in ("N1", "N2"):
        told.happens(f"{name} tells all")
    told.happens("G greets")
    assert not told.broker.takeover.is_learning


def test_records_that_come_so_late_count_if_they_are_later_than_those_that_were_known() -> None:
    for version, is_known in ((2, False), (4, True)):
        told = new_broker("safe")
        for name, kept in (("N1", "ClientRecords version 3, records (r, stay 1)"), ("N2", "ClientRecords")):
            told.happens(f"{name} greets")
            for said in (f"Members {name}", kept, "Synced", "SubscriptionsTold"):
                told.happens(f"from {name}: {said}")
        knew_the_one_before(told, "G")
        told.happens(f"from G: ClientRecords version {version}, records (r, stay 1) (s, stay 1)")
        assert ("s" in told.broker.peers) == is_known
        told.happens("from G: Synced")
        lines = [line for name in ("N1", "N2", "G") for line in told.happens(f"from {name}: SubscriptionsTold")]
        assert f"count {1 + is_known}" in next(line for line in lines if "GuardAll" in line), "the guardian learns all"


def test_a_neighbour_that_is_taken_away_owes_nothing() -> None:
    told = new_broker()
    told.happens("N1 tells all")
    told.happens("N2 greets")
    assert told.broker.takeover.is_learning
    told.happens("the link to N2 is removed")
    told.happens("from N1: SubscriptionsTold")
    assert not told.broker.takeover.is_learning


def test_so_does_one_that_has_never_come() -> None:
    told = new_broker()
    told.happens("N1 tells all")
    told.handle(LinkRemoved("N2"))
    told.happens("from N1: SubscriptionsTold")
    assert not told.broker.takeover.is_learning


def restart(network: Slow, *names: str) -> None:
    """Brokers die together, and their next incarnations begin together."""
    pairs = [pair for pair in network.wires if pair[0] in names]
    links = {frozenset(pair): pair for pair in pairs}
    for first, second in links.values():
        network.cut(first, second)
    for name in names:
        network.add_broker(name)
    for first, second in links.values():
        network.connect(first, second)


@pytest.mark.parametrize("died", [("F",), ("F", "G"), ("N1", "F"), ("N1", "F", "G", "N2")])
@pytest.mark.parametrize("seed", range(5))
def test_adjacent_takeovers_do_not_wait_for_each_other(died: tuple[str, ...], seed: int) -> None:
    names = ("N1", "F", "G", "N2")
    network = Slow(Random(seed), names, (("N1", "F"), ("F", "G"), ("G", "N2")))
    network.client("p", "N1").advertise(NUMBERS, 0.0)
    network.client("s", "N2").subscribe(NUMBERS, 0.0)
    network.rest()
    restart(network, *died)
    network.rest()
    assert not any(broker.takeover.is_learning for broker in network.brokers.values())
    network.clients["p"].publish({"n": 1}, 0.0)
    network.rest()
    assert network.delivered("s", "p") == [1]
    assert network.misleading_routes() == []


# ---- routes only grow, and are swept ----


def test_an_advertisement_whose_end_is_not_done_is_told_again_before_what_it_announced() -> None:
    """P has published and left, and N1 died before it had passed that on: its successor must know whom it is for."""
    told = broker("safe")
    told.happens("from N1: Subscribe r/s1, number 1")
    told.happens("a publisher p")
    told.happens("the connection to N1 breaks")
    told.happens("from p: Publish p, sequence 1")
    told.happens("from p: Unadvertise p/a1, number 1")
    told.happens("N2 guards everything")
    said = [line for line in told.happens("N1 greets, started again") if "p/a1" in line or "Publish" in line]
    assert said == ["to N1: Advertise p/a1", "to N1: Publish p, sequence 1", "to N1: Unadvertise p/a1, number 2"]


def test_one_whose_end_is_done_is_not() -> None:
    told = broker("safe")
    told.happens("a publisher p")
    told.happens("from p: Unadvertise p/a1, number 1")
    assert "p/a1" not in str(told.happens("N1 greets, started again"))


def test_one_that_is_covered_by_another_is_told_as_well() -> None:
    """What was told to the earlier incarnation may be needed, whatever covers it since."""
    told = broker("safe")
    told.happens("a publisher p")
    told.happens("the connection to N1 breaks")
    told.happens("from p: Advertise p/a2, number 2")
    told.happens("from p: Unadvertise p/a1, number 1")
    said = [line for line in told.happens("N1 greets, started again") if "p/a" in line]
    assert said[:2] == ["to N1: Advertise p/a2, number 5", "to N1: Advertise p/a1"]
    assert said[2:] == ["to N1: Unadvertise p/a1, number 3"]


def test_ended_advertisements_are_remembered_no_longer_than_their_ends_are_retained() -> None:
    told = broker("safe")
    told.happens("a publisher p")
    for number in range(2, 300):
        told.happens(f"from p: Advertise p/a{number}, number {number}")
        told.happens(f"from p: Unadvertise p/a{number - 1}, number {number}")
        assert len(told.broker.peers["N1"].told_of) <= 65
    told.happens("the connection to N1 breaks")
    for number in range(300, 500):
        told.happens(f"from p: Advertise p/a{number}, number {number}")
        told.happens(f"from p: Unadvertise p/a{number - 1}, number {number}")
    assert len(told.broker.peers["N1"].told_of) >= 200, "none of their ends has been heard"


def test_what_an_incarnation_does_not_tell_again_stays_until_it_has_told_all() -> None:
    told = broker()
    told.happens("from N2: Advertise q/a1, number 1")
    for id in ("r/s1", "r/s2"):
        told.happens(f"from N1: Subscribe {id}, number 1")
    told.happens("from N1: Advertise p/a1, number 1")
    told.happens("N1 greets, started again")
    told.happens("from N1: Subscribe r/s1, number 1")
    assert (list(told.broker.tables.subscriptions), list(told.broker.tables.advertisements)) == (
        ["r/s1", "r/s2"],
        ["q/a1", "p/a1"],
    )
    said = told.happens("from N1: Swept N1")
    assert (list(told.broker.tables.subscriptions), list(told.broker.tables.advertisements)) == (["r/s1"], ["q/a1"])
    assert [line for line in said if "Un" in line] == ["to N2: Unadvertise p/a1, number 4"]


def test_an_advertisement_ends_behind_what_came_from_the_earlier_incarnation() -> None:
    """Whoever that goes to has its routes by it."""
    told = broker("safe")
    told.happens("from N1: Advertise p/a1, number 1")
    told.happens("from N2: Subscribe r/s1, number 1")
    told.says("N1", "Publish p, sequence 1")
    told.happens("N1 greets, started again")
    told.says("N1", "Swept N1")
    told.steps()
    said = [line for line in told.said() if line.startswith("to N2")]
    assert said == ["to N2: Publish p, sequence 1", "to N2: Unadvertise p/a1, number 2"]


def test_a_route_that_is_not_told_again_yet_takes_publications() -> None:
    told = broker("safe")
    told.happens("from N2: Advertise q/a1, number 1")
    told.happens("from N1: Subscribe r/s1, number 1")
    told.happens("N1 greets, started again")
    assert told.happens("from N2: Publish q, sequence 1") == ["to N1: Publish q, sequence 1"]


def test_what_came_from_an_earlier_incarnation_pulls_nothing_before_it_is_told_again() -> None:
    """The next incarnation asks for subscriptions when it has told all advertisements."""
    told = broker()
    told.happens("a subscriber s")
    told.happens("from N1: Advertise q/a1, number 1")
    assert "Subscribe s/s1" not in str(told.happens("N1 greets, started again"))
    assert "to N1: Subscribe s/s1" in str(told.happens("from N1: Advertise q/a1, number 1"))


# ---- what was said in an earlier epoch of a link ----


def test_control_of_an_earlier_epoch_is_void() -> None:
    told = broker()
    told.says("N1", "Subscribe r/s1, number 1")
    told.says("N1", "Synced")
    told.happens("N1 greets, started again")
    told.steps()
    assert told.broker.tables.subscriptions == {}
    told.happens("from N2: Subscribe r/s2, number 1")
    assert "Confirmed" not in str(told.said()), "N1 has not told all in this epoch"


def test_data_of_an_earlier_epoch_goes_on() -> None:
    told = broker("safe")
    told.happens("from N1: Advertise p/a1, number 1")
    told.happens("from N2: Subscribe r/s1, number 1")
    told.says("N1", "Publish p, sequence 1")
    told.happens("N1 greets, started again")
    told.steps()
    assert told.said() == ["to N2: Publish p, sequence 1"]


@pytest.mark.parametrize(("is_told_again", "left"), [(True, ["p/a1"]), (False, [])])
def test_an_end_of_an_earlier_epoch_does_not_end_what_was_told_again_since(
    is_told_again: bool, left: list[str]
) -> None:
    told = broker("safe")
    told.happens("from N1: Advertise p/a1, number 5")
    told.says("N1", "Unadvertise p/a1, number 5")
    told.happens("N1 greets, started again")
    if is_told_again:
        told.says("N1", "Advertise p/a1, number 1")
    told.steps()
    assert list(told.broker.tables.advertisements) == left


def test_an_end_does_not_end_a_later_telling() -> None:
    """The end of an earlier telling may come behind a later one, which overtakes it."""
    told = broker()
    told.happens("from N1: Advertise p/a1, number 5")
    told.happens("from N1: Advertise p/a1, number 8")
    told.happens("from N1: Unadvertise p/a1, number 5")
    assert list(told.broker.tables.advertisements) == ["p/a1"]
    told.happens("from N1: Unadvertise p/a1, number 8")
    assert list(told.broker.tables.advertisements) == []


def test_what_a_neighbour_ends_while_it_learns_stays_until_it_has_told_all() -> None:
    """The one that it ends may be a client's that moved to it; others of its side have yet to tell it the same."""
    told = broker()
    told.happens("from N1: Subscribe r/s1, number 1")
    told.happens("N1 greets, started again")
    told.happens("from N1: Subscribe r/s1, number 1")
    told.happens("from N1: Unsubscribe r/s1")
    assert list(told.broker.tables.subscriptions) == ["r/s1"]
    told.happens("from N1: Subscribe r/s1, number 2")
    told.happens("from N1: Swept B")
    assert list(told.broker.tables.subscriptions) == ["r/s1"]
    told.happens("from N1: Unsubscribe r/s1")
    assert list(told.broker.tables.subscriptions) == []


def test_a_handover_waits_for_what_died_with_the_earlier_incarnation() -> None:
    told = new_broker()
    for name, count in (("N1", 1), ("N2", 2)):
        told.happens(f"{name} greets")
        told.happens(f"from {name}: Members {name}")
        told.happens(f"from {name}: ClientRecords")
        told.happens(f"from {name}: Synced tail count {count}")
    told.happens("from N2: Advertise p/a1, number 1")
    told.happens("from N1: Subscribe r/s1, number 1")
    told.happens("from N1: SubscriptionsTold")
    told.happens("from N2: SubscriptionsTold")
    assert told.happens("from N1: Handover s, stay 2, old broker N2, new broker N1") == []
    assert told.happens("from N2: Publish p, sequence 1") == ["to N1: Publish p, sequence 1"]
    assert told.happens("from N2: Publish p, sequence 2") == [
        "to N1: Publish p, sequence 2",
        "to N2: Handover s, stay 2, old broker N2, new broker N1",
    ]
