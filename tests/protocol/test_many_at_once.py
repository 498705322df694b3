"""Taking and encoding many messages at once gives the same frames as one after the other."""

from trimtab.protocol.codec import FrameReader, FrameWriter
from trimtab.protocol.frames import Payload
from trimtab.protocol.link import Link, LinkConfig
from trimtab.protocol.messages import AnyMessage, Publish, Unsubscribe


def publish(sequence: int) -> Publish:
    return Publish(publisher="p", sequence=sequence, values={"a": sequence}, origin_s=0.5)


def link_with(messages: list[AnyMessage], window: int = 1_000) -> Link:
    link = Link(LinkConfig(window_frames_count=window))
    link.connect(1, 0.0)
    for message in messages:
        link.enqueue(message, 0.0)
    return link


MESSAGES: list[AnyMessage] = [publish(1), publish(2), Unsubscribe(id="s"), publish(3)]


def test_the_frames_are_those_of_take() -> None:
    one_by_one = link_with(MESSAGES)
    expected = [one_by_one.take(1.0) for _ in MESSAGES]
    first, ack, messages = link_with(MESSAGES).take_new(10, 1.0)
    data = b"".join(FrameWriter().encode_new(first, ack, messages))
    assert list(FrameReader().feed(data)) == expected


def test_no_more_are_taken_than_wanted_and_than_the_window_holds() -> None:
    link = link_with(MESSAGES, window=3)
    assert link.take_new(2, 1.0) == (1, 0, [MESSAGES[2], MESSAGES[0]])
    assert link.take_new(2, 1.0) == (3, 0, [MESSAGES[1]])
    assert link.take_new(2, 1.0) == (4, 0, [])


def test_what_must_be_sent_again_goes_first() -> None:
    link = link_with(MESSAGES)
    link.take_new(2, 1.0)
    link.disconnect()
    link.connect(1, 2.0)
    assert link.take_new(10, 2.0)[2] == []
    assert [link.take(2.0) for _ in range(2)] == [Payload(1, 0, MESSAGES[2]), Payload(2, 0, MESSAGES[0])]
    assert link.take_new(10, 2.0) == (3, 0, [MESSAGES[1], MESSAGES[3]])
