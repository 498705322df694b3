"""Peers come, come back and go: whom a broker lets in, which links go on, and what ends with a peer that is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.broker.input_queues import InputQueues
from trimtab.broker.peers import Peer, Watch
from trimtab.load.agents import ClientStayed, NeighboursChanged
from trimtab.protocol.channels import is_stream
from trimtab.protocol.effects import Close, Effect
from trimtab.protocol.frames import Hello, Role
from trimtab.protocol.messages import VERSION, Gone, Members

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class Sessions:
    """The sessions that a broker has with its neighbours and clients."""

    def __init__(self, broker: Broker, watch: Watch, input: InputQueues) -> None:
        self._broker = broker
        self._watch = watch
        self._input = input

    # ---- a peer comes ----

    def connected(self, name: str, hello: Hello, now_s: float) -> list[Effect]:
        """A peer greets: go on where both ends were, begin anew, or send it away."""
        broker = self._broker
        problem = self._problem_with(name, hello)
        if problem is not None:
            return [Close(name, problem)]
        peer = broker.peers.get(name)
        if peer is not None and not self._goes_on(peer, hello):
            if hello.replica and not hello.assists and broker.replacement is not None:
                broker.replacement.begin(peer, hello, now_s)
            else:
                broker.remove_peer(name, now_s)
                peer = None
        is_new = peer is None
        if peer is None:
            peer = Peer(name, hello.role, hello.session, broker.new_link(), self._queue_max_count(hello.role))
            broker.peers[name] = peer
            if broker.safe is not None:
                broker.safe.came(peer, now_s)
        peer.lease_ends_s = None
        peer.link.connect(hello.expects, now_s)
        self._watch.forget(peer)
        self._watch.add(peer)
        broker.touch(name)
        if is_new:
            self._came(peer, hello, now_s)
        return []

    def _came(self, peer: Peer, hello: Hello, now_s: float) -> None:
        """Tell a new peer, and others of it, what they need to know."""
        broker, replacement = self._broker, self._broker.replacement
        if hello.assists and replacement is not None:
            replacement.assistant_came(peer, hello, now_s)
        elif peer.role == "broker":
            peer.behind[peer.name] = ""
            broker.reach.tell_members(peer, now_s)
            broker.interests.say(broker.tables.add_neighbour(peer.name), now_s)
            broker.reach.tell_other_brokers(peer, Members(names=(peer.name,), addresses=("",)), now_s)
            broker.interests.wait_for_sync(peer.name, now_s)
            broker.tell_agents(NeighboursChanged(), now_s)
            if replacement is not None:
                replacement.neighbour_came(peer, hello, now_s)
        elif replacement is not None:
            replacement.client_came(peer, hello)

    def _queue_max_count(self, role: Role) -> int:
        config = self._broker.config
        return config.client_queue_max_count if role == "client" else config.broker_queue_high_count

    def _problem_with(self, name: str, hello: Hello) -> str | None:
        broker, replacement = self._broker, self._broker.replacement
        if hello.version != VERSION:
            return f"protocol version {hello.version} is not spoken here, but {VERSION} is"
        if hello.name != name or not name:
            return "the greeting's name is not the name of this connection"
        if name == broker.name:
            return f"{name} is this broker's own name"
        if is_stream(name):
            return f"{name[:100]} is a name for the results of a channel, not for a {hello.role}"
        if replacement is not None and replacement.is_ended_life(hello):
            return f"this life of {name} was replaced by another"
        known = broker.peers.get(name)
        if known is not None and known.role != hello.role:
            return f"the name {name} belongs to a {known.role} already"
        if known is not None and known.link.connected and known.session != hello.session and not hello.replica:
            return f"the name {name} is already in use"
        if known is None and hello.role == "broker" and (cycle := broker.reach.cycle_with(name)):
            return cycle
        if known is None and hello.assists:
            if replacement is None:
                return f"{broker.name} knows nothing of assistants"
            return replacement.assistance.problem_with(hello) or None
        if known is None and hello.role == "client" and len(broker.peers) >= broker.config.clients_max_count:
            return f"this broker keeps at most {broker.config.clients_max_count:,} sessions"
        return None

    def _goes_on(self, peer: Peer, hello: Hello) -> bool:
        """Whether both ends remember the same link."""
        is_same_life = peer.session == hello.session and hello.resumes == self._broker.config.session
        return is_same_life and peer.link.fits(hello.expects)

    # ---- a peer is away, begins another life, or is gone ----

    def disconnected(self, name: str, now_s: float) -> None:
        """The connection to a peer is gone; a client has a while to come back."""
        peer = self._broker.peers.get(name)
        if peer is None:
            return
        peer.link.disconnect()
        if peer.role == "client":
            peer.lease_ends_s = now_s + self._broker.config.client_lease_s
            self._watch.add(peer)

    def forget_what_was_said(self, peer: Peer, now_s: float) -> None:
        """A neighbour has begun another life: control messages of the earlier one that wait are void.

        What it had confirmed stays confirmed: it is in force behind it, and so will it be there.
        """
        broker = self._broker
        self._input.void_control(peer.name)
        broker.interests.forget_early(peer.name)
        self._moves_are_lost_with(peer.name, now_s)
        broker.reach.tell_members(peer, now_s)

    def _moves_are_lost_with(self, neighbour: str, now_s: float) -> None:
        """Behind all that came from a neighbour it is said which moves will not come to their ends."""
        markers = self._broker.moves.gone(neighbour, now_s)
        self._input.data_from(neighbour).extend((neighbour, marker) for marker in markers)

    def remove(self, name: str, now_s: float) -> None:
        """A peer is gone, with all that is in force for it."""
        broker = self._broker
        peer = broker.peers.pop(name, None)
        if peer is None:
            return
        if broker.safe is not None:
            broker.safe.gone(peer, now_s)
        self._input.remove(peer)
        if broker.gatekeeper is not None:
            broker.gatekeeper.forget(name)
        broker.interests.forget_early(name)
        if peer.role == "client":
            self._client_gone(name, now_s)
        else:
            self._neighbour_gone(peer, now_s)

    def _client_gone(self, name: str, now_s: float) -> None:
        broker = self._broker
        broker.interests.end_all_from(name, now_s)
        if broker.channels is not None:
            broker.channels.client_gone(name, now_s)
        broker.moves.gone(name, now_s)
        if cause := broker.admission.ended(name, why := "it has left the network"):
            broker.tell_agents(ClientStayed(name, cause, why), now_s)

    def _neighbour_gone(self, peer: Peer, now_s: float) -> None:
        broker = self._broker
        broker.interests.neighbour_cut(peer.name, now_s)
        self._moves_are_lost_with(peer.name, now_s)
        broker.reach.tell_other_brokers(peer, Gone(names=tuple(peer.behind)), now_s)
        broker.interests.awaits_no_more(peer.name, now_s)
        broker.tell_agents(NeighboursChanged(), now_s)
        if broker.replacement is not None:
            broker.replacement.neighbour_gone(peer, now_s)
