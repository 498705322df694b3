"""What somebody without an identity can use up of a broker, encrypted or not."""

import asyncio
import contextlib
import os
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.network.security.secure_network import SecureNetwork
from trimtab import Client, Filter
from trimtab.network.admin.local_network import Network, free_ports
from trimtab.network.admin.status import ask_status
from trimtab.network.links.address import Address
from trimtab.network.loops import run
from trimtab.protocol.codec import FrameReader, encode_frame
from trimtab.protocol.frames import Frame, Goodbye, Hello, WhereReply, WhereRequest

WITHIN_S = 10.0
LIMITS = """
[limits]
greet_within_s = 1
idle_within_s = 1
ungreeted_max_count = 20
greeting_max_bytes = 4096
strange_brokers_max_count = 3
strange_broker_lease_s = 1
requests_under_way_max_count = 4
"""


class Stranger:
    """A socket that says what a test wants."""

    def __init__(self, address: str, context: ssl.SSLContext | None = None) -> None:
        host, _, port = address.partition(":")
        plain = socket.create_connection((host, int(port)), WITHIN_S)
        self.socket = plain if context is None else context.wrap_socket(plain, server_hostname=host)
        self._reader = FrameReader()

    def send(self, *frames: Frame) -> None:
        self.socket.sendall(b"".join(encode_frame(frame) for frame in frames))

    def hear(self) -> Frame | None:
        """The next frame, None if the broker has closed the connection."""
        while True:
            try:
                data = self.socket.recv(65_536)
            except (ConnectionResetError, BrokenPipeError, ssl.SSLError):
                return None
            if not data:
                return None
            for frame in self._reader.feed(data):
                return frame

    def goodbye(self) -> str:
        """Why the broker closes the connection."""
        while (frame := self.hear()) is not None:
            if isinstance(frame, Goodbye):
                return frame.reason
        return ""

    def __enter__(self) -> "Stranger":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("plain")
    (port,) = free_ports(1)
    (folder / "net.toml").write_text(f'[[broker]]\nname = "B1"\nlisten = "127.0.0.1:{port}"\n{LIMITS}')
    network = Network.from_file(folder / "net.toml")
    network.start()
    yield network
    network.stop()


def memory_bytes(network: Network) -> int:
    text = Path(f"/proc/{network.pid('B1')}/statm").read_text()
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def hello(name: str, role: str = "client", **more: object) -> Hello:
    return Hello(3, role, name, "s", 1, version_min=2, **more)  # type: ignore[arg-type]


def test_who_says_nothing_is_closed(plain: Network) -> None:
    with Stranger(plain.address("B1")) as silent:
        assert silent.goodbye() == "no greeting within 1 s"


def test_who_has_asked_something_is_closed_as_well(plain: Network) -> None:
    with Stranger(plain.address("B1")) as asking:
        asking.send(WhereRequest("B1"))
        assert isinstance(asking.hear(), WhereReply)
        assert asking.goodbye() == "no greeting within 1 s"


def test_a_frame_before_the_greeting_is_short(plain: Network) -> None:
    with Stranger(plain.address("B1")) as long_winded:
        long_winded.send(WhereRequest("B" * 5_000))
        assert long_winded.goodbye() == "a frame of 5,024 bytes; at most 4,096 are allowed"


@pytest.mark.parametrize("name", ["x" * 257, "x" * 2_000_000], ids=["a long name", "a very long name"])
def test_a_name_has_a_length(plain: Network, name: str) -> None:
    with Stranger(plain.address("B1")) as stranger:
        with contextlib.suppress(OSError):
            stranger.send(hello(name))
        assert "length <= 256" in (said := stranger.goodbye()) or "at most 4,096" in said or not said


def test_many_unfinished_frames_hold_no_memory(plain: Network) -> None:
    before_bytes = memory_bytes(plain)
    strangers = []
    for _ in range(100):
        stranger = Stranger(plain.address("B1"))
        with contextlib.suppress(OSError):
            stranger.socket.sendall(struct.pack(">I", 4_000) + b"x" * 3_900)
        strangers.append(stranger)
    assert memory_bytes(plain) - before_bytes < 20_000_000
    for stranger in strangers:
        stranger.socket.close()


