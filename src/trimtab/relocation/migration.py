"""A publisher's advertisements move from one broker to another along the path between them, and nowhere else.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation in content-based publish/subscribe (2009), section 3.3.

The overlay is a tree, so that a publisher's old and new broker have one path between them, and brokers beside it send
what they must towards it already. An update runs from the new broker to the old one, and the answer comes back behind
all that was published at the old one. Each broker of the path does the paper's three operations on its tables:
(1) the last hop of the advertisement becomes the side of the new broker; (2) subscriptions that only this advertisement
led towards the old broker end there; (3) subscriptions that it intersects are led towards the new broker.

Deviations:
- The paper does all three when the update passes. Here the update (`Handover`) does operation 3 alone, and 1 and 2 wait
  for the answer (`Complete`), which keeps its place among the publications: what was published at the old broker
  still finds its routes, however long it waits in queues. Until the answer comes nothing has been taken away, so
  that a move which fails on the way is undone by forgetting what was added.
- The old broker decides: a move has happened from the moment when the old broker answers, and not before.
- The update finds its way by the names of the brokers; no list of them has to be carried along.
- It carries a client's subscriptions as well, if it has any: they move at the same time (`Handover`).
- A path that breaks for good is told to both sides: behind it the publisher is unknown, and before it as well, until
  it advertises again where it is.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from trimtab.language import Filter
from trimtab.protocol.messages import AnyMessage, Cancel, Complete, MovedAdvertisement, Unadvertise


class Path(msgspec.Struct, frozen=True):
    """A move that is under way through a broker."""

    move: str
    client: str
    old_broker: str
    towards_old: str
    """The neighbour on the old broker's side."""

    towards_new: str
    """The neighbour on the new broker's side; the client itself at the new broker."""

    advertisements: tuple[MovedAdvertisement, ...]
    cause: str


class Routes(Protocol):
    """What a broker on the path does for a move: its tables and its queues."""

    def lead(self, id: str, filter: Filter, towards: str, now_s: float) -> None:
        """Operation 3: lead what intersects an advertisement towards a neighbour or client as well, under this id."""
        ...

    def unlead(self, id: str, now_s: float) -> None:
        """Lead nothing there for the sake of this id any more."""
        ...

    def turn(self, path: Path, advertisement: MovedAdvertisement, came_from: str, now_s: float) -> None:
        """Operations 1 and 2: the advertisement's last hop is the new side, and nothing leads to the old one for it."""
        ...

    def drop(self, id: str, came_from: str, now_s: float) -> bool:
        """Forget an advertisement that is known from there, if at all; whether nobody else knows its publisher."""
        ...

    def send(self, name: str, message: AnyMessage, now_s: float) -> None:
        """Put a message into the queue for a neighbour."""
        ...


def led_id(move: str, advertisement: str) -> str:
    """Under which id subscriptions are led to where an advertisement will be.

    >>> led_id("alice/m2", "alice/a1")
    'alice/a1>alice/m2'
    """
    return f"{advertisement}>{move}"


class Migrations:
    """The moves of publishers through one broker."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._paths: dict[str, Path] = {}

    def expects(self, client: str) -> bool:
        """Whether a client is on its way to this broker."""
        return any(path.towards_new == client for path in self._paths.values())

    @property
    def are_under_way(self) -> bool:
        """Whether any publisher moves through this broker, to it or from it."""
        return bool(self._paths)

    def prepare(self, path: Path, now_s: float) -> None:
        """The update passes: from now on subscriptions lead to the new side as well."""
        self._paths[path.move] = path
        for each in path.advertisements:
            self._routes.lead(led_id(path.move, each.id), each.filter, path.towards_new, now_s)

    def complete(self, message: Complete, came_from: str, now_s: float) -> Path | None:
        """The answer passes: the publisher's stream turns. Returns the move, None if it is not known here any more."""
        path = self._paths.pop(message.move, None)
        if message.is_lost:
            if path is not None:
                self._forget(path, now_s)
            return path
        if path is None:
            for id in message.advertisements:
                if self._routes.drop(id, came_from, now_s):
                    self._routes.send(came_from, Unadvertise(id=id, cause=message.cause), now_s)
            return None
        for each in path.advertisements:
            if each.id in message.advertisements:
                self._routes.turn(path, each, came_from, now_s)
            else:
                self._routes.unlead(led_id(path.move, each.id), now_s)
        return path

    def cancel(self, message: Cancel, now_s: float) -> None:
        """The client has left the new broker before the answer came."""
        path = self._paths.pop(message.move, None)
        if path is not None:
            self._forget(path, now_s)

    def cannot_reach(self, name: str, now_s: float) -> list[Cancel]:
        """A neighbour or client is gone for good; returns what is to be said to the old brokers of moves towards it."""
        cancelled = [path for path in self._paths.values() if path.towards_new == name]
        for path in cancelled:
            del self._paths[path.move]
            self._forget(path, now_s)
        return [Cancel(move=path.move, old_broker=path.old_broker, cause=path.cause) for path in cancelled]

    def lost_with(self, neighbour: str) -> list[Complete]:
        """A link is gone for good; returns what is to be said behind all that came over it, towards new brokers."""
        return [
            Complete(
                move=path.move, client=path.client, new_broker="", advertisements=(), is_lost=True, cause=path.cause
            )
            for path in self._paths.values()
            if path.towards_old == neighbour
        ]

    def _forget(self, path: Path, now_s: float) -> None:
        for each in path.advertisements:
            self._routes.unlead(led_id(path.move, each.id), now_s)
