"""What a publisher says at its new broker does not overtake what it said at its old one, whichever link dies."""

from __future__ import annotations

from tests.broker.told_broker import ToldBroker
from trimtab.broker.moves.streams import Held, Streams
from trimtab.protocol.messages import Complete, Passing, Publish


def publication(sequence: int, stay: int, session: str = "1") -> Publish:
    return Publish(publisher="p", session=session, sequence=sequence, values={}, origin_s=0.0, stay=stay)


def passing(stay: int) -> Passing:
    return Passing(client="p", session="1", stay=stay)


def complete(stay: int) -> Complete:
    return Complete(client="p", session="1", stay=stay, new_broker="B3")


def hold(streams: Streams, *publications: Publish) -> None:
    for each in publications:
        assert streams.must_hold(each)
        streams.hold("B3", each, None)


def released(held: list[Held]) -> list[int]:
    return [message.sequence for _, message, _ in held if isinstance(message, Publish)]


def test_only_the_stay_whose_end_is_to_come_and_later_ones_are_held() -> None:
    streams = Streams()
    streams.passing("B1", passing(2))
    assert [streams.must_hold(publication(1, stay)) for stay in (1, 2, 3)] == [False, True, True]
    assert not streams.must_hold(publication(1, 2, session="another"))


def test_the_end_of_a_stay_lets_go_what_waited_for_it_and_not_what_waits_for_a_later_one() -> None:
    streams = Streams()
    streams.passing("B1", passing(2))
    streams.passing("B1", passing(3))
    hold(streams, publication(1, 2), publication(2, 2), publication(3, 3))
    assert released(streams.passed(complete(2))) == [1, 2]
    assert streams.held_count == 1
    assert released(streams.passed(complete(3))) == [3]
    assert (bool(streams), streams.held_count) == (False, 0)


def test_the_end_of_a_later_stay_ends_the_earlier_ones() -> None:
    streams = Streams()
    streams.passing("B1", passing(2))
    streams.passing("B4", passing(3))
    hold(streams, publication(1, 2), publication(2, 3))
    assert released(streams.passed(complete(3))) == [1, 2]


def test_a_neighbour_that_says_anew_what_it_will_send_is_not_waited_for_twice() -> None:
    streams = Streams()
    streams.passing("B1", passing(2))
    streams.passing("B4", passing(2))
    hold(streams, publication(1, 2))
    streams.epoch_began("B1")
    streams.passing("B1", passing(2))
    assert released(streams.told_all("B1")) == []
    assert released(streams.gone("B4")) == []
    assert released(streams.gone("B1")) == [1]
    assert not streams


def test_what_a_neighbour_has_announced_counts_until_it_has_told_all_anew() -> None:
    streams = Streams()
    streams.passing("B1", passing(2))
    hold(streams, publication(1, 2))
    streams.epoch_began("B1")
    assert streams.must_hold(publication(2, 2))
    assert streams.told_no_more_by("B1") == []
    assert released(streams.told_all("B1")) == [1]
    assert not streams


def test_an_end_that_nobody_has_told_of_changes_nothing() -> None:
    streams = Streams()
    streams.passing("B1", passing(3))
    hold(streams, publication(1, 3))
    assert released(streams.passed(complete(2))) == []
    assert streams.held_count == 1


def test_what_was_held_goes_on_behind_the_old_stream() -> None:
    """P has moved from behind B1 to B3; B2 died with the old stream, which B1 sends to its successor."""
    told = ToldBroker()
    told.happens("a safe broker B2 with neighbours B1 B3")
    told.happens("a subscriber s")
    told.happens("from B1: Advertise p/a1, number 1")
    told.happens("from B3: Advertise p/a1, number 1")
    told.happens("from B1: Passing p, stay 2")
    assert told.happens("from B3: Publish p, sequence 3, stay 2") == []
    assert told.happens("from B1: Publish p, sequence 1") == ["to s: Publish p, sequence 1"]
    assert told.happens("from B1: Publish p, sequence 2") == ["to s: Publish p, sequence 2"]
    assert told.happens("from B1: Complete p, stay 2, new broker B3") == [
        "to B3: Complete p, stay 2, new broker B3",
        "to s: Publish p, sequence 3, stay 2",
    ]
    assert told.happens("from B3: Publish p, sequence 4, stay 2") == ["to s: Publish p, sequence 4, stay 2"]


def test_a_handover_does_not_overtake_what_is_held_of_its_source() -> None:
    """S moves from here to B3, which sent a publication here alone, before it took s in."""
    told = ToldBroker()
    told.happens("a safe broker B2 with neighbours B1 B3")
    told.happens("a subscriber s")
    told.happens("from B3: Advertise p/a1, number 1")
    told.happens("from B1: Passing p, stay 2")
    told.happens("from B3: Publish p, sequence 3, stay 2")
    handover = "Handover s, stay 2, old broker B2, new broker B3"
    assert told.happens(f"from B3: {handover}") == []
    said = told.happens("from B1: Complete p, stay 2, new broker B3")
    said += told.happens("B1 guards everything")
    assert said.index("to s: Publish p, sequence 3, stay 2") < said.index("to s: End stay 2")
    assert told.broker.held_count == 0


def test_who_has_the_end_of_a_stream_in_what_it_sends_again_says_so_before() -> None:
    told = ToldBroker()
    told.happens("a safe broker B1 with neighbours B0 B2")
    told.happens("a publisher p")
    told.happens("from B2: Handover p, stay 2, old broker B1, new broker B2, publishes")
    told.happens("the connection to B2 breaks")
    told.happens("B0 guards everything")
    said = told.happens("B2 greets, started again")
    assert said[-2:] == ["to B2: Unadvertise p/a1, number 2", "to B2: Complete p, stay 2, new broker B2, publishes"]
    assert "to B2: Passing p, stay 2" in said[:-2]


def test_what_is_held_is_not_done() -> None:
    """B3 retains it: if this broker dies as well, it comes again."""
    told = ToldBroker()
    told.happens("a safe broker B2 with neighbours B1 B3")
    told.happens("from B1: Passing p, stay 2")
    told.happens("from B3: Publish p, sequence 3, stay 2")
    told.happens("from B3: Publish q, sequence 1")
    assert told.reported_done["B3"] == 0
    told.happens("from B1: Complete p, stay 2, new broker B3")
    told.happens("from B3: Publish q, sequence 2")
    assert told.reported_done["B3"] == 3
