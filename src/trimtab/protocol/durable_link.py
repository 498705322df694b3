"""The end of a link whose application stores what it is told, and has it acknowledged only then.

An ordinary link acknowledges a message when it arrives; if the process dies then, the other end has forgotten it. Here
what has arrived is acknowledged (and its credit given back) when the application says that it is stored, and a process
that is started again tells in its greeting how far it has stored: the other end sends everything after that again.
"""

from __future__ import annotations

import msgspec

from trimtab.protocol.link import Link, LinkConfig


class LinkPosition(msgspec.Struct, frozen=True):
    """How far a link's messages have been stored: the number of the last one, and how many of them were data."""

    number: int = 0
    data_count: int = 0


class DurableLink(Link):
    """A link of which the application says how much is stored; one of an earlier life begins at a place.

    >>> from trimtab.protocol.frames import Payload
    >>> from trimtab.protocol.messages import Publish
    >>> link = DurableLink(LinkConfig())
    >>> link.connect(1, 0.0)
    >>> messages = link.receive(Payload(1, 0, [Publish(publisher="p", sequence=1, values={}, origin_s=0.0)]), 0.1)
    >>> link.data_arrived(1)
    >>> link.expects, link.take(0.1).ack
    (1, 0)
    >>> link.store(link.place)
    >>> link.expects, link.take(0.2).ack
    (2, 1)
    """

    __slots__ = ("_is_resumed", "_stored")

    def __init__(self, config: LinkConfig, place: LinkPosition | None = None) -> None:
        super().__init__(config)
        self._is_resumed = place is not None
        self._stored = place or LinkPosition()
        self._expected = self._stored.number + 1
        self._data_received_count = self._done_count = self._stored.data_count

    @property
    def expects(self) -> int:
        """The number of the first message that is not stored, for the greeting."""
        return self._stored.number + 1

    @property
    def place(self) -> LinkPosition:
        """What has arrived: to be stored, and then said to be."""
        return LinkPosition(self._expected - 1, self._data_received_count)

    def store(self, place: LinkPosition) -> None:
        """Everything up to a place is stored: the peer may forget it."""
        if place.number > self._stored.number:
            self._stored = place
            self._done_count = place.data_count
            self._ack_owed = True

    def fits(self, peer_expects: int) -> bool:
        """Whether the peer's greeting fits: what was said in an earlier life is not known any more."""
        return self._is_resumed or super().fits(peer_expects)

    def connect(self, peer_expects: int, now_s: float) -> None:
        """A connection stands; the first one of a new life goes on with the numbers of the life before."""
        if self._is_resumed:
            self._is_resumed = False
            self._oldest_number = self._next_number = peer_expects
        super().connect(peer_expects, now_s)

    def did(self, count: int = 1) -> bool:
        """Data is dealt with when it is stored."""
        return False

    def did_all_but(self, undone_count: int) -> bool:
        """Data is dealt with when it is stored."""
        return False

    def _seen_number(self) -> int:
        return self._stored.number
