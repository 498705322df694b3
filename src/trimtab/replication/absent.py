"""Clients that have yet to come back to a replica, as one receiver of what they want.

What passes meanwhile is in the replica's memory for them, and nowhere behind it. So it has not been handed on: the
replica answers for it, and those before it forget it, when each of them that wants it has come back and has it, or has
had its time. As over a link, publications reach them in their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from trimtab.protocol.messages import Publish
from trimtab.replication.handed_on import HandedOnOne, Receiver
from trimtab.replication.safe_link import SafeLink


class AbsentClients:
    """What waits for clients to come back; `is_wanted` tells whether one that is absent wants a publication.

    >>> noted = []
    >>> absent = AbsentClients(noted.append, lambda message: message.values["a"] > 5)
    >>> for sequence in (1, 6):
    ...     absent.hand_on(Publish(publisher="p", sequence=sequence, values={"a": sequence}, origin_s=0.0))
    >>> noted == [absent], absent.position, absent.reached_count
    (True, 1, 0)
    """

    is_gone = False
    """They never are: what was given to one that has come back is on its way there."""

    def __init__(self, note: Callable[[Receiver], None], is_wanted: Callable[[Publish], bool]) -> None:
        self._note = note
        self._is_wanted = is_wanted
        self._waiting: deque[tuple[Publish, HandedOnOne]] = deque()
        """Each publication with those to whom it was given when they came back."""
        self._first_is_wanted = False
        """Whether somebody absent was found to want the first of them, since something changed for any."""
        self.position = 0
        """The place of the last publication among all that they wanted."""

    @property
    def reached_count(self) -> int:
        """Publications that all who wanted them have, or want no more."""
        while self._waiting and not self._first_is_wanted:
            message, given = self._waiting[0]
            if not given.has_arrived():
                break
            self._first_is_wanted = self._is_wanted(message)
            if not self._first_is_wanted:
                self._waiting.popleft()
        return self.position - len(self._waiting)

    def hand_on(self, message: Publish) -> None:
        """A publication passes; it waits if somebody who is absent wants it."""
        if self._is_wanted(message):
            self.position += 1
            self._waiting.append((message, HandedOnOne(self.position, message.sequence, [])))
            self._note(self)

    def give(self, link: SafeLink, messages: Sequence[Publish]) -> None:
        """Somebody has come back: publications are about to be put into the queue of its link, in this order."""
        places = {_key(message): link.position + number for number, message in enumerate(messages, start=1)}
        for message, given in self._waiting:
            place = places.get(_key(message))
            if place is not None:
                given.outs.append((link, place))

    def look_again(self) -> None:
        """Who is absent, or what they want, has changed."""
        self._first_is_wanted = False

    def relink(self, old: SafeLink, new: SafeLink) -> None:
        """What a link kept stands in the queue of another one, in its old order."""
        for _, given in self._waiting:
            given.relink(old, new)


def _key(message: Publish) -> tuple[str, str, int]:
    return message.publisher, message.session, message.sequence
