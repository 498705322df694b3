"""One TCP connection: bytes in, frames out, and at most one write per turn of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Mapping
from typing import Final, Protocol, cast

from trimtab.network.links.heartbeat import Silence
from trimtab.protocol.codec import CLIENT_FRAME_MAX_BYTES, FRAME_MAX_BYTES, FrameReader, ProtocolError, encode_frame
from trimtab.protocol.frames import Frame, Goodbye

if sys.platform == "linux":  # here, for a process without descriptors can load nothing later
    import fcntl
    import termios

WRITE_BUFFER_MAX_BYTES: Final = 512 * 1024
"""Bytes that may wait in a transport; beyond it frames stay in the link's queues."""

CLOSE_WITHIN_S: Final = 2.0
"""A closing connection whose peer does not read is cut after this time."""

SILENT: Final = "nothing was heard of it, though it was asked"
"""Why a connection is given up whose peer is silent, for logs."""

PLACE_TAKEN: Final = "another connection has taken this one's place"
"""What a broker tells a peer over the connection that it had, when the same peer greets over another one."""

_TCP_OPTIONS: Final = (
    ("TCP_NODELAY", 1),
    ("TCP_KEEPIDLE", 5),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 30_000),
)
"""Seconds, and milliseconds for the last one: a connection breaks if the peer's host acknowledges nothing for so long.
Linux does not care whether the host is gone or has no room, since its process does not read. So this is well above the
time for which a broker reads nothing of a client that has sent too much, and above the times of the heartbeat
(`trimtab.network.links.heartbeat`), which notices most of it sooner. It is for connections without a heartbeat, and
for peers of whom nothing is read at present."""


class ConnectionOwner(Protocol):
    """Who is told what happens to a connection."""

    def connection_opened(self, connection: Connection) -> None: ...

    def frame_received(self, connection: Connection, frame: Frame) -> None: ...

    def bytes_handled(self, connection: Connection) -> None:
        """All complete frames of what arrived have been handed over."""
        ...

    def connection_broken(self, connection: Connection, reason: str) -> None:
        """The peer sent what is not a frame."""
        ...

    def connection_writable(self, connection: Connection) -> None: ...

    def connection_closed(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """A connection to a peer, whose name is known once it has greeted."""

    def __init__(self, owner: ConnectionOwner, dialled: str = "", frame_max_bytes: int = FRAME_MAX_BYTES) -> None:
        self._owner = owner
        self._reader = FrameReader(frame_max_bytes)
        self._transport: asyncio.Transport | None = None
        self._abort_timer: asyncio.TimerHandle | None = None
        self.dialled = dialled
        """The peer that was called, empty if the peer called."""
        self.peer: str = ""
        self.epoch = 0
        """The number of the incarnation as which a broker greeted over it."""
        self.address: str = "?"
        self.writable = False
        self.closing = False
        self._is_paused = False
        self.silence = Silence()
        self.written_bytes = 0
        self.greeting_timer: asyncio.TimerHandle | None = None
        self._closed = asyncio.Event()

    # ---- called by asyncio ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A connection stands."""
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_MAX_BYTES)
        name = transport.get_extra_info("peername")
        self.address = f"{name[0]}:{name[1]}" if name else "?"
        set_options(transport.get_extra_info("socket"))
        self.writable = True
        self._owner.connection_opened(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived; what comes after our goodbye is read, so that the peer can read it, and thrown away."""
        self.silence.is_heard = True
        if self.closing:
            return
        try:
            for frame in self._reader.feed(data):
                self._owner.frame_received(self, frame)
                if not self.is_open() or self._is_paused:
                    return  # the reader keeps the rest
        except ProtocolError as error:
            if self.is_open():
                self._owner.connection_broken(self, str(error))
            return
        self._owner.bytes_handled(self)

    def pause_writing(self) -> None:
        """The transport has enough to write."""
        self.writable = False

    def resume_writing(self) -> None:
        """The transport has room again."""
        self.writable = True
        self._owner.connection_writable(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone, for whatever reason."""
        self.writable = False
        self.closing = True
        for timer in (self._abort_timer, self.greeting_timer):
            if timer is not None:
                timer.cancel()
        self._closed.set()
        self._owner.connection_closed(self)

    # ---- called by the owner ----

    def is_open(self) -> bool:
        """Whether frames still count."""
        return not self.closing

    def is_made(self) -> bool:
        """Whether the connection stands: whoever called has greeted."""
        return self._transport is not None and not self.closing

    def certificate(self) -> Mapping[str, object]:
        """The peer's certificate as it was verified; empty if it has shown none."""
        found = None if self._transport is None else self._transport.get_extra_info("peercert")
        return found or {}

    def allow_frames_of_clients(self) -> None:
        """Whoever has greeted may send more at once."""
        self._reader.frame_max_bytes = max(self._reader.frame_max_bytes, CLIENT_FRAME_MAX_BYTES)

    def allow_frames_of_brokers(self) -> None:
        """Brokers pass on what clients sent, with a few bytes more."""
        self._reader.frame_max_bytes = FRAME_MAX_BYTES

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await self._closed.wait()

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._transport is not None and not self.closing:
            self.written_bytes += len(data)
            self._transport.write(data)

    def send(self, frame: Frame) -> None:
        """Send one frame."""
        self.write(encode_frame(frame))

    def arrived_bytes(self) -> int:
        """How much of what was written the peer's host has received, as far as the system tells."""
        if self._transport is None or self.closing:
            return self.written_bytes
        waiting_bytes = self._transport.get_write_buffer_size()
        return self.written_bytes - waiting_bytes - _unacknowledged_bytes(self._transport.get_extra_info("socket"))

    @property
    def is_paused(self) -> bool:
        """Whether nothing is taken in for a while."""
        return self._is_paused

    def pause_reading(self) -> None:
        """Take nothing in for a while, not even what has arrived."""
        self._is_paused = True
        if self._transport is not None and not self.closing and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take in again, beginning with what had arrived."""
        was_paused, self._is_paused = self._is_paused, False
        if self._transport is not None and not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()
            if was_paused:
                asyncio.get_running_loop().call_soon(self.data_received, b"")

    def give_up(self) -> None:
        """Close without a word, also if the transport is gone and did not say so, as when a call is cancelled."""
        if self.greeting_timer is not None:
            self.greeting_timer.cancel()
        self.writable, self.closing = False, True
        if self._transport is not None:
            self._transport.abort()

    def close(self, reason: str = "", *, leaves: bool = False, returns: bool = False) -> None:
        """Say goodbye if there is a reason to give, and close."""
        if self._transport is None or self.closing:
            return
        if reason:
            self.send(Goodbye(reason[:1_000], leaves, returns))
        self.closing = True
        self.writable = False
        self.resume_reading()
        if reason and self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()
        self._abort_timer = asyncio.get_running_loop().call_later(CLOSE_WITHIN_S, self._transport.abort)


def set_options(sock: socket.socket | None) -> None:
    """Send without delay, and notice hosts that vanish without a word; what a platform does not have is left out."""
    if sock is None:
        return
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_OPTIONS:
        if hasattr(socket, name):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _unacknowledged_bytes(sock: socket.socket | None) -> int:
    """What the system holds for a peer whose host has not acknowledged it; 0 where the system does not tell."""
    if sock is None or sys.platform != "linux":
        return 0
    try:
        found = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))  # SIOCOUTQ of sockets
    except (OSError, ValueError):
        return 0
    return int.from_bytes(found, sys.byteorder)
