"""The configuration of a client: every limit with its unit, default and reason, and its earlier life if it has one."""

from __future__ import annotations

from typing import Final

import msgspec

from trimtab.language import Filter
from trimtab.protocol.channels import STREAM_MARK, is_stream
from trimtab.protocol.durable_link import DurableLink, LinkPosition
from trimtab.protocol.frames import Order
from trimtab.protocol.link import Link, LinkConfig

REACH_WITHIN_S: Final = 30.0
MOVE_WITHIN_S: Final = 600.0
HOLD_BACK_WITHIN_S: Final = 60.0
LEASE_S: Final = 60.0


class FormerIncarnation(msgspec.Struct, frozen=True):
    """What a client that stores what it is told knows of its earlier life, in which its filters were in force.

    Name and session are the same in both lives.
    """

    broker_session: str
    place: LinkPosition
    filters: tuple[Filter, ...]


class ClientConfig(msgspec.Struct, frozen=True):
    """One client's settings."""

    name: str
    """The client's name, under which it publishes."""
    session: str = "1"
    """Told in greetings; differs after each start of the client, so that the broker notices a restart."""

    publish_window_count: int = 1_000
    """Publications that may wait for the broker's acceptance; a full window holds the application back."""

    reach_within_s: float = REACH_WITHIN_S
    """A move to a broker that cannot be reached for so long is undone."""

    move_within_s: float = MOVE_WITHIN_S
    """A move that has not ended by then is undone if it still can be; well above the backlog of an overloaded broker,
    which is delivered before the move ends."""

    hold_back_within_s: float = HOLD_BACK_WITHIN_S
    """Publications are held back for a move for so long; then it is undone if it still can be. Far above the round trip
    of any path, so that only a path that is down or badly overloaded is given up."""

    lease_s: float = LEASE_S
    """An old broker that is away for so long during a move has given up what it had for the client, which goes on at
    the new one; not less than brokers keep a session that is not connected."""

    order: Order = "publisher"
    """publisher: what comes after a later publication of its publisher has come before and is dropped, unless the
    broker's greeting says that the network promises no order; any: only what was delivered is dropped."""

    link: LinkConfig = LinkConfig()
    """The windows of its links."""

    stores: bool = False
    """Whether the application says what it has stored, so that the broker keeps the rest for a next life of the client.
    Such a client does not move, and ends if the broker has forgotten it."""

    earlier: FormerIncarnation | None = None
    """What a client that stores what it is told knows of its former incarnation."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a client needs a name")
        if is_stream(self.name):
            raise ValueError(f"a client's name does not begin with {STREAM_MARK}")
        if self.publish_window_count < 1:
            raise ValueError("the publish window holds at least one publication")
        if min(self.reach_within_s, self.move_within_s, self.hold_back_within_s, self.lease_s) <= 0:
            raise ValueError("a move takes time")
        if self.earlier is not None and not self.stores:
            raise ValueError("only a client that stores what it is told has an earlier life")

    def new_link(self) -> Link:
        """The link to a first broker, or to the next one."""
        if self.stores:
            return DurableLink(self.link, None if self.earlier is None else self.earlier.place)
        return Link(self.link)
