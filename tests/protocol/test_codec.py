"""Every message survives the wire, and nothing but frames passes it."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab import Filter
from trimtab.protocol.codec import FRAME_MAX_BYTES, FrameReader, ProtocolError, decode_frame, encode_frame
from trimtab.protocol.frames import (
    BATCH_MAX_COUNT,
    Ack,
    AssistReply,
    AssistRequest,
    Frame,
    Goodbye,
    Hello,
    LinkReply,
    LinkRequest,
    MoveReply,
    MoveRequest,
    Payload,
    PlaceReply,
    PlaceRequest,
    PolicyReply,
    PolicyRequest,
    ReplaceReply,
    ReplaceRequest,
    ReplicaReply,
    ReplicaRequest,
    WhereReply,
    WhereRequest,
)
from trimtab.protocol.messages import (
    Accepted,
    Advertise,
    AnyMessage,
    ChannelConfirmed,
    ClientRecord,
    ClientRecords,
    Complete,
    Confirmed,
    ControlPublish,
    End,
    Gap,
    GapQuestion,
    Gone,
    Guard,
    GuardAll,
    Guarded,
    Handover,
    KnownAdvertisement,
    KnownSubscription,
    Leaving,
    Limited,
    Measure,
    Measured,
    Members,
    MoveIn,
    Neighbours,
    OneWay,
    Passing,
    Progress,
    Publish,
    Redirect,
    Refused,
    Relieved,
    Resume,
    Sent,
    Stay,
    Stayed,
    Stranded,
    Subscribe,
    SubscribeChannel,
    SubscriptionsTold,
    SubscriptionsWanted,
    Swept,
    Synced,
    TwoWays,
    Unadvertise,
    Unsubscribe,
    one_hop_further,
)
from trimtab.protocol.snapshots import (
    AdvertisementTold,
    PublicationTold,
    PublisherTold,
    Snapshot,
    SnapshotRequest,
    SubscriptionTold,
)

FILTER = Filter.parse("class = 'STOCK' AND volume BETWEEN 1 AND 5 AND symbol LIKE 'Y_O%' AND flag <> true AND x = *")
RECORD = ClientRecord(
    "c",
    "5f3a",
    2,
    burned=4,
    old_broker="B1",
    publishes=True,
    leaving_for=5,
    subscriptions=(KnownSubscription("c/s1", FILTER, 0.2),),
    advertisements=(KnownAdvertisement("c/a1", FILTER),),
)
MESSAGES: list[AnyMessage] = [
    Advertise(id="a1", filter=FILTER, number=3, cause="c"),
    Unadvertise(id="a1", number=3),
    Subscribe(id="s1", filter=FILTER),
    Unsubscribe(id="s1"),
    Confirmed(id="s1", number=4),
    Publish(
        publisher="p",
        sequence=2**63 - 1,
        values={"a": 1, "b": 1.5, "c": "ü\n", "d": True},
        origin_s=1.25,
        session="5f3a",
        stay=2,
        hops=3,
    ),
    ControlPublish(publisher="B1/a", sequence=1, values={"class": "LOCAL_PIE", "a": 0.5}, origin_s=1.25),
    Accepted(publisher="p", sequence=7),
    Refused(about="s1", reason="no"),
    Limited(reason="more than 100 publications per second; what is beyond waits"),
    Members(names=("B1", "B2"), addresses=("127.0.0.1:7001", "")),
    Leaving(),
    Gone(names=("B1",)),
    Synced(),
    MoveIn(stay=2, old_broker="B1", subscriptions=(KnownSubscription("c/s1", FILTER, 0.2),), cause="c/m1"),
    MoveIn(stay=2, old_broker="B1", advertisements=(KnownAdvertisement("c/a1", FILTER),), publishes=True),
    Handover(client="c", session="5f3a", stay=2, old_broker="B1", new_broker="B3", cause="c/m1"),
    Handover(client="c", session="5f3a", stay=2, old_broker="B1", new_broker="B3", publishes=True),
    Complete(client="c", session="5f3a", stay=2, new_broker="B3", publishes=True, cause="c/m1"),
    Complete(client="c", session="5f3a", stay=2, new_broker="B3", is_lost=True),
    Resume(stay=2),
    Stranded(stay=2),
    End(stay=2, cause="c/m1"),
    Stay(stay=2, cause="c/m1"),
    Stayed(stay=2),
    Neighbours(names=("B1",), addresses=("127.0.0.1:7001",)),
    SubscriptionsWanted(),
    SubscriptionsTold(),
    Swept(),
    Swept(names=("B1", "B2"), addresses=("", "127.0.0.1:7002")),
    Passing(client="p", session="5f3a", stay=2),
    Guard(version=7, record=RECORD, ended=("c/s0",)),
    Guard(version=8, record=ClientRecord("c", "", 0), is_over=True),
    GuardAll(version=9, count=3),
    Guarded(version=9),
    ClientRecords(version=9, records=(RECORD, ClientRecord("d", "1", 1))),
    ClientRecords(),
    Progress(origin="B1", number=3, sent=(Sent("p", "5f3a", 7),)),
    Gap(id="B2 x 1", reason="B2 was started again", is_wide=True),
    Gap(id="B2 x 1", publisher="p", session="5f3a", last=9, filters=(FILTER,), has_crossed=True),
    Gap(id="", publisher="p", session="5f3a", first=3, last=5, is_own=True),
    GapQuestion(id="B2 x 1"),
    Relieved(),
    TwoWays(number=7),
    OneWay(number=7),
    Measure(brokers=("B1", "B2"), addresses=("h:1", ""), cause="trace/grape/B1/P/1"),
    Measured(round_trips_s={"B1": 0.001}, cause="trace/grape/B1/P/1"),
    Redirect(broker="B2", address="127.0.0.1:7002", cause="B1/lb1"),
    SubscribeChannel(id="c1", channel="OfType", arguments={"event": "flood", "level": 3, "near": 0.5}, after=7),
    ChannelConfirmed(id="c1", position=7),
    Subscribe(id="s2", filter=FILTER, within_s=1.5),
]


def test_no_message_is_forgotten_here() -> None:
    assert {type(message) for message in MESSAGES} == set(get_args(AnyMessage))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_message_is_read_back_as_it_was(message: AnyMessage) -> None:
    frame = Payload(3, 2, [message])
    assert decode_frame(encode_frame(frame)[4:]) == frame


@pytest.mark.parametrize(
    "frame",
    [
        Hello(1, "client", "c", "s", 4),
        Hello(2, "client", "c", "s", 4, "t", version_min=2, stay=3, burned=2),
        Hello(2, "broker", "B2", "s", 1, "t", epoch=4, granted=3, elsewhere={"B1": "127.0.0.1:7001"}, order="any"),
        Hello(1, "broker", "B2~", "s", 1, replica="incremental", assists="B2", reorders=True),
        Ack(3, gap=True),
        Ack(3, done=1, asks=True, credit=2),
        Goodbye("too slow"),
        LinkRequest("add", "B2", "127.0.0.1:7002"),
        LinkReply(False, "a cycle"),
        MoveRequest("c", "B2"),
        MoveReply(False, "no way leads to B2"),
        ReplaceRequest("B2", "basic"),
        ReplaceReply(False, "B2 lives"),
        ReplicaRequest("B2", "synchronous", (("B1", "127.0.0.1:7001"), ("B3", "")), "127.0.0.1:7002"),
        ReplicaReply(True),
        AssistRequest("B2", "incremental", True),
        AssistReply(False, "B2 does not live"),
        SnapshotRequest(2.5),
        Snapshot(
            is_last=True,
            sampled_s=2.5,
            left_out_count=3,
            subscriptions=(SubscriptionTold("c", FILTER, 1.5), SubscriptionTold("d", FILTER)),
            advertisements=(AdvertisementTold("p", FILTER),),
            publishers=(PublisherTold("p", 7, 312.5),),
            publications=(PublicationTold("p", {"a": 1, "b": 2.5, "c": "text", "d": True}),),
        ),
        Snapshot(is_last=True, problem="too many ask"),
        PolicyRequest("padres"),
        PolicyReply(False, "no policy is called magic"),
        WhereRequest("B2"),
        WhereReply("127.0.0.1:7002"),
        PlaceRequest("c", (1.5, 2.0)),
        PlaceRequest("c"),
        PlaceReply("B2", "127.0.0.1:7002"),
        PlaceReply("", reason="no broker has reported yet"),
    ],
    ids=lambda f: type(f).__name__,
)
def test_every_other_frame_is_read_back_as_it_was(frame: Frame) -> None:
    assert decode_frame(encode_frame(frame)[4:]) == frame


def test_the_value_types_of_a_publication_survive() -> None:
    decoded = decode_frame(encode_frame(Payload(1, 0, [MESSAGES[5]]))[4:])
    assert isinstance(decoded, Payload)
    (message,) = decoded.messages
    assert isinstance(message, Publish)
    assert [type(value) for value in message.values.values()] == [int, float, str, bool]


def test_a_publication_is_passed_on_as_it_came_with_one_hop_more() -> None:
    (message,) = sent_and_read(Payload(1, 0, [MESSAGES[5]])).messages
    assert isinstance(message, Publish)
    onward = one_hop_further(message)
    assert isinstance(onward, bytes)
    (arrived,) = sent_and_read(Payload(1, 0, [onward])).messages
    assert arrived == msgspec.structs.replace(message, hops=message.hops + 1)


def test_hops_are_counted_up_to_a_limit() -> None:
    (message,) = sent_and_read(
        Payload(1, 0, [Publish(publisher="p", sequence=1, values={}, origin_s=0.0, hops=127)])
    ).messages
    assert isinstance(message, Publish)
    (arrived,) = sent_and_read(Payload(1, 0, [one_hop_further(message)])).messages
    assert isinstance(arrived, Publish) and arrived.hops == 127


def test_many_messages_travel_in_one_frame() -> None:
    frame = Payload(3, 2, list(MESSAGES), done=1, credit=2)
    assert sent_and_read(frame) == frame


def test_more_bytes_than_fit_into_one_frame_become_several() -> None:
    texts = [Publish(publisher="p", sequence=n, values={"a": "x" * 100_000}, origin_s=0.0) for n in range(1, 8)]
    frames = list(FrameReader().feed(encode_frame(Payload(5, 2, list(texts), done=3, credit=4))))
    assert all(isinstance(frame, Payload) for frame in frames)
    assert [(f.number, f.ack, f.done, f.credit, len(f.messages)) for f in frames if isinstance(f, Payload)] == [
        (5, 2, 3, 4, 2),
        (7, 2, 3, 4, 2),
        (9, 2, 3, 4, 2),
        (11, 2, 3, 4, 1),
    ]


def test_a_frame_with_too_many_messages_is_refused() -> None:
    body = msgspec.msgpack.encode((1, 0, 0, 0, [{}] * (BATCH_MAX_COUNT + 1)))
    with pytest.raises(ProtocolError, match="length <= 4096"):
        decode_frame(body)


@pytest.mark.parametrize("fields_count", [0, 7, 9, 15])
def test_a_publication_with_other_than_eight_fields_is_refused(fields_count: int) -> None:
    fields = ("", "p", 1, {"a": 1}, 0.0, "s", 1, 0, b"bytes", 0, 0, 0, 0, 0, 0)[:fields_count]
    with pytest.raises(ProtocolError, match="not a frame"):
        decode_frame(msgspec.msgpack.encode((1, 0, 0, 0, [fields])))


def test_what_the_refused_ones_above_lack_is_nothing_but_the_right_number_of_fields() -> None:
    fields = ("", "p", 1, {"a": 1}, 0.0, "s", 2, 3)
    (message,) = sent_and_read(Payload(1, 0, [msgspec.msgpack.encode(fields)])).messages
    assert isinstance(message, Publish) and message.fields() == fields
    assert decode_frame(msgspec.msgpack.encode((1, 0, 0, 0, [fields]))) == Payload(1, 0, [message])


@pytest.mark.parametrize("numbers_count", [3, 5])
def test_a_payload_with_other_than_four_numbers_is_refused(numbers_count: int) -> None:
    with pytest.raises(ProtocolError, match="not a frame"):
        decode_frame(msgspec.msgpack.encode((*range(1, numbers_count + 1), [])))


def sent_and_read(frame: Payload) -> Payload:
    read = decode_frame(encode_frame(frame)[4:])
    assert isinstance(read, Payload)
    return read


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_frame_or_a_protocol_error(body: bytes) -> None:
    try:
        decode_frame(body)
    except ProtocolError as error:
        assert str(error)


@given(st.integers(0, len(MESSAGES) - 1), st.data())
def test_a_changed_byte_gives_a_frame_or_a_protocol_error(number: int, data: st.DataObject) -> None:
    body = bytearray(encode_frame(Payload(1, 0, [MESSAGES[number]]))[4:])
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_frame(bytes(body))
    except ProtocolError as error:
        assert str(error)


def test_a_frame_that_announces_too_many_bytes_is_refused_before_they_arrive() -> None:
    with pytest.raises(ProtocolError, match="at most"):
        list(FrameReader().feed((FRAME_MAX_BYTES + 1).to_bytes(4, "big")))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_frames_are_cut_out_of_any_pieces_of_the_stream(cuts: list[int]) -> None:
    frames: list[Frame] = [Ack(1), Payload(1, 0, [MESSAGES[5]]), Goodbye("end")]
    data = b"".join(encode_frame(frame) for frame in frames)
    reader = FrameReader()
    found: list[Frame] = []
    position = 0
    while position < len(data):
        step = cuts[len(found) % len(cuts)]
        found.extend(reader.feed(data[position : position + step]))
        position += step
    assert found == frames


@pytest.mark.parametrize(
    "values",
    [{"v": float("nan")}, {"v": float("inf")}, {"v": 2**63}, {"v": "x" * 2_000_000}, {"": 1}, {"a\n": 1}],
    ids=["nan", "infinity", "beyond 64 bits", "long text", "no name", "control character"],
)
def test_a_publication_that_the_language_does_not_have_is_refused(values: dict[str, str | int | float | bool]) -> None:
    body = encode_frame(Payload(1, 0, [Publish(publisher="p", sequence=1, values=values, origin_s=0.0)]))[4:]
    with pytest.raises(ProtocolError, match="not a frame"):
        decode_frame(body)
