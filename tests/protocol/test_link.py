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
    frames = [here.take(0.0), here.take(0.0)]
    assert [frame.message for frame in frames if isinstance(frame, Payload)] == [Unsubscribe(id="s"), publication(1)]


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
    assert here.take(0.0) == Payload(2, 0, publication(2))


def test_after_a_reconnection_only_what_the_peer_has_not_seen_is_sent_again() -> None:
    here, there = connected_pair()
    for sequence in (1, 2):
        here.enqueue(publication(sequence), 0.0)
    first, lost = here.take(0.0), here.take(0.0)
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
    here.take(0.0)
    second = here.take(0.0)
    assert isinstance(second, Payload)
    assert there.receive(second, 0.0) == []
    report = there.take(0.0)
    assert report == Ack(0, gap=True)
    here.receive(report, 0.0)
    assert [here.take(0.0), here.take(0.0)] == [Payload(1, 0, publication(1)), Payload(2, 0, publication(2))]


def test_without_acknowledgement_everything_is_sent_again_after_a_while() -> None:
    here, _ = connected_pair(LinkConfig(retransmit_after_s=2.0))
    here.enqueue(publication(1), 0.0)
    here.take(0.0)
    assert here.wake_at_s() == 2.0
    here.wake(1.0)
    assert here.take(1.0) is None
    here.wake(2.0)
    assert here.take(2.0) == Payload(1, 0, publication(1))


@given(
    count=st.integers(1, 12),
    fates=st.lists(st.sampled_from(["pass", "drop", "double", "break"]), max_size=60),
    window=st.integers(1, 4),
)
def test_any_mixture_of_losses_repetitions_and_breaks_delivers_each_once_in_order(
    count: int, fates: list[str], window: int
) -> None:
    here, there = connected_pair(LinkConfig(window_frames_count=window))
    for sequence in range(1, count + 1):
        here.enqueue(publication(sequence), 0.0)
    received: list[int] = []
    now_s = 0.0
    remaining = list(fates)
    while not here.idle:
        now_s += 1.0
        here.wake(now_s)
        for source, target in ((here, there), (there, here)):
            while (frame := source.take(now_s)) is not None:
                fate = remaining.pop(0) if remaining else "pass"
                if fate == "break":
                    for link, other in ((here, there), (there, here)):
                        link.disconnect()
                        link.connect(other.expects, now_s)
                for _ in range({"pass": 1, "double": 2}.get(fate, 0)):
                    for message in target.receive(frame, now_s):
                        assert isinstance(message, Publish)
                        received.append(message.sequence)
        assert now_s < 1_000
    assert received == list(range(1, count + 1))
