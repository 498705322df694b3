"""A peer that speaks the protocol by hand over TCP, and says whatever a test wants."""

from __future__ import annotations

import contextlib
import select
import socket
import time

from trimtab.protocol.codec import FrameReader, encode_frame
from trimtab.protocol.frames import Ack, Frame, Goodbye, Hello, Payload
from trimtab.protocol.messages import VERSION, AnyMessage

WITHIN_S = 10.0


class RawPeer:
    """A connection to a broker."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), WITHIN_S)
        self._reader = FrameReader()
        self._frames: list[Frame] = []
        self._number = 1

    def __enter__(self) -> RawPeer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def send(self, frame: Frame) -> None:
        self._socket.sendall(encode_frame(frame))

    def greet(self, name: str, session: str, **keys: object) -> Frame:
        """Greet as a broker; returns the first frame of the answer."""
        self.send(Hello(VERSION, "broker", name, session, 1, **keys))  # type: ignore[arg-type]
        return self.receive()

    def say(self, *messages: AnyMessage) -> None:
        """Messages, numbered on."""
        self.send(Payload(self._number, 0, list(messages)))
        self._number += len(messages)

    def receive(self) -> Frame:
        """The next frame."""
        while not self._frames:
            data = self._socket.recv(65_536)
            assert data, "closed without a word"
            self._frames.extend(self._reader.feed(data))
        return self._frames.pop(0)

    def answer_for(self, time_s: float) -> None:
        """Acknowledge whatever comes for a while, as a peer does that lives."""
        ends_s = time.monotonic() + time_s
        while (left_s := ends_s - time.monotonic()) > 0:
            if select.select([self._socket], [], [], left_s)[0]:
                if not self._socket.recv(65_536):
                    return
                self.send(Ack(0))

    def wait_closed(self) -> None:
        """Wait until the broker has closed the connection."""
        while self._socket.recv(65_536):
            pass

    def goodbye(self) -> str:
        """The reason with which the broker closes."""
        while not isinstance(frame := self.receive(), Goodbye):
            pass
        return frame.reason

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