def test_the_oldest_stranger_makes_way_and_clients_are_served(plain: Network) -> None:
    strangers = [Stranger(plain.address("B1")) for _ in range(40)]

    async def work() -> None:
        async with await Client.connect(plain.address("B1")) as client:
            await client.subscribe(Filter.parse("a = 1"))

    run(work())
    assert strangers[0].goodbye() == "too many connections that have not greeted"
    for stranger in strangers:
        stranger.socket.close()


def test_brokers_that_no_file_names_are_few_and_forgotten(plain: Network) -> None:
    def greet(number: int) -> str:
        with Stranger(plain.address("B1")) as stranger:
            stranger.send(hello(f"X{number}", "broker"))
            answer = stranger.hear()
            return answer.reason if isinstance(answer, Goodbye) else ""

    assert [greet(number) for number in range(3)] == ["", "", ""]
    assert greet(3) == "X3 stands in no network file here, as do too many others"
    ends_s = time.monotonic() + WITHIN_S
    while len(asyncio.run(ask_status(Address.parse(plain.address("B1")))).peers) > 0:
        assert time.monotonic() < ends_s
        time.sleep(0.1)
    assert greet(4) == ""


def test_a_flood_of_questions_does_not_keep_others_from_greeting(plain: Network) -> None:
    question = encode_frame(WhereRequest("B1")) * 2_000
    floods = [Stranger(plain.address("B1")) for _ in range(5)]
    for flood in floods:
        flood.socket.setblocking(False)
        with contextlib.suppress(OSError):
            flood.socket.send(question)

    async def work() -> float:
        began_s = time.monotonic()
        async with await Client.connect(plain.address("B1")):
            return time.monotonic() - began_s

    assert run(work()) < 3.0
    for flood in floods:
        flood.socket.close()


def test_half_a_handshake_is_given_up_and_others_are_served(tmp_path: Path) -> None:
    secure = SecureNetwork(tmp_path, "\n[limits]\nhandshake_within_s = 1\nhandshakes_per_s = 50\n")
    with secure.running() as network:
        silent = [Stranger(network.address("B1")) for _ in range(30)]
        ann = secure.identity_file("ann")

        async def work() -> None:
            async with await Client.connect(network.address("B1"), identity=ann) as client:
                await client.subscribe(Filter.parse("class = 'ALERT'"))

        run(work())
        for stranger in silent:
            assert stranger.hear() is None
            stranger.socket.close()


def test_nobody_greets_as_a_broker_without_its_certificate(tmp_path: Path) -> None:
    secure = SecureNetwork(tmp_path)
    with secure.running() as network:
        context = ssl.create_default_context(cafile=str(secure.certificates / "authority.pem"))
        with Stranger(network.address("B1"), context) as nobody:
            nobody.send(hello("B2", "broker"))
            assert (
                nobody.goodbye() == "this network asks who you are: connect with a certificate, a token or a password"
            )
        context.load_cert_chain(secure.certificates / "ann.pem", secure.certificates / "ann.key")
        with Stranger(network.address("B1"), context) as ann:
            ann.send(hello("B2", "broker", replica="basic", epoch=7))
            assert ann.goodbye() == "ann is not broker B2"
        context.load_cert_chain(secure.certificates / "B2.pem", secure.certificates / "B2.key")
        with Stranger(network.address("B1"), context) as other:
            other.send(hello("B1", "broker", epoch=9))
            assert other.goodbye() == "B2 is not broker B1"


def test_a_credential_is_looked_at_once(tmp_path: Path) -> None:
    secure = SecureNetwork(tmp_path)
    with secure.running() as network:
        context = ssl.create_default_context(cafile=str(secure.certificates / "authority.pem"))
        with Stranger(network.address("B1"), context) as guessing:
            credential = secure.password("ann", "wrong horse battery").credential()
            first = msgspec.structs.replace(hello("ann"), credential=credential)
            guessing.send(first, first)
            assert guessing.goodbye() == "the name or the password is wrong"
            assert guessing.hear() is None
