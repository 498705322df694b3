"""What a system must offer to be measured as a message plane, and its process.

A system is a server process with publishers and subscribers on raw connections. The load clients of all systems are
of one kind: protocols of the event loop that send many messages with one write and look at no more bytes than they
must, so that the server is what is measured.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar, cast

import msgspec

from trimtab.lab.bench.matching_memory import MeasurementError
from trimtab.language import Filter, Publication
from trimtab.network.admin.local_network import free_ports
from trimtab.network.clock import now_s
from trimtab.network.links.address import Address
from trimtab.network.security.caller import Caller

ANSWER_WITHIN_S: Final = 30.0
"""A step of a measurement that takes longer than this has gone wrong."""

LISTEN_WITHIN_S: Final = 10.0
LOOK_AGAIN_AFTER_S: Final = 0.02
STOP_WITHIN_S: Final = 5.0
_TIME: Final = struct.Struct(">d")
_SYSTEM_FOLDERS: Final = ("/usr/sbin", "/usr/local/sbin", "/sbin")

Client = TypeVar("Client", bound=asyncio.BaseProtocol)


class PlaneLoad(msgspec.Struct, frozen=True):
    """What is asked of a system: its subscriptions by connection, and what is published again and again."""

    filters: tuple[tuple[Filter, ...], ...]
    publications: tuple[Publication, ...]
    payload_bytes: int
    """The size of a publication, for systems that do not look into what they carry."""
    outstanding_count: int

    @property
    def connections_count(self) -> int:
        """Subscribers."""
        return len(self.filters)

    @property
    def subscriptions_per_connection_count(self) -> int:
        """Subscriptions of each subscriber."""
        return len(self.filters[0])


class LoadPublisher(Protocol):
    """A connection that publishes; publications are acknowledged by the server."""

    async def publish(self, count: int) -> None:
        """Publish the next so many of the load, never more outstanding than it allows; return when all are accepted."""

    def publish_one(self, time_s: float) -> None:
        """Publish one that tells this time."""

    async def settled(self) -> None:
        """Wait until everything is accepted."""

    def close(self) -> None:
        """End the connection."""


class LoadSubscriber(Protocol):
    """A connection that counts what it gets, and acknowledges it where the protocol has it."""

    @property
    def count(self) -> int:
        """Deliveries so far."""

    def keep_arrivals(self) -> None:
        """From here on keep what arrives with its time."""

    def delays_s(self) -> list[float]:
        """The delays of the deliveries that were kept."""

    def close(self) -> None:
        """End the connection."""


class EqualMessages(asyncio.Protocol):
    """A subscriber's connection on which all messages have one length, and tell their time at one place."""

    def __init__(self, message_bytes: int, time_at: int) -> None:
        self.message_bytes = message_bytes
        self.time_at = time_at
        self.count = 0
        self._transport: asyncio.Transport
        self._buffer = b""
        self._arrivals: list[tuple[float, bytes]] | None = None

    def take_whole(self, data: bytes) -> bytes:
        """Count the messages that are whole, and keep the rest for later; returns those messages."""
        count, rest = divmod(len(data), self.message_bytes)
        whole = data[: len(data) - rest]
        self._buffer = data[len(whole) :]
        self.count += count
        if self._arrivals is not None:
            self._arrivals.append((now_s(), whole))
        return whole

    def keep_arrivals(self) -> None:
        """From here on keep what arrives with its time."""
        self._arrivals = []

    def delays_s(self) -> list[float]:
        """The delays of the deliveries that were kept."""
        return delays_of(self._arrivals or [], self.message_bytes, self.time_at)

    def close(self) -> None:
        """End the connection."""
        self._transport.close()


def delays_of(arrivals: Sequence[tuple[float, bytes]], message_bytes: int, time_at: int) -> list[float]:
    """The delays of whole messages of one length that tell their time at one place.

    >>> message = b"head" + struct.pack(">d", 5.0)
    >>> delays_of([(6.0, message), (7.5, message + message)], len(message), 4)
    [1.0, 2.5, 2.5]
    """
    return [
        arrived_s - cast(float, _TIME.unpack_from(data, start + time_at)[0])
        for arrived_s, data in arrivals
        for start in range(0, len(data), message_bytes)
    ]


