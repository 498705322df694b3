"""A link is first in, first out and lossless, whatever happens to its frames and connections."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trimtab.protocol.frames import Ack, Payload
from trimtab.protocol.link import Link, LinkConfig
from trimtab.protocol.messages import Publish, Unsubscribe


def publication(sequence: int) -> Publish:
    return Publish(publisher="p", sequence=sequence, values={}, origin_s=0.0)


def connected_pair(config: LinkConfig | None = None) -> tuple[Link, Link]:
    here, there = Link(config or LinkConfig()), Link(config or LinkConfig())
    here.connect(1, 0.0)
    there.connect(1, 0.0)
    return here, there


def test_control_overtakes_data_that_has_no_number_yet() -> None:
    here, _ = connected_pair()
    here.enqueue(publication(1), 0.0)
    here.enqueue(Unsubscribe(id="s"), 0.0)
    assert here.take(0.0) == Payload(1, 0, [Unsubscribe(id="s"), publication(1)])


def test_a_full_window_holds_the_sender_back_until_an_acknowledgement_comes() -> None:
    here, there = connected_pair(LinkConfig(window_frames_count=1))
    here.enqueue(publication(1), 0.0)
    here.enqueue(publication(2), 0.0)
    first = here.take(0.0)
    assert isinstance(first, Payload)
    assert here.take(0.0) is None
    there.receive(first, 0.0)
    acknowledgement = there.take(0.0)
    assert acknowledgement == Ack(1)
    here.receive(acknowledgement, 0.0)
    assert here.take(0.0) == Payload(2, 0, [publication(2)])


def test_after_a_reconnection_only_what_the_peer_has_not_seen_is_sent_again() -> None:
    here, there = connected_pair()
    for sequence in (1, 2):
        here.enqueue(publication(sequence), 0.0)
    first, lost = here.take(0.0, 1), here.take(0.0, 1)
    assert isinstance(first, Payload)
    there.receive(first, 0.0)
    here.disconnect()
    there.disconnect()
    here.connect(there.expects, 1.0)
    assert here.take(1.0) == lost
    assert here.take(1.0) is None


def test_a_gap_is_reported_and_mended() -> None:
    here, there = connected_pair()
    for sequence in (1, 2):
        here.enqueue(publication(sequence), 0.0)
    here.take(0.0, 1)
    second = here.take(0.0, 1)
    assert isinstance(second, Payload)
    assert there.receive(second, 0.0) == []
    report = there.take(0.0)
    assert report == Ack(0, gap=True)
    here.receive(report, 0.0)
    assert here.take(0.0) == Payload(1, 0, [publication(1), publication(2)])


def test_messages_of_a_frame_that_are_repeated_are_dropped_and_the_others_taken() -> None:
    _, there = connected_pair()
    assert there.receive(Payload(1, 0, [publication(1), publication(2)]), 0.0) == [publication(1), publication(2)]
    assert there.receive(Payload(2, 0, [publication(2), publication(3)]), 0.0) == [publication(3)]
    assert there.take(0.0) == Ack(3)


def test_a_part_of_a_frame_can_be_acknowledged() -> None:
    here, _ = connected_pair()
    for sequence in (1, 2, 3):
        here.enqueue(publication(sequence), 0.0)
    here.take(0.0)
    here.receive(Ack(2), 0.0)
    here.disconnect()
    here.connect(3, 1.0)
    assert here.take(1.0) == Payload(3, 0, [publication(3)])


def test_without_credit_data_waits_and_control_goes_on() -> None:
    here, there = connected_pair(LinkConfig(data_window_count=2))
    for sequence in (1, 2, 3):
        here.enqueue(publication(sequence), 0.0)
    frame = here.take(0.0)
    assert frame == Payload(1, 0, [publication(1), publication(2)])
    there.receive(frame, 0.0)
    there.data_arrived(2)
    here.enqueue(Unsubscribe(id="s"), 0.0)
    here.receive(Ack(2), 0.0)  # arrived, but not dealt with
    assert here.take(0.0) == Payload(3, 0, [Unsubscribe(id="s")])
    assert not here.has_frame()
    assert there.did()
    acknowledgement = there.take(0.0)
    assert acknowledgement == Ack(2, done=1)
    here.receive(acknowledgement, 0.0)
    assert here.take(0.0) == Payload(4, 0, [publication(3)])


def test_credit_is_told_when_half_of_the_window_is_dealt_with() -> None:
    _, there = connected_pair(LinkConfig(data_window_count=4))
    there.receive(Payload(1, 0, [publication(sequence) for sequence in (1, 2, 3, 4)]), 0.0)
    there.data_arrived(4)
    assert there.take(0.0) == Ack(4)
    assert (there.did(), there.has_frame()) == (False, False)
    assert (there.did(), there.take(0.0)) == (True, Ack(4, done=2))
    assert there.did_all_but(0)


def test_credit_that_was_lost_with_its_frame_is_asked_for() -> None:
    here, there = connected_pair(LinkConfig(data_window_count=1, retransmit_after_s=2.0))
    here.enqueue(publication(1), 0.0)
    here.enqueue(publication(2), 0.0)
    frame = here.take(0.0)
    assert frame is not None
    there.receive(frame, 0.0)
    there.data_arrived(1)
    here.receive(Ack(1), 0.0)
    there.did()
    assert there.take(0.0) == Ack(1, done=1)  # this one is lost
    assert here.wake_at_s() == 2.0
    here.wake(2.0)
    question = here.take(2.0)
    assert question == Ack(0, asks=True)
    there.receive(question, 2.0)
    answer = there.take(2.0)
    assert answer is not None
    here.receive(answer, 2.0)
    assert here.take(2.0) == Payload(2, 0, [publication(2)])


def test_credit_is_told_again_after_a_reconnection() -> None:
    _, there = connected_pair()
    there.receive(Payload(1, 0, [publication(1)]), 0.0)
    there.data_arrived(1)
    there.did()
    there.take(0.0)
    there.disconnect()
    there.connect(1, 1.0)
    assert there.take(1.0) == Ack(1, done=1)


def test_a_peer_cannot_claim_more_credit_than_it_was_sent() -> None:
    here, _ = connected_pair(LinkConfig(data_window_count=1))
    here.receive(Ack(0, done=1_000), 0.0)
    here.enqueue(publication(1), 0.0)
    here.enqueue(publication(2), 0.0)
    assert here.take(0.0) == Payload(1, 0, [publication(1)])


def test_without_acknowledgement_everything_is_sent_again_after_a_while() -> None:
    here, _ = connected_pair(LinkConfig(retransmit_after_s=2.0))
    here.enqueue(publication(1), 0.0)
    here.take(0.0)
    assert here.wake_at_s() == 2.0
    here.wake(1.0)
    assert here.take(1.0) is None
    here.wake(2.0)
    assert here.take(2.0) == Payload(1, 0, [publication(1)])


@given(
    count=st.integers(1, 12),
    fates=st.lists(st.sampled_from(["pass", "drop", "double", "break"]), max_size=60),
    window=st.integers(1, 4),
    data_window=st.integers(1, 4),
    at_once=st.integers(1, 5),
)
def test_any_mixture_of_losses_repetitions_and_breaks_delivers_each_once_in_order(
    count: int, fates: list[str], window: int, data_window: int, at_once: int
) -> None:
    here, there = connected_pair(LinkConfig(window_frames_count=window, data_window_count=data_window))
    for sequence in range(1, count + 1):
        here.enqueue(publication(sequence), 0.0)
    received: list[int] = []
    now_s = 0.0
    remaining = list(fates)
    while not here.idle:
        now_s += 1.0
        here.wake(now_s)
        for source, target in ((here, there), (there, here)):
            while (frame := source.take(now_s, at_once)) is not None:
                fate = remaining.pop(0) if remaining else "pass"
                if fate == "break":
                    for link, other in ((here, there), (there, here)):
                        link.disconnect()
                        link.connect(other.expects, now_s)
                for _ in range({"pass": 1, "double": 2}.get(fate, 0)):
                    for message in target.receive(frame, now_s):
                        assert isinstance(message, Publish)
                        received.append(message.sequence)
                        target.data_arrived(1)
                        assert target.undone_count <= data_window
                        target.did()
        assert now_s < 1_000
    assert received == list(range(1, count + 1))


@given(st.integers(1, 6), st.integers(0, 3), st.booleans())
def test_a_run_of_frames_is_taken_in_as_one_by_one(count: int, said_count: int, repeats: bool) -> None:
    here, there = connected_pair()
    other, again = connected_pair()
    for end in (there, again):
        for number in range(said_count):
            end.enqueue(publication(number + 1), 0.0)
        end.take(0.0)
    for link in (here, other):
        link.receive(Payload(1, 0, [publication(number + 1) for number in range(said_count)]), 0.5)
        link.data_arrived(said_count)
        link.did(said_count)
    for sequence in range(1, count + 1):
        here.enqueue(publication(sequence), 1.0)
    frames = []
    while isinstance(frame := here.take_one(1.0)[0], Payload):
        frames.append(frame)
    run = [*frames, frames[-1]] if repeats else frames
    is_taken = there.receive_run([(2.0 + place, frame) for place, frame in enumerate(run)])
    assert is_taken is not repeats
    if is_taken:
        for place, frame in enumerate(run):
            again.receive(frame, 2.0 + place)
            again.data_arrived(1)
        assert (there.expects, there.undone_count, there.idle) == (again.expects, again.undone_count, again.idle)
        assert there.take(9.0) == again.take(9.0)


def test_a_heartbeat_leaves_at_once_and_is_answered() -> None:
    here, there = connected_pair()
    here.enqueue(publication(1), 0.0)
    question = here.heartbeat(asks=True)
    assert question == Ack(0, asks=True)
    assert there.receive(question, 0.1) == []
    assert there.take(0.1) == Ack(0)
    assert here.take(0.1) == Payload(1, 0, [publication(1)])
    here.disconnect()
    assert here.heartbeat(asks=True) is None
