"""Whoever breaks the protocol is told what was wrong and loses its own connection; the broker serves all others."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from tests.network.raw_peer import RawPeer
from trimtab import BlockingClient, Filter, LimitError, Network, Publication
from trimtab.network.client.client import ClientError
from trimtab.network.network_file import NetworkOptions
from trimtab.protocol.codec import FRAME_MAX_BYTES, FrameReader, encode_frame
from trimtab.protocol.frames import Ack, Frame, Goodbye, Hello, Payload, StatusReply, StatusRequest
from trimtab.protocol.messages import (
    VERSION,
    VERSION_MIN,
    Advertise,
    Confirmed,
    Publish,
    Refused,
    Subscribe,
    Unsubscribe,
)

HELLO = Hello(VERSION, "client", "mallory", "m1", 1)
SEED = 20_240_601


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network.of(["B1"], options=NetworkOptions(client_lease_s=0.2)) as running:
        yield running


class Raw:
    """A peer that sends whatever bytes it likes."""

    def __init__(self, network: Network) -> None:
        self._socket = socket.create_connection(("127.0.0.1", network.plan.broker("B1").listen.port), 8)
        self._reader = FrameReader()
        self.frames: list[Frame] = []

    def send(self, *data: bytes | Frame) -> None:
        for each in data:
            self._socket.sendall(each if isinstance(each, bytes) else encode_frame(each))

    def receive(self) -> Frame:
        """The next frame."""
        while not self.frames:
            data = self._socket.recv(65_536)
            assert data, "closed without a word"
            self.frames.extend(self._reader.feed(data))
        return self.frames.pop(0)

    def goodbye(self) -> str:
        """The reason that the broker gives before it closes the connection."""
        while not isinstance(frame := self.receive(), Goodbye):
            pass
        assert self._socket.recv(1) == b""
        return frame.reason

    def refusal(self) -> Refused:
        while True:
            frame = self.receive()
            for message in frame.messages if isinstance(frame, Payload) else ():
                if isinstance(message, Refused):
                    return message

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def raw(network: Network) -> Iterator[Raw]:
    peer = Raw(network)
    yield peer
    peer.close()
    serves_others(network)


def serves_others(network: Network) -> None:
    with BlockingClient(network.address("B1")) as client:
        client.advertise(Filter.parse("honest > 0"))
        subscription = client.subscribe(Filter.parse("honest > 0"))
        client.publish(Publication(honest=1))
        assert next(client.deliveries(subscription, 5)).publication["honest"] == 1


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def said(message: object) -> bytes:
    """A frame with one message."""
    return framed(msgspec.msgpack.encode([1, 0, 0, 0, [message]]))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (framed(b"\xc1"), "not a frame"),
        (framed(b""), "not a frame"),
        (framed(msgspec.msgpack.encode({"frame": "dance"})), "not a frame: Invalid value 'dance'"),
        (framed(msgspec.msgpack.encode({"frame": "hello"})), "not a frame: Object missing required field"),
        (struct.pack(">I", FRAME_MAX_BYTES + 1), "a frame of 2,097,153 bytes; at most 65,536 are allowed"),
        (struct.pack(">I", FRAME_MAX_BYTES + 1) + b"x" * 300_000, "a frame of 2,097,153 bytes"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "a frame of 1,195,725,856 bytes"),
        (Ack(1), "the first frame must be a greeting (hello)"),
        (Hello(9, "client", "mallory", "m1", 1), "protocol version 9 is not spoken here, but 2 to 4 is"),
        (Hello(9, "client", "mallory", "m1", 1, version_min=5), "protocol version 9 is not spoken here, but 2 to 4 is"),
        (Hello(2, "client", "", "m1", 1), "the greeting's name is not the name of this connection"),
        (Hello(2, "client", "B1", "m1", 1), "B1 is this broker's own name"),
    ],
    ids=["no MessagePack", "empty", "unknown frame", "half a greeting", "oversized", "oversized with content", "HTTP",
         "no greeting", "later version", "later versions", "no name", "the broker's name"],
)  # fmt: skip
def test_a_wrong_beginning_closes_the_connection_with_the_reason(raw: Raw, data: bytes | Frame, expected: str) -> None:
    raw.send(data)
    assert expected in raw.goodbye()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (framed(b"\xff\xff"), "not a frame"),
        (HELLO, "a second greeting"),
        (said({"kind": "dance"}), "not a frame: Invalid value 'dance'"),
        (said({"kind": "sub", "id": "x", "filter": [["a", "resembles", 5]]}), "unknown operator 'resembles'"),
        (said({"kind": "sub", "id": "x", "filter": [["a", "<", 5], ["a", ">", 6]]}), "contradictory filter"),
        (said(["", "mallory", 1, {"a": [1]}, 0.0, "m1", 1, 0]), "not a frame: Expected `bool | int | float | str`"),
        (said(["", "mallory", 1, {"a": 2**63}, 0.0, "m1", 1, 0]), "64 bits"),
        (said(["", "mallory", 1, {"a": 1}, 0.0]), "not a frame"),
        (said(["", "mallory", 1, {"a": 1}, 0.0, "m1", 0]), "not a frame"),
        (framed(msgspec.msgpack.encode([1, 0, 0, 0, [{}] * 5_000])), "not a frame: Expected `array` of length <= 4096"),
    ],
    ids=[
        "broken frame",
        "second greeting",
        "unknown message",
        "unknown operator",
        "contradictory filter",
        "nested value",
        "large value",
        "short publication",
        "publication of version 1",
        "too many messages",
    ],
)
def test_a_mistake_after_the_greeting_closes_the_connection(raw: Raw, data: bytes | Frame, expected: str) -> None:
    raw.send(HELLO)
    assert isinstance(raw.receive(), Hello)
    raw.send(data)
    assert expected in raw.goodbye()


@pytest.mark.parametrize("role", ["client", "broker"])
def test_who_speaks_only_version_1_is_told_in_words_whatever_it_says_next(raw: Raw, role: str) -> None:
    greeting = {"frame": "hello", "version": 1, "role": role, "name": "old", "session": "5f3a", "expects": 1}
    subscription = {"kind": "sub", "id": "old/s1", "filter": [["a", ">", 5]]}
    raw.send(
        framed(msgspec.msgpack.encode(greeting)),
        framed(msgspec.msgpack.encode([1, 0, 0, [subscription]])),  # payloads were arrays of four
        framed(msgspec.msgpack.encode([2, 0, 0, [["", "old", 1, {"a": 1}, 0.0, "5f3a", 0]]])),
    )
    assert raw.goodbye() == "protocol version 1 is not spoken here, but 2 to 4 is"


def test_with_a_later_version_that_also_speaks_this_one_this_one_is_spoken(raw: Raw) -> None:
    raw.send(
        Hello(VERSION + 1, "client", "mallory", "m1", 1, version_min=VERSION),
        Payload(1, 0, [Advertise(id="m/a", filter=Filter.parse("a > 5"))]),
    )
    answer = raw.receive()
    assert isinstance(answer, Hello)
    assert (answer.version, answer.version_min) == (VERSION, VERSION_MIN)
    frame = raw.receive()
    while not isinstance(frame, Payload):
        frame = raw.receive()
    [confirmed] = frame.messages
    assert isinstance(confirmed, Confirmed)
    assert confirmed.id == "m/a"


def test_a_client_is_told_that_a_broker_speaks_only_version_1() -> None:
    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(encode_frame(Hello(1, "broker", "B1", "old", 1)))
            while connection.recv(65_536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread:
        answered = thread.submit(answer)
        with pytest.raises(ClientError, match="protocol version 1 is not spoken here, but 2 to 4 is"):
            BlockingClient(f"127.0.0.1:{server.getsockname()[1]}")
        answered.result()


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "handover", "client": "c", "session": "1", "stay": 2, "old_broker": "B1", "new_broker": "B2"},
        {"kind": "complete", "client": "c", "session": "1", "stay": 2, "new_broker": "B1"},
        {"kind": "guard", "version": 1, "record": {"client": "c", "session": "1", "stay": 1}},
        {"kind": "guardall", "version": 1, "count": 0},
        {"kind": "guarded", "version": 1},
    ],
    ids=lambda message: str(message["kind"]),
)
def test_what_only_brokers_say_is_refused_from_a_client(raw: Raw, message: dict[str, object]) -> None:
    raw.send(HELLO, said(message))
    assert raw.refusal().reason == "only brokers say this"


def test_an_unannounced_publication_is_refused(raw: Raw) -> None:
    raw.send(
        HELLO,
        Payload(1, 0, [Advertise(id="m/a", filter=Filter.parse("a > 5"))]),
        Payload(2, 0, [Publish(publisher="mallory", sequence=1, values={"a": 1}, origin_s=0.0)]),
    )
    refusal = raw.refusal()
    assert (refusal.about, refusal.reason) == (
        "mallory:1",
        "no advertisement of this client announces the publication: [a,1] is not announced",
    )


def test_a_publication_under_another_name_is_refused(raw: Raw) -> None:
    raw.send(
        HELLO,
        Payload(1, 0, [Advertise(id="m/a", filter=Filter.parse("a > 5"))]),
        Payload(2, 0, [Publish(publisher="alice", sequence=1, values={"a": 9}, origin_s=0.0)]),
    )
    refusal = raw.refusal()
    assert (refusal.about, refusal.reason) == ("alice:1", "a publication of mallory carries this name and no other")


def test_somebody_elses_subscription_cannot_be_ended(raw: Raw, network: Network) -> None:
    with BlockingClient(network.address("B1"), "victim") as victim:
        victim.advertise(Filter.parse("v > 0"))
        subscription = victim.subscribe(Filter.parse("v > 0"))
        raw.send(HELLO, Payload(1, 0, [Unsubscribe(id=subscription.ids[0])]))
        assert raw.refusal().reason == f"{subscription.ids[0]} is not an id of this client"
        victim.publish(Publication(v=1))
        assert next(victim.deliveries(subscription, 5)).publication["v"] == 1


def test_an_id_of_somebody_else_cannot_be_taken(raw: Raw, network: Network) -> None:
    with BlockingClient(network.address("B1"), "victim") as victim:
        subscription = victim.subscribe(Filter.parse("v > 0"))
        raw.send(HELLO, Payload(1, 0, [Subscribe(id=subscription.ids[0], filter=Filter.parse("v > 1"))]))
        assert raw.refusal().reason == f"the id {subscription.ids[0]} is already in use"


def test_a_name_in_use_is_refused(raw: Raw, network: Network) -> None:
    with BlockingClient(network.address("B1"), "mallory"):
        raw.send(HELLO)
        assert raw.goodbye() == "the name mallory is already in use"


def test_the_largest_publication_passes_two_brokers_and_a_larger_one_is_refused() -> None:
    with (
        Network.of(["B1", "B2"], [("B1", "B2")]) as network,
        BlockingClient(network.address("B1")) as publisher,
        BlockingClient(network.address("B2")) as subscriber,
    ):
        publisher.advertise(Filter.parse("[a,isPresent,''],[b,isPresent,'']"))
        subscription = subscriber.subscribe(Filter.parse("[a,isPresent,'']"))
        text = "x" * 1_045_000
        publisher.publish(Publication(a=text, b=text))
        with pytest.raises(LimitError, match="at most 2,093,056 are allowed"):
            publisher.publish(Publication(a=text + "xxx", b=text + "x" * 3_000))
        assert next(subscriber.deliveries(subscription, 10)).publication["b"] == text


def test_the_status_needs_no_greeting(raw: Raw) -> None:
    raw.send(StatusRequest())
    reply = raw.receive()
    assert isinstance(reply, StatusReply)
    assert reply.status.name == "B1"


def test_random_and_mutated_frames_do_no_harm(network: Network) -> None:
    rng = random.Random(SEED)
    good: list[Frame] = [
        Payload(1, 0, [Advertise(id="m/a", filter=Filter.parse("a > 5 AND b LIKE 'x%'"))]),
        Payload(2, 0, [Subscribe(id="m/s", filter=Filter.parse("a > 6"))]),
        Payload(3, 1, [Publish(publisher="mallory", sequence=1, values={"a": 7, "b": "xy"}, origin_s=0.0)]),
        Ack(3),
        Payload(4, 3, [Unsubscribe(id="m/s")]),
        Goodbye("done"),
    ]
    for attempt in range(150):
        peer = Raw(network)
        sent = [encode_frame(Hello(VERSION, "client", f"mallory-{attempt}", "m", 1)), *map(encode_frame, good)]
        if attempt % 3 == 0:
            sent = [framed(rng.randbytes(rng.randrange(60))) for _ in range(3)]
        data = bytearray(b"".join(sent))
        for _ in range(rng.randrange(1, 6)):
            position = rng.randrange(len(data))
            match rng.randrange(4):
                case 0:
                    data[position] = rng.randrange(256)
                case 1:
                    del data[position]
                case 2:
                    data.insert(position, rng.randrange(256))
                case _:
                    data[position] ^= 1 << rng.randrange(8)
        peer.send(bytes(data))
        peer.close()
    serves_others(network)
    status = network.status()["B1"]
    assert status is not None
    assert network.dead() == []


def test_a_client_that_returns_with_a_stay_that_is_over_is_told_so_and_loses_nothing(network: Network) -> None:
    def greeting(stay: int, resumes: str = "") -> Hello:
        return Hello(VERSION, "client", "astray", "s1", 1, resumes, version_min=VERSION_MIN, stay=stay)

    with RawPeer(network.address("B1")) as first:
        first.send(greeting(3))
        assert isinstance(first.receive(), Hello)
        first.say(Subscribe(id="astray/s1", filter=Filter.parse("[astray,>,0]")))
        status = network.status()["B1"]
        assert status is not None
    with RawPeer(network.address("B1")) as stale:  # an old copy of the program, as after a restored backup
        stale.send(greeting(2))
        assert stale.goodbye() == "stay 2 of astray is over, for it has been here in its stay 3"
    status = network.status()["B1"]
    assert status is not None
    assert [peer.subscriptions_count for peer in status.peers if peer.name == "astray"] == [1]
