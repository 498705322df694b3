"""Data is retained until it is done, which is not when it is processed; markers wait for no more than arrival."""

from __future__ import annotations

from trimtab.broker.replication.retention import Item, RetainingLink, Retention
from trimtab.protocol.frames import Ack, Payload
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.messages import AnyMessage, Complete, Handover, Publish, Unsubscribe, is_control

PUBLICATION_BYTES = 320
"""What a publication counts for that was not encoded."""


def publication(sequence: int) -> Publish:
    return Publish(publisher="p", sequence=sequence, values={}, origin_s=0.0)


def link(retention: Retention | None = None, config: LinkConfig | None = None) -> RetainingLink:
    made = RetainingLink(config or LinkConfig(), retention or Retention())
    made.connect(1, 0.0)
    return made


def transmit(here: RetainingLink, there: RetainingLink) -> None:
    """Send all from here, and back what is to be said of it."""
    while (frame := here.take(0.0)) is not None:
        messages = there.receive(frame, 0.0)
        there.data_arrived(sum(not is_control(message) for message in messages))
    while (frame := there.take(0.0)) is not None:
        here.receive(frame, 0.0)


def hand_on(retention: Retention, source: str, index: int, *outs: RetainingLink, is_marker: bool = False) -> Item:
    """The turn of an item comes, and one publication of it goes to each of these."""
    item = retention.begin(source, index, index, is_marker=is_marker)
    for out in outs:
        out.data.append(publication(index))
        retention.note(out)
    retention.end(item)
    return item


def first_index(retention: Retention, source: str = "B1") -> int | None:
    """The place of the first item that waits."""
    first = retention.first_waiting(source)
    return None if first is None else first.index


# ---- links ----


def test_what_has_arrived_is_retained_until_it_is_done() -> None:
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


def test_what_is_sent_again_is_retained_once() -> None:
    here, there = link(), link()
    here.enqueue(publication(1), 0.0)
    assert isinstance(here.take(0.0), Payload)
    here.disconnect()
    here.connect(1, 1.0)
    transmit(here, there)
    assert here.undelivered_data() == [publication(1)]
    assert here.arrived_count == 1


def test_what_is_processed_gives_credit_although_it_is_not_done() -> None:
    here, there = link(config=LinkConfig(data_window_count=2)), link()
    for sequence in range(1, 6):
        here.enqueue(publication(sequence), 0.0)
    transmit(here, there)
    assert here.data_sent_count == 2, "a window is under way"
    assert not here.has_more_than_ack()
    there.did(2)
    transmit(there, here)
    transmit(here, there)
    assert here.data_sent_count == 4, "two more, for two were processed"
    assert (here.done_count, len(here.undelivered_data())) == (0, 5)


def test_what_is_done_is_told_beside_the_credit() -> None:
    _, there = link(), link()
    there.receive(Payload(1, 0, [publication(1), publication(2)]), 0.0)
    there.data_arrived(2)
    there.did(2)
    assert there.take(0.0) == Ack(2, done=0, credit=2)
    there.tell_done(2)
    assert there.take(0.0) == Ack(2, done=2, credit=2)


def test_a_peer_cannot_report_more_done_than_it_was_sent() -> None:
    here = link()
    here.enqueue(publication(1), 0.0)
    here.take(0.0)
    here.enqueue(publication(2), 0.0)
    here.receive(Ack(1, done=1_000, credit=1_000), 0.0)
    assert here.undelivered_data() == [publication(2)]
    assert here.done_count == 1


def test_what_is_retained_is_bounded_in_bytes_and_control_goes_on() -> None:
    here, there = link(config=LinkConfig(retained_max_bytes=2 * PUBLICATION_BYTES)), link()
    for sequence in (1, 2):
        here.enqueue(publication(sequence), 0.0)
    transmit(here, there)
    there.did(2)
    transmit(there, here)
    here.enqueue(publication(3), 0.0)
    assert not here.has_frame(), "there is credit, but no room to retain it"
    here.enqueue(Unsubscribe(id="s1"), 0.0)
    assert here.take(0.0) == Payload(3, 0, [Unsubscribe(id="s1")], 0, 0)
    assert here.data_sent_count == 2
    there.tell_done(1)
    transmit(there, here)
    assert here.data_sent_count == 3
    assert here.undelivered_data() == [publication(2), publication(3)]


def test_a_peer_that_comes_back_is_told_again_what_is_done() -> None:
    here, there = link(), link()
    here.enqueue(publication(1), 0.0)
    transmit(here, there)
    there.did()
    there.tell_done(1)
    there.take(0.0)  # lost with the connection
    for end, other in ((here, there), (there, here)):
        end.disconnect()
        end.connect(other.expects, 1.0)
    transmit(there, here)
    assert here.undelivered_data() == []


def test_what_was_said_in_an_earlier_epoch_is_no_step_of_this_one() -> None:
    there = link()
    there.begin_behind(1)
    there.receive(Payload(1, 0, [publication(7)]), 0.0)
    there.data_arrived(1)
    there.did()
    assert there.stepped_count == 0, "that was the stale one"
    there.did()
    assert there.stepped_count == 1


# ---- items ----


def test_items_of_a_source_are_done_in_their_order() -> None:
    retention = Retention()
    fast, slow = link(retention), link(retention)
    hand_on(retention, "B1", 1, fast, slow)
    hand_on(retention, "B1", 2, fast)
    hand_on(retention, "B1", 3)
    transmit(fast, link())
    assert first_index(retention) == 1
    transmit(slow, link())
    assert first_index(retention) is None
    assert retention.sources() == []


