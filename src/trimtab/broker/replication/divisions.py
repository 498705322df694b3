"""Publications that may not come in their order, and how it is known that they do again.

Where a broker has an assistant, each of its neighbours, and itself, gets a publisher's publications over two ways and
puts them in order (`merge.py`). When the assistant leaves, or anybody near it dies, the ways become one again:

    assistant        Relieved       to all: it has had nothing to do for a while
    all              OneWay         to the assistant: nothing follows; they give it nothing more
    assistant        OneWay         to all, when all have said so and everything that it had is done
    neighbours       OneWay         to the assisted broker: what went over the assistant has arrived
    assisted broker  OneWay         to its neighbours, when all have said so: what has not come by now does not come

`OneWay` is a marker: it stands behind all that it is about. Who has it from the assistant and from the other way passes
on what waits, in order, and the assistant is dismissed. An assistant that dies, or must go at once because a neighbour
begins anew, has said it with that; whoever gave it something says first again what it had not done, on the usual way.

Whoever is told `TwoWays` holds what comes from there until `OneWay`, and says `OneWay` itself as soon as what it sends
is in order. So the neighbours of a broker that was replaced learn when all that is said again to it has passed. While a
broker is in a takeover it asks its other neighbours in turn, for they may be in one, too; on a tree these waits have no
cycle. What is said again is in the order in which it was sent before: whoever has a `OneWay` in it says `TwoWays`
first, also if nothing takes two ways any more. Each `TwoWays` has a number, and a `OneWay` from before does not end it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trimtab.broker.moves.streams import Held
from trimtab.broker.peers import Peer
from trimtab.broker.replication.merge import OrderedMerge
from trimtab.broker.replication.retention import RetainingLink
from trimtab.protocol.effects import Close
from trimtab.protocol.frames import Hello, Sendable
from trimtab.protocol.messages import Handover, OneWay, Progress, Publish, TwoWays

if TYPE_CHECKING:
    from trimtab.broker.core import Broker
    from trimtab.broker.replication.assistance import Assistance

_NUMBERS_PER_INCARNATION_COUNT: Final = 1_000_000_000
"""What another incarnation says has other numbers."""


class Division:
    """What comes from some neighbours may not be in order: a broker has an assistant, or had one, or begins anew."""

    def __init__(self, broker: str, sources: tuple[str, ...], hello: Hello | None = None, *, reorders: bool = True):
        self.broker = broker
        """The broker that is assisted, or the neighbour that has said `TwoWays`."""
        self.assistant = "" if hello is None else hello.name
        self.protocol = "" if hello is None else hello.replica
        self.awaited = dict.fromkeys(sources, 0)
        """Those whose `OneWay` has not come, and the lowest number that it must have."""
        reorders = reorders if hello is None else hello.reorders
        self.merge = OrderedMerge() if reorders else None
        self.is_complete = False
        """Whether the assistant knows all routes."""
        self.has_begun = hello is None or not reorders
        """Whether publications may go over both ways, as far as their order is concerned."""
        self.is_ending = hello is None
        self.has_left = hello is None
        """Whether the assistant has nothing from here any more."""
        self.advertisements: dict[str, None] = {}
        self.subscriptions: dict[str, None] = {}
        """What the assistant has told."""
        self.behind: list[tuple[int, Held, int]] = []
        """Markers behind publications that wait: behind how many that have come, and the link epoch they are of."""
        self.markers_count = 0
        self.due_s: float | None = None
        """When the next marker is due."""


class Divisions:
    """Whose publications one broker puts in order again, and to whom it owes the word that its own are."""

    def __init__(self, broker: Broker, assistance: Assistance) -> None:
        self._broker = broker
        self._assistance = assistance
        self.by_broker: dict[str, Division] = {}
        self.by_source: dict[str, Division] = {}
        """By those from whom what belongs to a division comes."""
        self._owed: dict[str, None] = {}
        """Neighbours that wait for `OneWay`."""
        self._asked: dict[str, None] = {}
        """Neighbours that were asked because this broker is in a takeover."""
        self._number = broker.epoch * _NUMBERS_PER_INCARNATION_COUNT
        """Of the last `TwoWays` that was said."""
        self.released_max_count = 0
        """The most publications that were put in order and went on at once."""

    def begin(self, division: Division) -> None:
        """One more."""
        self.by_broker[division.broker] = division
        self.by_source.update(dict.fromkeys(division.awaited, division))

    def held(self) -> list[tuple[str, Publish]]:
        """Publications that wait until those before them have come over the other way."""
        merges = [division.merge for division in self.by_broker.values() if division.merge is not None]
        return [(source, message) for merge in merges for source, message, _ in merge.held()]

    def left_behind(self) -> list[tuple[str, Publish]]:
        """This broker is asked to end: what waits here, once assistants have nothing that it gave them."""
        for division in self.by_broker.values():
            self._give_back(division)
        assisted = {division.assistant: division.broker for division in self.by_broker.values()}
        return [(assisted.get(source, source), message) for source, message in self.held()]

    # ---- the way of a publication or marker ----

    def must_wait(self, held: Held) -> bool:
        """Whether data whose turn has come waits for what must come before it; it goes on by `Ordering.release`."""
        source, message, item = held
        division = self.by_source.get(source)
        if division is None or division.merge is None:
            return False
        is_assistant = source == division.assistant
        if not is_assistant and not division.has_begun:
            return False
        if isinstance(message, Publish):
            if division.broker == self._broker.name and not is_assistant:
                self._assistance.came_from_neighbour(source, message)
            division.merge.came("assistant" if is_assistant else "usual", (source, message, item))
            self.go_on(division)
            return True
        if is_assistant or isinstance(message, Progress | OneWay | Handover):
            return False
        place = division.merge.arrived_count
        if not division.merge.holds_until(place) and getattr(message, "id", "") not in division.advertisements:
            return False
        division.behind.append((place, held, self._broker.peers[source].epoch if source in self._broker.peers else 0))
        return True

    def go_on(self, division: Division) -> None:
        """Pass on what is in order, and the markers behind it."""
        merge = division.merge
        if merge is None:
            return
        released = merge.take()
        self.released_max_count = max(self.released_max_count, len(released))
        if released:
            self._broker.later += self._broker.ordering.release(released, self._broker.now_s)
        behind, division.behind = division.behind, []
        for place, held, epoch in behind:
            is_open = getattr(held[1], "id", "") in division.advertisements
            if is_open or merge.holds_until(place):
                division.behind.append((place, held, epoch))
            else:
                self._broker.later += self._broker.ordering.release_marker(held, epoch, self._broker.now_s)

    def assistant_ended(self, division: Division, id: str) -> None:
        """An assistant has ended an advertisement; what it has passed on before may wait yet."""
        if division.merge is not None:
            count = division.merge.arrived_count
            division.behind = [
                (count if getattr(held[1], "id", "") == id else place, held, epoch)
                for place, held, epoch in division.behind
            ]
            self.go_on(division)

    def holds_from(self, source: str) -> bool:
        """Whether anything of a source waits."""
        division = self.by_source.get(source)
        if division is None or division.merge is None:
            return False
        return len(division.merge) > 0 or any(held[0] == source for _, held, _ in division.behind)

    # ---- the ways become one ----

    def end(self, division: Division, now_s: float) -> None:
        """The assistant is given nothing from here on."""
        division.is_ending = True
        self._broker.send(division.assistant, OneWay(), now_s)

    def one_way(self, source: str, marker: OneWay) -> None:
        """The marker of a neighbour has its turn."""
        division = self.by_source.get(source)
        if division is None or source not in division.awaited or marker.number < division.awaited[source]:
            return
        if source == division.assistant:
            self._give_back(division)
        self._no_longer_awaited(division, source)

    def _no_longer_awaited(self, division: Division, source: str) -> None:
        division.awaited.pop(source, None)
        if not division.awaited:
            self._over(division)
        self.settle()

    def _over(self, division: Division) -> None:
        """All that may come has come: it goes on in order, and the assistant is dismissed."""
        broker = self._broker
        if division.merge is not None:
            division.advertisements.clear()
            division.merge.end()
            self.go_on(division)
        del self.by_broker[division.broker]
        sources = [source for source, each in self.by_source.items() if each is division]
        for source in sources:
            del self.by_source[source]
        self._dismiss(division)
        if division.broker == broker.name:
            self._owed.update(dict.fromkeys(each for each in sources if each != division.assistant))
        self._assistance.has_left()

    def _dismiss(self, division: Division) -> None:
        broker = self._broker
        if division.assistant in broker.peers:
            broker.sessions.remove(division.assistant, broker.now_s)
            broker.later.append(Close(division.assistant, f"{division.broker} needs no assistant any more"))

    def _give_back(self, division: Division) -> None:
        """What an assistant has not done goes to the broker that it assisted, and the marker behind it."""
        broker = self._broker
        congested, assistant = broker.peers.get(division.broker), broker.peers.get(division.assistant)
        division.is_ending = True
        if division.has_left or congested is None:
            return
        division.has_left = True
        congested.queue = congested.link.data
        if assistant is not None:
            old, new = assistant.link, congested.link
            if broker.safe is not None and isinstance(old, RetainingLink) and isinstance(new, RetainingLink):
                broker.safe.retention.give_back(old, new)
            publications = [each for each in old.undelivered_data() if isinstance(each, Publish | bytes)]
            congested.link.data.extend(publications)
            congested.again_count += len(publications)
        self._say_one_way(congested.name)

    # ---- whoever is asked, and whoever owes the word ----

    def two_ways(self, peer: Peer, message: TwoWays) -> None:
        """A neighbour's publications need not be in order, and it must know when ours are."""
        broker, name = self._broker, peer.name
        division = self.by_source.get(name)
        if division is None:
            self._hold(name)
        elif division.broker in (name, broker.name):
            self.abandon(division)
        self.by_source[name].awaited[name] = message.number
        self._owed[name] = None
        takeover = broker.takeover
        if takeover.is_learning or takeover.returning:
            for other in list(broker.peers.values()):
                if other.role == "broker" and not other.assists and other.name != name:
                    self._ask(other.name)
        self.settle()

    def _hold(self, name: str) -> None:
        self.begin(Division(name, (name,), reorders=self._broker.config.order == "publisher"))
        self._broker.add_stage(self._assistance)

    def _ask(self, name: str) -> None:
        """Have a neighbour say when all is in order that it sends."""
        if name not in self._asked:
            self._asked[name] = None
            if name not in self.by_source:
                self._hold(name)
            self._tell(name)

    def _tell(self, name: str) -> None:
        """Have a neighbour say when all is in order that it sends, and say the same to it."""
        self._owed[name] = None
        self._number += 1
        self._broker.send(name, TwoWays(number=self._number), self._broker.now_s)

    def _say_one_way(self, name: str) -> None:
        self._broker.send(name, OneWay(number=self._number), self._broker.now_s)

    def epoch_began(self, peer: Peer, tail: list[Sendable]) -> None:
        """A link begins anew: the other end must know that we wait for its word, and where what is said again may be
        out of order: before markers that say that it is in order from there on.
        """
        division = self.by_source.get(peer.name)
        is_awaited = division is not None and division.is_ending and peer.name in division.awaited
        if is_awaited or any(isinstance(message, OneWay) for message in tail):
            self._tell(peer.name)
        elif self._owed and self._asked:
            self._ask(peer.name)
        self.settle()

    def settle(self) -> None:
        """Say to whom it is owed that what this broker sends is in order, if it is."""
        takeover = self._broker.takeover
        if not self._owed or takeover.is_learning or takeover.returning:
            return
        ending = [division for division in self.by_broker.values() if division.is_ending]
        for name in list(self._owed):
            if not any(each != name for division in ending for each in division.awaited):
                del self._owed[name]
                self._say_one_way(name)
        if not self._owed:
            self._asked.clear()

    # ---- peers come again and go ----

    def abandon(self, division: Division) -> None:
        """An assistant must go at once: what it has not done is said again by those who retain it."""
        division.is_ending = True
        if division.assistant in division.awaited:
            self._dismiss(division)

    def came_again(self, peer: Peer) -> None:
        """A neighbour has lost its memory: an assistant of it or of this broker, made for the one before, goes."""
        division = self.by_broker.get(peer.name)
        if division is not None and division.assistant:
            self.abandon(division)
        own = self.by_broker.get(self._broker.name)
        if own is not None:
            self.abandon(own)

    def leaves(self, peer: Peer) -> None:
        """A peer is about to be forgotten: what an assistant has not done is said again."""
        division = self.by_broker.get(peer.assists) if peer.assists else None
        if division is not None and division.assistant == peer.name and division.assistant in division.awaited:
            self._give_back(division)

    def gone(self, peer: Peer) -> None:
        """A peer was forgotten; an assistant has said its last marker with that, behind all that has come from it."""
        self._owed.pop(peer.name, None)
        self._asked.pop(peer.name, None)
        division = self.by_source.get(peer.name)
        if division is None:
            return
        if peer.name == division.assistant:
            if peer.name in division.awaited:
                self._broker.input.add(peer.name, [OneWay()], 0)
                self._ask_neighbours(division)
            return
        if division.broker == peer.name:
            self.abandon(division)
            division.awaited.clear()
        self._no_longer_awaited(division, peer.name)

    def _ask_neighbours(self, division: Division) -> None:
        """The assistant of this broker is gone: its neighbours may not know that yet, or may not have known it."""
        if division.broker == self._broker.name:
            for name in division.awaited:
                if name != division.assistant:
                    self._tell(name)
