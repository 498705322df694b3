"""Clients that misbehave on purpose, over a bare socket: they obey no window and no credit.

Each runs in a process of its own, so that its work disturbs nobody's clock, and reports what it sent and was told.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection as Pipe
from typing import Final

import msgspec

from trimtab.language import Filter
from trimtab.protocol.codec import FrameReader, encode_frame
from trimtab.protocol.frames import Frame, Goodbye, Hello, Payload
from trimtab.protocol.messages import VERSION, Advertise, AnyMessage, Limited, Publish, Refused, Subscribe
from trimtab.simulation.faults.attacks import AttackKind

BATCH_COUNT: Final = 100
"""Messages in one frame of a flood."""

HUGE_CHARS: Final = 1_000_000
"""The text in a huge message, half of the most that a frame can hold."""

REQUESTS_COUNT: Final = 10_000
"""Useless advertisements, or filters."""

CALM_S: Final = 0.01
"""Between two looks at the socket."""


class RogueReport(msgspec.Struct):
    """What became of a client that misbehaves."""

    sent_count: int = 0
    """Messages that the socket took."""
    told: Counter[str] = msgspec.field(default_factory=Counter)
    """What the broker said against it, and how often."""


class Rogue:
    """A socket to a broker, for whatever one likes."""

    def __init__(self, host: str, port: int, name: str) -> None:
        self._socket = socket.create_connection((host, port), 5)
        self._reader = FrameReader()
        self._number = 1
        self.report = RogueReport()
        self.is_open = True
        self._unsent = b""
        self._socket.sendall(encode_frame(Hello(VERSION, "client", name, "rogue", 1)))
        self._socket.setblocking(False)

    def say(self, messages: list[AnyMessage]) -> None:
        """Put a frame into what is to be sent."""
        self._unsent += encode_frame(Payload(self._number, 0, list(messages)))
        self._number += len(messages)

    @property
    def has_unsent(self) -> bool:
        """Whether the socket has not taken everything."""
        return bool(self._unsent)

    def push(self) -> None:
        """Send what the socket takes."""
        try:
            while self._unsent:
                taken_count = self._socket.send(self._unsent)
                self._unsent = self._unsent[taken_count:]
        except BlockingIOError:
            pass
        except OSError:
            self.is_open = False

    def listen(self) -> None:
        """Read what the broker says, and keep what it has against us."""
        try:
            while self.is_open:
                data = self._socket.recv(65_536)
                self.is_open = bool(data)
                for frame in self._reader.feed(data):
                    self._note(frame)
        except BlockingIOError:
            pass
        except OSError:
            self.is_open = False

    def _note(self, frame: Frame) -> None:
        if isinstance(frame, Goodbye):
            self.report.told[frame.reason] += 1
        for message in frame.messages if isinstance(frame, Payload) else ():
            if isinstance(message, Limited | Refused):
                self.report.told[message.reason] += 1

    def close(self) -> None:
        """Go without a word."""
        self._socket.close()


def _publications(name: str, text: str, count: int) -> Iterator[list[AnyMessage]]:
    sequence = 1
    while True:
        yield [
            Publish(
                publisher=name,
                sequence=sequence + number,
                values={"class": "EWS", "topic": 1, "text": text},
                origin_s=time.time(),
                session="rogue",
            )
            for number in range(count)
        ]
        sequence += count


def _requests(name: str, kind: AttackKind) -> Iterator[list[AnyMessage]]:
    for start in range(0, REQUESTS_COUNT, BATCH_COUNT):
        numbers = range(start, start + BATCH_COUNT)
        if kind == "filters":
            wanted = [Filter.parse(f"[class,eq,'EWS'],[number,=,{number}]") for number in numbers]
            yield [Subscribe(id=f"{name}/s{start + at}", filter=filter) for at, filter in enumerate(wanted)]
        else:
            useless = [Filter.parse(f"[class,eq,'USELESS'],[topic,=,{number}]") for number in numbers]
            yield [Advertise(id=f"{name}/a{start + at}", filter=filter) for at, filter in enumerate(useless)]


def misbehave(kind: AttackKind, host: str, port: int, name: str, orders: Pipe) -> None:
    """Say through the pipe that all is prepared, wait for how long to attack, attack, and send a `RogueReport`."""
    rogue = Rogue(host, port, name)
    topic = Filter.parse("[class,eq,'EWS'],[topic,=,1]")
    batches: Iterator[list[AnyMessage]] = iter(())
    match kind:
        case "flood" | "huge":
            rogue.say([Advertise(id=f"{name}/a", filter=Filter.parse(f"{topic},[text,isPresent,'']"))])
            text, count = ("x" * 100, BATCH_COUNT) if kind == "flood" else ("x" * HUGE_CHARS, 1)
            batches = _publications(name, text, count)
        case "advertisements" | "filters":
            batches = iter(list(_requests(name, kind)))
        case "stalled":
            rogue.say([Subscribe(id=f"{name}/s", filter=Filter.parse("[class,eq,'EWS']"))])
    rogue.push()
    orders.send("ready")
    for_s = orders.recv()
    ends_s = time.monotonic() + for_s
    while time.monotonic() < ends_s and rogue.is_open:
        rogue.push()
        if kind != "stalled":
            rogue.listen()
        if rogue.has_unsent or (batch := next(batches, None)) is None:
            time.sleep(CALM_S)
        else:
            rogue.say(batch)
            rogue.report.sent_count += len(batch)
    rogue.listen()
    rogue.close()
    orders.send(rogue.report)
