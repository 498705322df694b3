"""Data is kept until it is handed on, and done when it has arrived everywhere."""

from trimtab.protocol.frames import Payload
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.messages import Publish, Unsubscribe
from trimtab.replication.handed_on import HandedOn
from trimtab.replication.safe_link import SafeLink


def publication(sequence: int) -> Publish:
    return Publish(publisher="p", sequence=sequence, values={}, origin_s=0.0)


def link(handed_on: HandedOn | None = None) -> SafeLink:
    made = SafeLink(LinkConfig(), (handed_on or HandedOn()).note, lambda: None)
    made.connect(1, 0.0)
    return made


def transmit(here: SafeLink, there: SafeLink) -> None:
    """Send all from here, and back what is to be said of it."""
    while (frame := here.take(0.0)) is not None:
        messages = there.receive(frame, 0.0)
        there.data_arrived(sum(isinstance(message, Publish) for message in messages))
    while (frame := there.take(0.0)) is not None:
        here.receive(frame, 0.0)


def test_what_has_arrived_is_kept_until_it_is_done() -> None:
    here, there = link(), link()
    here.enqueue(publication(1), 0.0)
    here.enqueue(Unsubscribe(id="s1"), 0.0)
    here.enqueue(publication(2), 0.0)
    transmit(here, there)
    here.enqueue(publication(3), 0.0)
    assert here.arrived_count == 2
    assert here.undelivered_data() == [publication(1), publication(2), publication(3)]
    there.did(2)
    assert there.tell_done(1)
    transmit(here, there)
    assert here.undelivered_data() == [publication(2), publication(3)]


def test_what_is_sent_again_is_kept_once() -> None:
    here, there = link(), link()
    here.enqueue(publication(1), 0.0)
    assert isinstance(here.take(0.0), Payload)
    here.disconnect()
    here.connect(1, 1.0)
    transmit(here, there)
    assert here.undelivered_data() == [publication(1)]
    assert here.arrived_count == 1


def test_publications_of_a_source_are_done_in_their_order() -> None:
    handed_on = HandedOn()
    fast, slow = link(handed_on), link(handed_on)
    for index, outs in ((1, [fast, slow]), (2, [fast]), (3, [])):
        handed_on.begin()
        for out in outs:
            out.data.append(publication(index))
        handed_on.end("B1", index, index)
    transmit(fast, link())
    first = handed_on.first_waiting("B1")
    assert first is not None and first.index == 1
    transmit(slow, link())
    assert handed_on.first_waiting("B1") is None
    assert handed_on.sources() == []


def test_nobody_waits_for_a_client_that_has_left() -> None:
    handed_on = HandedOn()
    out = link(handed_on)
    handed_on.begin()
    out.data.append(publication(1))
    handed_on.end("B1", 1, 1)
    out.is_gone = True
    assert handed_on.first_waiting("B1") is None


def test_what_was_sent_to_a_dead_broker_waits_for_its_replica() -> None:
    handed_on = HandedOn()
    old, there = link(handed_on), link()
    for index in (1, 2):
        handed_on.begin()
        old.data.append(publication(index))
        handed_on.end("B1", index, index)
        if index == 1:
            transmit(old, there)
            there.did()
            there.tell_done(1)
            transmit(there, old)
    new = link(handed_on)
    for message in old.undelivered_data():
        new.data.append(message)
    handed_on.relink(old, new)
    first = handed_on.first_waiting("B1")
    assert first is not None and first.index == 2
    transmit(new, link())
    assert handed_on.first_waiting("B1") is None