class MeasuredSystem(Protocol):
    """A server under a load."""

    name: str

    @property
    def pid(self) -> int:
        """The server's process."""

    def deliveries_count(self, load: PlaneLoad) -> int:
        """How many deliveries one round of the load's publications must give."""

    async def open(self, load: PlaneLoad) -> tuple[LoadPublisher, Sequence[LoadSubscriber]]:
        """Connect a publisher and the subscribers, whose subscriptions are then in force."""

    def start(self) -> None:
        """Start the server and wait until it listens."""

    def stop(self) -> None:
        """End the server."""


def find_program(name: str) -> str | None:
    """Where a server is installed, also beside this Python and in folders of administrators."""
    found = shutil.which(name)
    if found is not None:
        return found
    folders = (str(Path(sys.executable).parent), *_SYSTEM_FOLDERS)
    return next((path for folder in folders if os.access(path := f"{folder}/{name}", os.X_OK)), None)


def start_server(command: Sequence[str], address: Address) -> subprocess.Popen[bytes]:
    """Start a server and wait until it takes connections."""
    import time

    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    ends_s = time.monotonic() + LISTEN_WITHIN_S
    while time.monotonic() < ends_s and process.poll() is None:
        try:
            socket.create_connection((address.host, address.port), timeout=1.0).close()
        except OSError:
            time.sleep(LOOK_AGAIN_AFTER_S)
        else:
            return process
    stop_server(process)
    raise MeasurementError(f"{Path(command[0]).name} does not listen at {address} after {LISTEN_WITHIN_S:g} s")


def stop_server(process: subprocess.Popen[bytes]) -> None:
    """End a server."""
    process.terminate()
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class OtherServer:
    """Another system's server of this machine, started with a configuration file; one delivery per connection."""

    def __init__(self, program: str, configuration: Callable[[Address], str]) -> None:
        self._program = program
        self._configuration = configuration
        self._address = Address("127.0.0.1", free_ports(1)[0])
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it listens."""
        self._folder = tempfile.TemporaryDirectory(prefix=f"trimtab-{self._program}-")
        config = Path(self._folder.name, f"{self._program}.conf")
        config.write_text(self._configuration(self._address), encoding="utf-8")
        self._process = start_server([find_program(self._program) or self._program, "-c", str(config)], self._address)

    def stop(self) -> None:
        """End the server."""
        if self._process is not None:
            stop_server(self._process)
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()

    def deliveries_count(self, load: PlaneLoad) -> int:
        """One delivery per connection."""
        return len(load.publications) * load.connections_count


def cpu_s(pid: int) -> float:
    """The processor time that a process has used, of all its threads.

    >>> import os
    >>> cpu_s(os.getpid()) >= 0.0
    True
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise MeasurementError(f"processor times are read from /proc, which does not tell: {error.strerror}") from None
    after_name = text.rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int:
    """The resident memory of a process.

    >>> import os
    >>> memory_bytes(os.getpid()) > 1_000_000
    True
    """
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except OSError as error:
        raise MeasurementError(f"memory is read from /proc, which does not tell: {error.strerror}") from None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def connect(make: Callable[[], Client], address: Address, caller: Caller | None = None) -> Client:
    """A new connection with its protocol; small messages leave at once."""
    client = make()
    transport, _ = await (caller or Caller()).dial(lambda: client, address)
    sock = cast(socket.socket | None, transport.get_extra_info("socket"))
    if sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


class Outstanding:
    """Publications that the server has not accepted yet, with room for some more.

    >>> window = Outstanding(200)
    >>> window.sent(200), window.room
    (None, 0)
    >>> window.accepted(150), window.room
    (None, 150)
    """

    def __init__(self, limit_count: int) -> None:
        self._limit_count = limit_count
        self._count = 0
        self._news = asyncio.Event()

    @property
    def room(self) -> int:
        """How many more may be sent."""
        return self._limit_count - self._count

    def sent(self, count: int) -> None:
        """So many were sent."""
        self._count += count

    def accepted(self, count: int) -> None:
        """So many were accepted."""
        self._count -= count
        self._news.set()

    async def wait_for_room(self, count: int) -> None:
        """Wait until so many more may be sent; raise an error if that takes too long."""
        while self.room < count:
            self._news.clear()
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await self._news.wait()

    async def wait_until_none(self) -> None:
        """Wait until everything is accepted."""
        await self.wait_for_room(self._limit_count)
