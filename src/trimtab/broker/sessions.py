"""Peers come, come back and go: whom a broker lets in, which links go on, and what ends with a peer that is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from trimtab.broker.flow.input_queues import InputQueues
from trimtab.broker.peers import Peer, Watch
from trimtab.broker.replication.retention import RetainingLink
from trimtab.policies.api import ClientStayed, NeighboursChanged
from trimtab.protocol.channels import is_stream
from trimtab.protocol.codec import decode_publication
from trimtab.protocol.effects import Close, Effect
from trimtab.protocol.events import LeftBehind
from trimtab.protocol.frames import Hello, Role, Sendable, version_problem
from trimtab.protocol.messages import VERSION, AnyMessage, ClientRecord, Gone, Members, Publish
from trimtab.protocol.versions import common_version, known

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


EPOCH_MAX: Final = 2**53
"""No broker is started so often; beyond it not every language counts exactly."""


Waiting = TypeVar("Waiting", AnyMessage, Sendable)
"""Data that waits, as it was said or as bytes."""


class Sessions:
    """The sessions that a broker has with its neighbours and clients."""

    def __init__(self, broker: Broker, watch: Watch, input: InputQueues) -> None:
        self._broker = broker
        self._watch = watch
        self._input = input
        self.tails: dict[str, tuple[Sendable, ...]] = {}
        """What the incarnation before had for peers that have not come yet."""

    # ---- a peer comes ----

    def connected(self, name: str, hello: Hello, now_s: float) -> list[Effect]:
        """A peer greets: go on where both ends were, begin a new epoch of the link, or send it away."""
        broker = self._broker
        problem = self._problem_with(name, hello) or self._outgrown(hello)
        if problem:
            return [Close(name, problem)]
        version = common_version(hello, broker.config.wire_version_max)
        peer = broker.peers.get(name)
        if peer is not None:
            peer.version = version
        if peer is not None and not self._goes_on(peer, hello):
            if peer.role == "broker" and not peer.assists and not hello.assists:
                self._came_again(peer, hello, now_s)
            elif hello.assists:
                broker.sessions.remove(name, now_s)
                return [Close(name, f"{hello.assists} needs no assistant any more")]
            elif self._comes_back(peer, hello):
                self._begin_link_again(peer, now_s)
            else:
                broker.sessions.remove(name, now_s)
                peer = None
        is_new = peer is None
        if peer is None:
            peer = self._new_peer(name, hello.role, hello.session, version)
            peer.incarnation = hello.epoch
            peer.stay = hello.stay
        peer.incarnation = max(peer.incarnation, hello.epoch)
        peer.burned = max(peer.burned, hello.burned)
        peer.lease_ends_s = None
        peer.link.connect(hello.expects, now_s)
        self._watch.forget(peer)
        self._watch.add(peer)
        broker.output.touch(name)
        broker.gaps.greeted(peer, hello, is_new=is_new)
        if is_new:
            self._came(peer, hello, now_s)
        broker.records.look_for_guardian(now_s)
        if broker.safe is not None:
            broker.safe.settle_news()
        return []

    def _new_peer(self, name: str, role: Role, session: str, version: int = VERSION) -> Peer:
        broker = self._broker
        peer = Peer(name, role, session, broker.output.new_link(), self._queue_max_count(role))
        peer.version = version
        peer.link.begin_behind(self._input.data_count_from(name))
        if broker.safe is not None and role == "client":
            peer.last_sequence = peer.safe_sequence = broker.safe.stored_until(name, session)
        tail = known(self.tails.pop(name, ()), version)
        peer.link.data.extend(tail)
        peer.again_count = len(tail)
        broker.peers[name] = peer
        return peer

    def _came(self, peer: Peer, hello: Hello, now_s: float) -> None:
        """Tell a new peer, and others of it, what they need to know."""
        broker, replacement = self._broker, self._broker.replacement
        if hello.assists and replacement is not None:
            replacement.assistant_came(peer, hello, now_s)
        elif peer.role == "broker":
            peer.behind[peer.name] = ""
            broker.takeover.came(peer, hello, now_s)
            broker.topology.tell_other_brokers(peer, Members(names=(peer.name,), addresses=("",)), now_s)
            broker.agents.tell_all(NeighboursChanged(), now_s)
            if replacement is not None:
                replacement.neighbour_came(peer, now_s)
        else:
            broker.records.changed(peer, now_s)

    def _came_again(self, peer: Peer, hello: Hello, now_s: float) -> None:
        """A neighbour greets that has lost its memory, or that we had forgotten."""
        replacement = self._broker.replacement
        if replacement is not None:
            replacement.divisions.came_again(peer)
        self._broker.takeover.begin_again(peer, hello, now_s)
        if replacement is not None:
            replacement.neighbour_came(peer, now_s)

    def adopt(self, record: ClientRecord, now_s: float) -> Peer | None:
        """A client of an earlier incarnation: it is away, and has a lease; None if it has told all itself."""
        broker = self._broker
        peer = broker.peers.get(record.client)
        broker.gaps.is_known(record.client)
        if peer is not None and (peer.session != record.session or peer.role != "client"):
            return None
        if peer is None:
            peer = self._new_peer(record.client, "client", record.session)
            peer.stay = record.stay
            peer.lease_ends_s = now_s + broker.config.client_lease_s
            self._watch.add(peer)
        peer.burned = max(peer.burned, record.burned)
        peer.leaving_for = max(peer.leaving_for, record.leaving_for)
        if peer.stay == record.stay and record.old_broker and not peer.old_broker:
            peer.old_broker, peer.publishes = record.old_broker, record.publishes
        return None if peer.has_told_all else peer

    def _queue_max_count(self, role: Role) -> int:
        config = self._broker.config
        return config.client_queue_max_count if role == "client" else config.broker_queue_high_count

    def _problem_with(self, name: str, hello: Hello) -> str:
        broker, replacement = self._broker, self._broker.replacement
        if problem := version_problem(hello, broker.config.wire_version_max):
            return problem
        if hello.name != name or not name:
            return "the greeting's name is not the name of this connection"
        if name == broker.name:
            return f"{name} is this broker's own name"
        if is_stream(name):
            return f"{name[:100]} is a name for the results of a channel, not for a {hello.role}"
        if max(hello.epoch, hello.granted) > EPOCH_MAX:
            return f"no incarnation has the number {max(hello.epoch, hello.granted)}; the highest is {EPOCH_MAX}"
        known = broker.peers.get(name)
        if known is not None and known.role != hello.role:
            return f"the name {name} belongs to a {known.role} already"
        if known is not None and known.session != hello.session:
            if hello.role == "broker" and hello.epoch < known.incarnation:
                return f"this incarnation of {name} was replaced by another"
            if hello.role == "broker" and hello.epoch == known.incarnation:
                return f"{name} has had its incarnation {hello.epoch} already, and must greet as a later one"
            if hello.role == "client" and known.link.connected:
                return f"the name {name} is already in use"
        if known is not None and known.session == hello.session and hello.stay < known.stay and hello.role == "client":
            return f"stay {hello.stay} of {name} is over, for it has been here in its stay {known.stay}"
        if known is None and hello.role == "broker" and (cycle := broker.topology.cycle_with(name)):
            return cycle
        if known is None and hello.assists:
            if replacement is None:
                return f"{broker.name} knows nothing of assistants"
            if hello.resumes:
                return f"{broker.name} has given up {name}, which it knew before"
            return replacement.assistance.problem_with(hello)
        if known is None and hello.role == "client" and broker.draining is not None:
            if objection := broker.draining.objection_to_client():
                return objection
        if known is None and hello.role == "client" and len(broker.peers) >= broker.config.clients_max_count:
            return f"this broker keeps at most {broker.config.clients_max_count:,} sessions"
        return ""

    def _outgrown(self, hello: Hello) -> str:
        """Why this incarnation must greet again with a higher epoch: a neighbour knows one that is not lower.

        So may a client, which need not be greeted again. Its word counts only until this broker knows all its routes,
        for one that has served longer than that may be the earlier one.
        """
        broker = self._broker
        if hello.granted < broker.epoch or hello.resumes in ("", broker.config.session):
            return ""
        has_neighbours = any(peer.role == "broker" for peer in broker.peers.values())
        if hello.role != "broker" and has_neighbours and not broker.takeover.is_learning:
            return ""
        broker.epoch = hello.granted + 1
        return "" if hello.role != "broker" else f"{broker.name} greets again, as its incarnation {broker.epoch}"

    def _goes_on(self, peer: Peer, hello: Hello) -> bool:
        """Whether both ends remember the same link."""
        is_same = peer.session == hello.session and hello.resumes == self._broker.config.session
        return is_same and peer.link.fits(hello.expects)

    def _comes_back(self, peer: Peer, hello: Hello) -> bool:
        """Whether a client comes back that has not heard of this incarnation: a new link, and its stay goes on."""
        is_same = (peer.session, peer.stay) == (hello.session, hello.stay)
        return is_same and not hello.assists and hello.resumes != self._broker.config.session

    def _begin_link_again(self, peer: Peer, now_s: float) -> None:
        """What a client has not acknowledged goes over a new link; it tells all that it wants again."""
        broker, old, new = self._broker, peer.link, self._broker.output.new_link()
        tail = known(old.undelivered_data(), peer.version)
        self._input.remove_data_of(peer.name)  # it is said again, for it was not accepted
        peer.link, peer.queue = new, new.data
        peer.epoch += 1
        new.data.extend(tail)
        peer.again_count = len(tail)
        peer.has_told_all = False
        if broker.safe is not None and isinstance(old, RetainingLink) and isinstance(new, RetainingLink):
            broker.safe.epoch_began(peer.name, old, new)
        if cause := broker.admission.ended(peer.name, why := "it was away when it was asked"):
            broker.agents.tell_all(ClientStayed(peer.name, cause, why), now_s)

    # ---- a peer is away, or gone ----

    def disconnected(self, name: str, now_s: float, *, returns: bool = False) -> None:
        """The connection to a peer is gone; a client has a while to come back, and so has a broker that returns."""
        peer = self._broker.peers.get(name)
        if peer is None:
            return
        if peer.leaves:
            self._broker.sessions.remove(name, now_s)
            return
        peer.link.disconnect()
        if peer.role == "client":
            peer.lease_ends_s = now_s + self._broker.config.client_lease_s
            self._watch.add(peer)
        else:
            self._broker.records.look_for_guardian(now_s)
            if returns and self._broker.replacement is not None:
                self._broker.replacement.neighbour_away(peer, now_s)

    def remove(self, name: str, now_s: float) -> None:
        """A peer is gone, with all that is in force for it."""
        broker = self._broker
        if name in broker.peers:
            self._tell_of_lapse(broker.peers[name], now_s)
            if broker.replacement is not None:
                broker.replacement.divisions.leaves(broker.peers[name])
        peer = broker.peers.pop(name, None)
        if peer is None:
            broker.later += broker.takeover.gone(name, now_s)
            return
        if broker.safe is not None:
            broker.safe.gone(peer, now_s)
        self._input.remove(peer)
        if broker.throttle is not None:
            broker.throttle.forget(name)
        if peer.role == "client":
            self._client_gone(peer, now_s)
        else:
            self._neighbour_gone(peer, now_s)

    def _tell_of_lapse(self, peer: Peer, now_s: float) -> None:
        """What ends with a client's lease; a stay that has not begun yet, for all the client knows, ends unnoticed."""
        observer = self._broker.observer
        if observer is None or peer.lease_ends_s is None or now_s < peer.lease_ends_s:
            return
        if peer.is_leaving:
            undelivered = map(_publication, peer.link.undelivered_data())
            observer.left_unheard(peer.name, [each for each in undelivered if each is not None])
        elif not peer.old_broker:
            observer.lease_lapsed(peer.name, list(peer.subscriptions))

    def _client_gone(self, peer: Peer, now_s: float) -> None:
        broker, name = self._broker, peer.name
        broker.interests.end_all_from(name, now_s)
        broker.records.over(name, now_s)
        broker.gaps.is_gone(name)
        broker.takeover.sweeps.pop(name, None)
        broker.takeover.look_for_returned(now_s)
        if broker.channels is not None:
            broker.channels.client_gone(name, now_s)
        if cause := broker.admission.ended(name, why := "it has left the network"):
            broker.agents.tell_all(ClientStayed(name, cause, why), now_s)

    def _neighbour_gone(self, peer: Peer, now_s: float) -> None:
        broker = self._broker
        broker.interests.neighbour_cut(peer.name, now_s)
        broker.topology.tell_other_brokers(peer, Gone(names=tuple(peer.behind)), now_s)
        broker.later += broker.takeover.gone(peer.name, now_s)
        broker.moves.look_for_ways(now_s)
        broker.agents.tell_all(NeighboursChanged(), now_s)
        if broker.replacement is not None:
            broker.replacement.neighbour_gone(peer, now_s)

    # ---- the next incarnation ----

    def left_behind(self) -> LeftBehind:
        """What the next incarnation must know when this one ends: its clients, and what nobody else has.

        Where publications are acknowledged when they are durable, disks have all of them. Where they are when they are
        safe, those from whom they came have them as well, but may end at the same time.
        """
        broker = self._broker
        peers = [peer for peer in broker.peers.values() if peer.role != "agent" and not peer.assists]
        records = [each.left_with or broker.records.record_of(each) for each in peers if each.role == "client"]
        tails: dict[str, tuple[Sendable, ...]] = {}
        waiting: list[tuple[str, AnyMessage]] = []
        if broker.config.acknowledges != "durable":
            tails = {peer.name: tuple(peer.link.undelivered_data()) for peer in peers}
            sides = {peer.name: peer.name for peer in peers if peer.role == "broker"}
            for assistant in [peer for peer in broker.peers.values() if peer.assists in sides]:
                # the next incarnation knows no assistant: what is under way to and from one goes the usual way
                sides[assistant.name] = assistant.assists
                under_way = (*tails[assistant.assists], *assistant.link.undelivered_data())
                tails[assistant.assists] = in_publishers_order(under_way)
            waiting = [(sides[source], message) for source, message in broker.data_waiting() if source in sides]
            if brought := self._brought_by_own_assistant(sides):
                sources, messages = zip(*waiting, *brought, strict=True)
                waiting = list(zip(sources, in_publishers_order(messages), strict=True))
        if broker.safe is None and broker.replacement is not None:
            waiting = [*broker.replacement.divisions.left_behind(), *waiting]
        return LeftBehind(
            records=tuple(records),
            version=broker.records.version,
            tails={name: tail for name, tail in tails.items() if tail},
            waiting=tuple(waiting),
        )

    def _brought_by_own_assistant(self, sides: Mapping[str, str]) -> list[tuple[str, AnyMessage]]:
        """Publications that this broker's assistant has passed on to it, as if they came the usual way."""
        broker = self._broker
        own = {peer.name for peer in broker.peers.values() if peer.assists == broker.name}
        publications = [
            (source, message) for source, message in broker.data_waiting() if source in own and type(message) is Publish
        ]
        return [(hop, each) for _, each in publications if (hop := self._announced_by(each, sides))]

    def _announced_by(self, publication: Publish, sides: Mapping[str, str]) -> str:
        """The neighbour that has told an advertisement of a publication, if one has."""
        for route in self._broker.tables.advertisements.values():
            if route.filter.matches(publication.values):
                for hop in route.hops:
                    if hop in sides:
                        return sides[hop]
        return ""

    def resumed(self, left: LeftBehind, now_s: float) -> None:
        """The incarnation before was asked to end: its clients are known, and what it had goes on."""
        self.tails.update(left.tails)
        self._input.add_first(left.waiting)
        self._broker.gaps.resumed()
        self._broker.takeover.resumed(left, now_s)


def _publication(message: Sendable) -> Publish | None:
    if isinstance(message, bytes):
        return decode_publication(message)
    return message if isinstance(message, Publish) else None


def in_publishers_order(data: Sequence[Waiting]) -> tuple[Waiting, ...]:
    """The same data with the publications of each publisher by number, in the places that they have together.

    >>> said = [Publish(publisher="p", sequence=number, values={}, origin_s=0.0) for number in (1, 3, 2)]
    >>> [each.sequence for each in in_publishers_order(said)]
    [1, 2, 3]
    """
    places: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for place, message in enumerate(data):
        each = decode_publication(message) if isinstance(message, bytes) else message
        if isinstance(each, Publish):
            places.setdefault((each.publisher, each.session), []).append((each.sequence, place))
    ordered = list(data)
    for own in places.values():
        for (_, place), (_, source) in zip(own, sorted(own), strict=True):
            ordered[place] = data[source]
    return tuple(ordered)