def test_an_item_of_which_it_is_not_known_what_comes_holds_those_behind_it() -> None:
    retention = Retention()
    held = retention.begin("B1", 1, 1)
    hand_on(retention, "B1", 2)
    assert first_index(retention) == 1
    retention.clear()
    retention.end(held)
    assert first_index(retention) is None


def test_what_was_noted_before_an_item_went_on_does_not_come_of_it() -> None:
    retention = Retention()
    out = link(retention)
    held = retention.begin("B1", 1, 1)
    out.data.append(publication(9))
    retention.note(out)
    retention.clear()
    retention.end(held)
    assert first_index(retention) is None


def test_nobody_waits_for_a_client_that_has_left() -> None:
    retention = Retention()
    out = link(retention)
    hand_on(retention, "B1", 1, out)
    assert first_index(retention) == 1
    out.is_gone = True
    assert first_index(retention) is None


def test_what_was_sent_to_a_dead_broker_waits_for_its_successor() -> None:
    retention = Retention()
    old, there = link(retention), link()
    for index in (1, 2):
        hand_on(retention, "B1", index, old)
        if index == 1:
            transmit(old, there)
            there.did()
            there.tell_done(1)
            transmit(there, old)
    new = link(retention)
    new.data.extend(old.undelivered_data())
    retention.relink(old, new)
    assert first_index(retention) == 2
    transmit(new, link())
    assert first_index(retention) is None


def test_end_to_end_a_publication_is_done_when_it_has_reached_its_destinations() -> None:
    retention = Retention(is_end_to_end=True)
    here, there = link(retention), link()
    hand_on(retention, "B1", 1, here)
    transmit(here, there)
    assert (here.arrived_count, first_index(retention)) == (1, 1)
    there.did()
    there.tell_done(1)
    retention.has_news = False
    transmit(there, here)
    assert retention.has_news
    assert first_index(retention) is None


def test_a_marker_is_done_when_it_has_arrived_but_not_before_what_stands_before_it() -> None:
    retention = Retention(is_end_to_end=True)
    here, there = link(retention), link()
    hand_on(retention, "B1", 1, here)
    hand_on(retention, "B1", 2, here, is_marker=True)
    assert retention.waits_for_arrivals
    transmit(here, there)
    assert first_index(retention) == 1
    there.did(2)
    there.tell_done(1)
    transmit(there, here)
    assert first_index(retention) is None
    assert not retention.waits_for_arrivals


def test_arrivals_are_news_only_where_something_waits_for_them() -> None:
    retention = Retention(is_end_to_end=True)
    here, there = link(retention), link()
    news = []
    for index, is_marker in ((1, False), (2, True)):
        hand_on(retention, "B1", index, here, is_marker=is_marker)
        transmit(here, there)
        news.append(retention.has_news)
    assert news == [False, True]
    retention.forget("B1")
    assert not retention.waits_for_arrivals


class End:
    """A broker at the end of a link to another one, at the level durable; it answers a handover with its end."""

    def __init__(self) -> None:
        self.retention = Retention(is_end_to_end=True)
        self.link = link(self.retention)
        self.other: End
        self.stepped_count = 0

    def receive(self) -> None:
        """Take in what the other sends, answer, and say what is done."""
        while (frame := self.other.link.take(0.0)) is not None:
            messages = self.link.receive(frame, 0.0)
            self.link.data_arrived(len(messages))
            for message in messages:
                self.step(message)
        first = self.retention.first_waiting("other")
        self.link.tell_done(self.stepped_count if first is None else first.index - 1)

    def step(self, message: AnyMessage) -> None:
        """The turn of a marker comes."""
        self.stepped_count += 1
        self.link.did()
        item = self.retention.begin("other", self.stepped_count, 0, is_marker=True)
        if isinstance(message, Handover):
            self.link.enqueue(Complete(client=message.client, session="1", stay=2, new_broker="B"), 0.0)
            self.retention.note(self.link)
        self.retention.end(item)


def test_two_markers_that_cross_do_not_wait_for_each_other() -> None:
    """Each is answered, and the answer stands behind the marker of the other side, which waits for its own answer."""
    ends = here, there = End(), End()
    here.other, there.other = there, here
    for end in ends:
        end.link.enqueue(Handover(client="s", session="1", stay=2, old_broker="A", new_broker="B"), 0.0)
    for _ in range(6):
        for end in ends:
            end.receive()
    for end in ends:
        assert end.retention.first_waiting("other") is None
        assert end.link.undelivered_data() == []


def test_a_source_that_goes_on_under_another_name_keeps_its_order() -> None:
    retention = Retention()
    out = link(retention)
    hand_on(retention, "p", 1, out)
    hand_on(retention, "#disk p", 5)
    retention.rename("p", "#disk p")
    assert retention.first_waiting("p") is None
    assert [first_index(retention, "#disk p"), retention.sources()] == [1, ["#disk p"]]


def test_bytes_that_are_passed_on_count_as_they_are() -> None:
    here = link(config=LinkConfig(retained_max_bytes=12))
    for text in (b"eleven", b"bytes", b"more", b"too much"):
        here.enqueue(text, 0.0)
    taken = [here.take(0.0, 1) for _ in range(4)]
    assert [each.messages if each is not None else None for each in taken if not isinstance(each, Ack)] == [
        [b"eleven"],
        [b"bytes"],
        [b"more"],
        None,
    ]


def test_a_marker_goes_over_a_link_that_retains_all_it_may() -> None:
    here = link(config=LinkConfig(retained_max_bytes=PUBLICATION_BYTES))
    here.enqueue(publication(1), 0.0)
    here.take(0.0)
    here.enqueue(Handover(client="s", session="1", stay=2, old_broker="A", new_broker="B"), 0.0)
    frame = here.take(0.0)
    assert isinstance(frame, Payload) and [type(each) for each in frame.messages] == [Handover]
