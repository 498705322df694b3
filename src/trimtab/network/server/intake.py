"""What one broker's process takes in of its peers' frames, and of whom it reads nothing for a while."""

from __future__ import annotations

from itertools import takewhile

from trimtab.broker.core import Broker
from trimtab.network.links.connection import Connection
from trimtab.protocol.frames import Ack, Payload
from trimtab.protocol.messages import VERSION, Publish
from trimtab.protocol.versions import is_known


class Intake:
    """The input side of the connections of one broker."""

    def __init__(self, broker: Broker, connections: dict[str, Connection]) -> None:
        self._broker = broker
        self._connections = connections
        self._paused: dict[str, None] = {}
        """Clients of whom nothing is read for a while."""

    def problem_with(self, frame: Payload | Ack) -> str:
        """What a program that knows no higher version than is to be spoken here would not have understood."""
        version = self._broker.config.wire_version_max
        if version == VERSION or isinstance(frame, Ack) or all(is_known(each, version) for each in frame.messages):
            return ""
        return f"not a frame: a message that version {version} of the protocol does not have"

    def pause_if_full(self, connection: Connection) -> None:
        """Read nothing more of a client that has sent far more than it may."""
        throttle = self._broker.throttle
        if throttle is not None and throttle.is_full(connection.peer):
            self._paused[connection.peer] = None
            connection.pause_reading()

    def read_on(self) -> None:
        """Read again of those of whom enough was let in."""
        throttle = self._broker.throttle
        for name in list(self._paused):
            if throttle is None or not throttle.is_full(name):
                del self._paused[name]
                if name in self._connections:
                    self._connections[name].resume_reading()


def without_publications(frame: Payload) -> Payload | Ack:
    """What a broker that stops takes in: publications stay with their sender, who keeps them for the next broker."""
    messages = list(takewhile(lambda message: type(message) is not Publish, frame.messages))
    if not messages:
        return Ack(frame.ack, done=frame.done, credit=frame.credit)
    return Payload(frame.number, frame.ack, messages, frame.done, frame.credit)
