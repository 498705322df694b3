"""A client's subscriptions to channels: what it asks brokers for, and after which result of each it goes on.

Positions are the same at every broker, so the client's own count is all that is needed to miss nothing: whichever
broker serves it is asked for what comes after.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trimtab.protocol.channels import stream_name
from trimtab.protocol.messages import FROM_NOW_ON, SubscribeChannel, Unsubscribe, WireValue


class _Channel(msgspec.Struct, frozen=True):
    """A channel with arguments that the client has subscribed to."""

    channel: str
    arguments: dict[str, WireValue]
    stream: str


class OwnChannels:
    """Channels by the ids that the client gave them.

    >>> mine = OwnChannels()
    >>> mine.add("c1", "OfType", {"event": "flood"}, FROM_NOW_ON)
    >>> mine.request("c1").after, mine.confirmed("c1", 7), mine.request("c1").after
    (-1, True, 7)
    >>> mine.accept('#OfType(event="flood")', 9), mine.accept('#OfType(event="flood")', 9), mine.request("c1").after
    ('c1', None, 9)
    """

    def __init__(self) -> None:
        self._channels: dict[str, _Channel] = {}
        self._ids: dict[str, str] = {}
        """By stream: the subscription that it is for."""
        self._positions: dict[str, int] = {}
        """By stream: the last result that was delivered, or after which all will be."""
        self._asked: dict[str, None] = {}
        """What the present broker was asked for."""

    def __contains__(self, id: object) -> bool:
        return id in self._channels

    def add(self, id: str, channel: str, arguments: Mapping[str, WireValue], after: int) -> None:
        """One more; a ValueError says that it is there already."""
        stream = stream_name(channel, arguments)
        if stream in self._ids:
            raise ValueError(f"{stream[1:]} is subscribed to already, as {self._ids[stream]}")
        self._channels[id] = _Channel(channel, dict(arguments), stream)
        self._ids[stream] = id
        if after != FROM_NOW_ON:
            self._positions[stream] = after

    def drop(self, id: str) -> None:
        """One less."""
        stream = self._channels.pop(id).stream
        del self._ids[stream]
        self._positions.pop(stream, None)

    def position_of(self, id: str) -> int | None:
        """After which position results come; None if that is not known, or it is no channel's id."""
        wanted = self._channels.get(id)
        return None if wanted is None else self._positions.get(wanted.stream)

    # ---- what to say to brokers ----

    def request(self, id: str) -> SubscribeChannel:
        """Ask the present broker for what comes after the last result delivered."""
        wanted = self._channels[id]
        self._asked[id] = None
        after = self._positions.get(wanted.stream, FROM_NOW_ON)
        return SubscribeChannel(id=id, channel=wanted.channel, arguments=wanted.arguments, after=after)

    def end(self, id: str) -> Unsubscribe:
        """Tell the present broker that a channel is not wanted any more."""
        del self._asked[id]
        return Unsubscribe(id=id)

    def request_all(self) -> list[SubscribeChannel]:
        """Ask a broker that knows nothing of this client."""
        self._asked.clear()
        return [self.request(id) for id in self._channels]

    def catch_up(self) -> list[SubscribeChannel | Unsubscribe]:
        """Tell the present broker what has changed while nothing was said to it."""
        ended = [self.end(id) for id in list(self._asked) if id not in self._channels]
        return [*ended, *(self.request(id) for id in self._channels if id not in self._asked)]

    # ---- what brokers say ----

    def confirmed(self, id: str, position: int) -> bool:
        """All results after a position will come; False for a channel that has ended meanwhile."""
        if id not in self._channels:
            return False
        self._positions.setdefault(self._channels[id].stream, position)
        return True

    def refused(self, id: str) -> None:
        """A broker does not serve a channel, if it is one."""
        if id in self._channels:
            self.drop(id)
            self._asked.pop(id, None)

    def accept(self, stream: str, position: int) -> str | None:
        """The subscription that a result is for; None if it ended, is not in force yet, or has had the result."""
        id, last = self._ids.get(stream), self._positions.get(stream)
        if id is None or last is None or position <= last:
            return None
        self._positions[stream] = position
        return id
