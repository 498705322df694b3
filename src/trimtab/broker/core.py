"""A broker without its sockets. One publication's way stands in this file from top to bottom:

    Received -> input queue -> Step -> matching (routing.py) -> output queues (links) -> take_frame

The world decides when a step is done (at once, or after the modelled matching delay) and when a frame may leave (when
the transport has room, or the modelled bandwidth). The broker reads no clock: every call is told the time.

**Holding back.** A queue to a neighbour above its mark, or under the slow policy "block" one to a client, is congested
until half of it is gone. Meanwhile data from every source that could add to it stays in the input, unprocessed; the
source's credit runs out (`Link`), its queue fills, and so on back to the publishers, whose windows fill. Data from A
through this broker B waits only for queues from B to others than A: in a tree no chain of such waiting comes back to
where it began, so that somebody can always go on, and nothing waits for ever. (A client's queue waits for its
application alone, which must not make its reading wait for its own publishing.) Control is never held back.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest

import msgspec

from trimtab.broker.admission import Admission
from trimtab.broker.agents import Agents
from trimtab.broker.channels import ChannelDesk
from trimtab.broker.config import BrokerConfig
from trimtab.broker.confirmations import Confirmations
from trimtab.broker.early import EarlyAdvertisements
from trimtab.broker.meters import Meters
from trimtab.broker.moves import Moves
from trimtab.broker.peers import Counters, Peer, Watch
from trimtab.broker.replacement import Replacement
from trimtab.broker.routing import Entry, RoutingTables, Say
from trimtab.broker.safe import SafeDelivery
from trimtab.load.agents import (
    Agent,
    AgentEvent,
    AgentReport,
    ClientAdvertised,
    ClientStayed,
    ClientSubscribed,
    NeighboursChanged,
    Place,
    RoundTripsTold,
)
from trimtab.load.indices import LoadIndices
from trimtab.matching.announcements import Announcements
from trimtab.protocol.channels import is_stream
from trimtab.protocol.effects import Close, Effect
from trimtab.protocol.events import (
    BackEndEvent,
    Connected,
    Disconnected,
    Event,
    LinkRemoved,
    MoveTo,
    Received,
    RoundTripsMeasured,
    Step,
    Wake,
)
from trimtab.protocol.frames import BATCH_MAX_COUNT, Ack, Hello, Payload, Role
from trimtab.protocol.link import Link
from trimtab.protocol.messages import (
    VERSION,
    Accepted,
    Advertise,
    AnyMessage,
    Cancel,
    ChannelConfirmed,
    Complete,
    Confirmed,
    ControlPublish,
    End,
    Gone,
    Handover,
    Measure,
    Measured,
    Members,
    MoveIn,
    Publish,
    Redirect,
    Refused,
    Resume,
    Stay,
    Stayed,
    Stranded,
    Subscribe,
    SubscribeChannel,
    Synced,
    Unadvertise,
    Unsubscribe,
    is_control,
    one_hop_further,
)


class Broker:
    """The state machine of one broker."""

    def __init__(self, config: BrokerConfig, agents: Sequence[Agent] = (), now_s: float = 0.0) -> None:
        self.config = config
        self.name = config.name
        self.meters = Meters(config.meters, now_s)
        """Fed by the world, which knows sizes and durations."""
        self.memory_bytes = 0
        """Memory in use, as far as the world knows."""
        self.publication_bytes = 320.0
        """The usual size of a publication on the wire, as far as the world knows."""
        self.sizes_bytes: Mapping[str, int] = {}
        """Sizes by publisher, where the world knows that they differ and publications do not come as bytes."""
        self.tables = RoutingTables(
            subscription_covering=config.subscription_covering, advertisement_covering=config.advertisement_covering
        )
        self.peers: dict[str, Peer] = {}
        self.counters = Counters()
        self.moves = Moves(self)
        self.admission = Admission(self)
        self._maybe_sendable: dict[str, None] = {}
        """Peers to whom something has happened since they had nothing to send; asking all of thousands takes long."""
        self._unsynced: dict[str, None] = dict.fromkeys(config.neighbours)
        """Neighbours that have not told all they know; nothing is in force as long as their publishers are unknown."""
        self._sync_told: dict[str, None] = {}
        self._held_confirmations: list[tuple[str, str]] = []
        self._watch = Watch(self.peers)
        self._control_in: deque[tuple[str, AnyMessage]] = deque()
        self._data_in: deque[tuple[str, AnyMessage]] = deque()
        self._held_in: deque[tuple[str, AnyMessage]] = deque()
        """Data that must wait for a congested queue; of each source everything is either here or in `_data_in`."""
        self._congested: dict[str, None] = {}
        self.client_queue_is_full = False
        """Set when a client's queue reaches its limit: a world that steps many times at once should send first."""
        self._subscription_confirmations = Confirmations(self.tables.subscription_representatives)
        self._advertisement_confirmations = Confirmations(self.tables.advertisement_representatives)
        self._early = EarlyAdvertisements()
        self.channels: ChannelDesk | None = None
        """Where clients subscribe to channels of the back end, if there is one."""
        if config.has_back_end:
            self.channels = ChannelDesk(self, config.results_cached_max_count, config.stream_linger_s)
        self.on_publication = self.route
        """What is done with a publication whose turn has come; a replica does more for a while."""
        self.safe = SafeDelivery(self) if config.acknowledges == "safe" else None
        """What is handed on and kept until it is safe, if that is promised."""
        self.replacement = Replacement(self, config.replication) if config.replication is not None else None
        """Who watches neighbours and has them replaced when they fail, if anybody does."""
        self._agents = Agents(self, agents) if agents else None
        self._agents_wait_for_start = bool(agents)
        for name, inbox in self._agents.inboxes.items() if self._agents is not None else ():
            self.peers[name] = Peer(name, "agent", config.session, inbox, sys.maxsize)

    # ---- the world's side ----

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """Take in an event; returns what the world is to do."""
        if self._agents is None:
            return self._handle(event, now_s)
        if self._agents_wait_for_start:
            self._agents_wait_for_start = False
            self._agents.start(now_s)
        effects = self._handle(event, now_s)
        return [*effects, *self._agents.run(now_s)]

    def _handle(self, event: Event, now_s: float) -> list[Effect]:
        match event:
            case Received(peer=peer, frame=frame):
                self.receive(peer, frame, now_s)
                return []
            case Step(count=count):
                return self._step(now_s) if count == 1 else self._steps(count, now_s)
            case Connected(peer=peer, hello=hello):
                return self._connected(peer, hello, now_s)
            case Disconnected(peer=peer):
                self._disconnected(peer, now_s)
                return []
            case LinkRemoved(peer=peer):
                self._remove_peer(peer, now_s)
                return []
            case Wake():
                return self._wake(now_s)
            case MoveTo() | RoundTripsMeasured():
                return []  # for clients
            case _:
                return self._back_end_said(event, now_s)

    def _back_end_said(self, event: BackEndEvent, now_s: float) -> list[Effect]:
        return [] if self.channels is None else [*self.channels.handle(event, now_s)]

    def greeting(self, peer: str) -> Hello:
        """The greeting for a connection to a peer, known or not."""
        known = self.peers.get(peer)
        expects, resumes = (known.link.expects, known.session) if known else (1, "")
        return Hello(VERSION, "broker", self.name, self.config.session, expects, resumes, self.config.replica)

    @property
    def input_count(self) -> int:
        """Messages in the input queue that can be processed."""
        return len(self._control_in) + len(self._data_in)

    @property
    def held_count(self) -> int:
        """Messages in the input that wait for a congested output queue."""
        return len(self._held_in)

    @property
    def data_count(self) -> int:
        """Publications and markers in the input, whether they can be processed or must wait."""
        return len(self._data_in) + len(self._held_in)

    @property
    def next_is_publication(self) -> bool:
        """Whether the next step matches a publication, which is what takes time."""
        if self._control_in:
            return type(self._control_in[0][1]) is ControlPublish
        return bool(self._data_in) and isinstance(self._data_in[0][1], Publish)

    def data_waiting(self) -> Iterator[tuple[str, AnyMessage]]:
        """The data messages of the input with their sources, whether they can be processed or must wait."""
        return chain(self._held_in, self._data_in)

    def sendable(self) -> list[str]:
        """Peers with a frame to send."""
        ready: list[str] = []
        for name in list(self._maybe_sendable):
            peer = self.peers.get(name)
            if peer is not None and (peer.link.has_frame() or self._owes_acceptance(peer)):
                ready.append(name)
            else:
                del self._maybe_sendable[name]
        return ready

    def touched(self) -> list[str]:
        """Peers to whom something has happened since this was last asked; no other can have a new frame to send.

        For a world that keeps its own list of peers with frames; `sendable` does not see these peers again.
        """
        touched = list(self._maybe_sendable)
        self._maybe_sendable.clear()
        return touched

    def touch(self, peer: str) -> None:
        """A peer may have a frame to send."""
        self._maybe_sendable[peer] = None

    def take_frame(self, peer: str, now_s: float, messages_max_count: int = BATCH_MAX_COUNT) -> Payload | Ack | None:
        """The next frame for a peer, with up to so many messages; None if there is none now."""
        known = self.peers.get(peer)
        if known is None:
            return None
        self._say_acceptance(known, now_s)
        frame = known.link.take(now_s, messages_max_count)
        self._watch.add(known)
        if peer in self._congested:
            self._relieve(known)
        return frame

    def _say_acceptance(self, peer: Peer, now_s: float) -> None:
        if self._owes_acceptance(peer):
            peer.accepted_owed = False
            peer.link.enqueue(Accepted(publisher=peer.name, sequence=self._answered_until(peer)), now_s)

    def _answered_until(self, peer: Peer) -> int:
        return peer.last_sequence if self.safe is None else peer.safe_sequence

    def new_link(self) -> Link:
        """A link to a peer."""
        return Link(self.config.link) if self.safe is None else self.safe.new_link()

    def take_frames(self, peer: str, now_s: float) -> list[Payload | Ack]:
        """All frames that can be sent to a peer now."""
        frames: list[Payload | Ack] = []
        while (frame := self.take_frame(peer, now_s)) is not None:
            frames.append(frame)
        return frames

    def _owes_acceptance(self, peer: Peer) -> bool:
        return peer.accepted_owed and peer.link.connected

    def take_in_turn(self, peer: str, now_s: float) -> tuple[Payload | Ack | None, bool]:
        """The next frame for a peer, None if there is none now, and whether there may be another behind it."""
        known = self.peers.get(peer)
        if known is None:
            return None, False
        if known.accepted_owed:
            self._say_acceptance(known, now_s)
        link = known.link
        frame = link.take_one(now_s)
        if link.unacknowledged_count <= 1:
            self._watch.add(known)  # with more than one it is watched already
        if peer in self._congested:
            self._relieve(known)
        return frame, frame is not None and link.has_frame()

    def owes_only_ack(self, peer: str) -> bool:
        """Whether all that there is to send to a peer is an acknowledgement, which may wait a little."""
        known = self.peers.get(peer)
        if known is None or known.accepted_owed:
            return False
        return known.link.has_frame() and not known.link.has_more_than_ack()

    def wake_at_s(self) -> float | None:
        """When the broker wants its next `Wake`."""
        first_s = self._watch.next_due_s()
        if self._agents is not None:
            first_s = _earlier_s(first_s, self._agents.wake_at_s())
        if self.replacement is not None:
            first_s = _earlier_s(first_s, self.replacement.wake_at_s())
        return first_s if self.channels is None else _earlier_s(first_s, self.channels.wake_at_s())

    def agent_names(self) -> list[str]:
        """The agents inside this broker, as the routing tables call them."""
        return [] if self._agents is None else list(self._agents.inboxes)

    def clients_asked_to_move(self) -> list[str]:
        """Clients that were asked to move and that have not answered."""
        return self.admission.asked()

    def agent_reports(self) -> dict[str, AgentReport]:
        """What the agents inside this broker do and why, by their own names."""
        return {} if self._agents is None else self._agents.reports()

    def place(self, client: str, site: tuple[float, float] | None, now_s: float) -> Place:
        """Where a client is to connect, if this broker is asked; one that coordinates knows."""
        if self._agents is None:
            return Place("", reason=f"broker {self.name} is no coordinator")
        return self._agents.place(client, site, now_s)

    def retire_agents(self) -> None:
        """Let the agents do nothing more, for the end of an experiment."""
        if self._agents is not None:
            self._agents.retire()
        if self.replacement is not None:
            self.replacement.retire()

    def read_load(self, now_s: float) -> LoadIndices:
        """The load indices of this moment."""
        return self.meters.read(
            now_s,
            input_count=self.input_count,
            output_count=sum(peer.link.queued_count for peer in self.peers.values()),
            memory_bytes=self.memory_bytes,
        )

    # ---- one publication's way ----

    def receive(self, name: str, frame: Payload | Ack, now_s: float) -> None:
        """A frame arrived from a peer: the same as the event `Received`, for worlds with very many of them."""
        peer = self.peers.get(name)
        if peer is None:
            return  # a frame that was under way when the peer was removed
        data_count = 0
        data_in = self._held_in if self._congested and self._must_wait(name) else self._data_in
        messages = peer.link.receive(frame, now_s)
        if messages or peer.link.has_frame():
            self._maybe_sendable[name] = None
        for message in messages:
            if is_control(message):
                self._control_in.append((name, message))
            else:
                data_in.append((name, message))
                data_count += 1
        peer.link.data_arrived(data_count)

    def _steps(self, count: int, now_s: float) -> list[Effect]:
        """Process up to so many messages, fewer where a queue should be sent first."""
        effects: list[Effect] = []
        while count and (self._control_in or self._data_in) and not self.client_queue_is_full:
            effects += self._step(now_s)
            count -= 1
        return effects

    def _step(self, now_s: float) -> list[Effect]:
        if self._control_in:
            name, message = self._control_in.popleft()
            self.counters.control_in_count += 1
            return self._control(name, message, now_s) if name in self.peers else []
        if not self._data_in:
            return []
        name, data = self._data_in.popleft()
        peer = self.peers.get(name)
        if peer is not None and peer.link.did():
            self._maybe_sendable[name] = None
        if isinstance(data, Publish):
            return self.on_publication(name, data, now_s)
        if peer is not None:
            effects = self._control(name, data, now_s)
            if self.safe is not None:
                self.safe.settle(name)
            return effects
        if isinstance(data, Complete) and data.is_lost:
            self.moves.complete(name, data, now_s)  # it stands behind what a neighbour said that is gone
        return []

    def route(self, source: str, message: Publish, now_s: float) -> list[Effect]:
        """Pass a publication on to all who want it."""
        peer = self.peers.get(source)
        is_from_client = peer is not None and peer.role == "client"
        if peer is not None and is_from_client and not self._take_over(peer, message, now_s):
            return []
        self.counters.publications_in_count += 1
        agents = self._agents
        if agents is not None and agents.traces and is_from_client:
            message = agents.tagged(message, now_s)
        onward = one_hop_further(message)
        effects: list[Effect] = []
        hops = self.tables.hops_for(message.values)
        if agents is not None:
            agents.matched(message, hops, now_s)
        if not is_from_client and source in hops:
            hops.remove(source)
        if message.cause and agents is not None:
            agents.traced(message, source, hops, now_s)
        self.counters.publications_out_count += len(hops)
        peers, sendable = self.peers, self._maybe_sendable
        for hop in hops:
            sendable[hop] = None
            to = peers[hop]
            queue = to.queue
            queue.append(onward)
            if len(queue) >= to.queue_max_count:
                effects += self._queue_is_full(to)
        for effect in effects:  # behind the publication, for the end of a publisher's advertisements ends routes
            if isinstance(effect, Close):
                self._remove_peer(effect.peer, now_s)
        return effects

    def _take_over(self, peer: Peer, message: Publish, now_s: float) -> bool:
        """Whether a client's publication is new and announced; if so the broker answers for it from now on."""
        self._maybe_sendable[peer.name] = None
        if message.publisher != peer.name:
            about = f"{message.publisher}:{message.sequence}"
            self.refuse(peer, about, f"a publication of {peer.name} carries this name and no other", now_s)
            return False
        if message.sequence <= peer.last_sequence:
            peer.accepted_owed = True
            return False
        peer.last_sequence = message.sequence
        peer.accepted_owed = True
        if peer.announcements is not None and peer.announcements.announce(message.values):
            return True
        about = f"{message.publisher}:{message.sequence}"
        self.refuse(peer, about, "no advertisement of this client announces the publication", now_s)
        return False

    # ---- queues that are full ----

    def _queue_is_full(self, peer: Peer) -> list[Effect]:
        """A publication has filled an output queue: hold its sources back, or deal with a slow client."""
        waiting_count = len(peer.queue)
        if waiting_count == peer.queue_max_count:
            self.client_queue_is_full |= peer.role == "client"
        elif peer.role == "broker" or self.config.slow_policy == "block":
            if peer.name not in self._congested:
                self._congested[peer.name] = None
                self._sort_data_in()
        elif self.config.slow_policy == "drop-oldest":
            self._drop_oldest(peer)
        else:
            reason = f"too slow: {waiting_count:,} publications waited; read faster or ask for less"
            return [Close(peer.name, reason)]
        return []

    def _drop_oldest(self, peer: Peer) -> Publish | None:
        """Give up the publication that has waited longest for a slow client, and count it."""
        dropped = peer.link.drop_oldest_data()
        if dropped is not None:
            self.counters.dropped_count += 1
        return dropped if isinstance(dropped, Publish) else None

    def _relieve(self, peer: Peer) -> None:
        """Go on with what was held back if half of a congested queue is gone."""
        if len(peer.queue) <= peer.queue_max_count // 2:
            del self._congested[peer.name]
            self._sort_data_in()

    def _must_wait(self, source: str) -> bool:
        """Whether data of a source could add to a congested queue: it never goes back to a neighbour it came from."""
        return any(name != source or self.peers[name].role == "client" for name in self._congested)

    def _sort_data_in(self) -> None:
        """Congestion has changed: data of each source may be processed or must wait, in its old order."""
        waits: dict[str, bool] = {}
        waiting = [*self._held_in, *self._data_in]
        self._held_in.clear()
        self._data_in.clear()
        for item in waiting:
            source = item[0]
            if source not in waits:
                waits[source] = self._must_wait(source)
            (self._held_in if waits[source] else self._data_in).append(item)

    # ---- control ----

    def _control_publication(self, source: Peer, message: ControlPublish, now_s: float) -> None:
        """Pass on what an agent says, to agents here and to brokers behind which there are others; never to clients."""
        if source.role == "client":
            self.refuse(source, f"{message.publisher}:{message.sequence}", "only brokers send control messages", now_s)
            return
        onward = msgspec.structs.replace(message, hops=message.hops + 1)
        for hop in self.tables.hops_for(message.values):
            if hop != source.name and self.peers[hop].role != "client":
                self.send(hop, onward, now_s)

    def say_from_agent(self, name: str, message: AnyMessage) -> None:
        """An agent says something: it takes its turn in the input queue like everything else."""
        self._control_in.append((name, message))

    def address_of(self, broker: str) -> str:
        """Where clients find a broker."""
        return next((peer.behind[broker] for peer in self.peers.values() if broker in peer.behind), "")

    def _control(self, name: str, message: AnyMessage, now_s: float) -> list[Effect]:
        peer = self.peers[name]
        match message:
            case Advertise():
                self._advertise(peer, message, now_s)
            case Subscribe():
                self.subscribe(peer, message, now_s)
            case Unadvertise(id=id):
                if self._owns(peer, self.tables.advertisements.get(id), id, now_s):
                    peer.advertisements.pop(id, None)
                    if peer.announcements is not None:
                        peer.announcements.discard(id)
                    self.end_advertisement(id, now_s)
                else:
                    self._early.withdraw(name, id)
            case SubscribeChannel():
                return self._subscribe_channel(peer, message, now_s)
            case Unsubscribe(id=id):
                if self.channels is not None and self.channels.unsubscribe(name, id, now_s):
                    return []
                if self._owns(peer, self.tables.subscriptions.get(id), id, now_s):
                    self.end_subscription(peer, id, now_s)
            case Confirmed(id=id):
                self._confirm_advertisements(self._advertisement_confirmations.confirm(name, id), now_s)
                self._confirm_subscriptions(self._subscription_confirmations.confirm(name, id), now_s)
            case Synced():
                self._unsynced.pop(name, None)
                self._sync(now_s)
            case ControlPublish():
                self._control_publication(peer, message, now_s)
            case Members(names=names, addresses=addresses):
                return self._members(peer, names, addresses, now_s)
            case Gone(names=names):
                self._gone(peer, names, now_s)
            case Handover() | Complete() | Cancel() if peer.role != "broker":
                self.refuse(peer, message.move, "only brokers say this", now_s)
            case MoveIn():
                self.moves.move_in(peer, message, now_s)
            case Handover():
                self.moves.handover(peer, message, now_s)
            case Complete():
                self.moves.complete(name, message, now_s)
            case Cancel():
                self.moves.cancel(message, now_s)
            case Stay(move=move):
                self.moves.stay(peer, move, now_s)
            case Refused(about=cause, reason=reason):
                if peer.role == "client":
                    self.tell_agents_of_move(ClientStayed(name, cause, reason), name, now_s)
            case Measured(round_trips_s=round_trips_s, cause=cause):
                if peer.role == "client":
                    self.tell_agents(RoundTripsTold(name, round_trips_s, cause), now_s)
            case (
                Publish()
                | End()
                | Accepted()
                | Redirect()
                | Measure()
                | Stayed()
                | ChannelConfirmed()
                | Resume()
                | Stranded()
            ):
                pass  # data comes another way; the rest is for clients
            case _:
                return [] if self.replacement is None else self.replacement.handle(peer, message, now_s)
        return []

    def _advertise(self, peer: Peer, message: Advertise, now_s: float) -> None:
        is_known = message.id in self.tables.advertisements
        if self.replacement is not None:
            self.replacement.advertised(peer, message.filter, now_s)
            if is_known and self.replacement.advertises_again(peer, message, now_s):
                return
        if is_known and peer.role == "broker":
            self._early.wait(peer.name, message)
            return
        if not self._may_add(peer, message.id, is_known, now_s):
            return
        self.install_advertisement(Entry(message.id, message.filter, peer.name), now_s)

    def install_advertisement(self, entry: Entry, now_s: float) -> None:
        """Put an advertisement into the tables and pass it on."""
        self._own_advertisement(entry, now_s)
        self.say(self.tables.add_advertisement(entry), now_s)
        if self._advertisement_confirmations.begin(entry.id):
            self._confirm_advertisements([entry.id], now_s)

    def _own_advertisement(self, entry: Entry, now_s: float) -> None:
        peer = self.peers[entry.hop]
        if peer.role == "client":
            peer.advertisements[entry.id] = None
            if peer.announcements is None:
                peer.announcements = Announcements()
            peer.announcements.add(entry.id, entry.filter)
            self.tell_agents(ClientAdvertised(peer.name), now_s)

    def subscribe(self, peer: Peer, message: Subscribe, now_s: float) -> None:
        """A neighbour, client or agent subscribes."""
        if self.replacement is not None and self.replacement.subscribes_again(peer, message, now_s):
            return
        if not self._may_add(peer, message.id, message.id in self.tables.subscriptions, now_s):
            return
        if peer.role == "client":
            peer.subscriptions[message.id] = message.within_s
        self.install_subscription(Entry(message.id, message.filter, peer.name), now_s)
        if self.replacement is not None:
            self.replacement.subscribed(peer, message, now_s)
        if peer.role == "client":
            self.tell_agents(ClientSubscribed(peer.name), now_s)

    def install_subscription(self, entry: Entry, now_s: float) -> None:
        """Put a subscription into the tables and pass it on."""
        self.say(self.tables.add_subscription(entry), now_s)
        if self._subscription_confirmations.begin(entry.id):
            self._confirm_subscriptions([entry.id], now_s)

    def _subscribe_channel(self, peer: Peer, message: SubscribeChannel, now_s: float) -> list[Effect]:
        if self.channels is None or peer.role != "client":
            reason = "this broker has no back end" if self.channels is None else "only clients subscribe to channels"
            self.refuse(peer, message.id, reason, now_s)
            return []
        if not self._may_add(peer, message.id, message.id in self.tables.subscriptions, now_s):
            return []
        return [*self.channels.subscribe(peer.name, message, now_s)]

    def towards(self, broker: str) -> str | None:
        """The neighbour through which a broker is reached."""
        return next((peer.name for peer in self.peers.values() if broker in peer.behind), None)

    def end_advertisement(self, id: str, now_s: float) -> None:
        """An advertisement ends."""
        self._advertisement_confirmations.forget(id)
        self.say(self.tables.remove_advertisement(id), now_s)
        self._advertise_early([id], now_s)

    def _advertise_early(self, ended_ids: Iterable[str], now_s: float) -> None:
        for neighbour, message in self._early.take(ended_ids):
            self._advertise(self.peers[neighbour], message, now_s)

    def advertisement_turned(self, entry: Entry, came_from: str, now_s: float) -> None:
        """An advertisement in force comes from another side: it is in force behind the old one, and not told there."""
        confirmations = self._advertisement_confirmations
        if came_from in self.tables.neighbours:
            self._confirm_advertisements(confirmations.confirm(came_from, entry.id), now_s)
        if entry.hop in self.tables.neighbours:
            self._confirm_advertisements(confirmations.withdrawn(entry.hop, entry.id), now_s)

    def end_subscription(self, peer: Peer, id: str, now_s: float) -> None:
        """A subscription ends."""
        peer.subscriptions.pop(id, None)
        self._subscription_confirmations.forget(id)
        self.say(self.tables.remove_subscription(id), now_s)

    def _may_add(self, peer: Peer, id: str, known: bool, now_s: float) -> bool:
        if known:
            self.refuse(peer, id, f"the id {id} is already in use", now_s)
            return False
        if peer.role == "client":
            count = len(peer.advertisements) + len(peer.subscriptions)
            if self.channels is not None:
                count += self.channels.count_of(peer.name)
            if count >= self.config.filters_per_client_max_count:
                self.refuse(
                    peer, id, f"a client may have at most {self.config.filters_per_client_max_count:,} filters", now_s
                )
                return False
        return True

    def _owns(self, peer: Peer, entry: Entry | None, id: str, now_s: float) -> bool:
        if entry is not None and entry.hop == peer.name:
            return True
        if peer.role == "client":
            self.refuse(peer, id, f"{id} is not an id of this client", now_s)
        return False

    def _confirm_advertisements(self, ids: Iterable[str], now_s: float) -> None:
        for id in ids:
            entry = self.tables.advertisements[id]
            if self.replacement is None or not self.replacement.holds_back(entry):
                self._confirm(entry, now_s)

    def _confirm_subscriptions(self, ids: Iterable[str], now_s: float) -> None:
        for id in ids:
            self._confirm(self.tables.subscriptions[id], now_s)

    def _confirm(self, entry: Entry, now_s: float) -> None:
        """Tell the sender that it is in force; a neighbour that owes us its own part is not made to wait for itself."""
        if self._awaited_besides(entry.hop):
            self._held_confirmations.append((entry.hop, entry.id))
        else:
            self.send(entry.hop, Confirmed(id=entry.id), now_s)

    def _sync(self, now_s: float) -> None:
        """Tell each neighbour when all others have told what they know, and confirm what waited for that."""
        for peer in self.peers.values():
            if peer.role == "broker" and peer.name not in self._sync_told and not self._awaited_besides(peer.name):
                self._sync_told[peer.name] = None
                self.send(peer.name, Synced(), now_s)
        held, self._held_confirmations = self._held_confirmations, []
        for hop, id in held:  # asked anew, for a neighbour may have been told of them meanwhile
            subscription, advertisement = self.tables.subscriptions.get(id), self.tables.advertisements.get(id)
            if subscription is not None and subscription.hop == hop and self._subscription_confirmations.begin(id):
                self._confirm(subscription, now_s)
            if advertisement is not None and advertisement.hop == hop and self._advertisement_confirmations.begin(id):
                self._confirm(advertisement, now_s)

    def _awaited_besides(self, neighbour: str) -> bool:
        return any(name != neighbour for name in self._unsynced)

    def say(self, said: Iterable[Say], now_s: float) -> None:
        """Send what the routing tables say; what ends at a neighbour may settle what waited for it there."""
        for each in said:
            self.send(each.to, each.message, now_s)
            if isinstance(each.message, Unsubscribe):
                settled = self._subscription_confirmations.withdrawn(each.to, each.message.id)
                self._confirm_subscriptions(settled, now_s)
            elif isinstance(each.message, Unadvertise):
                settled = self._advertisement_confirmations.withdrawn(each.to, each.message.id)
                self._confirm_advertisements(settled, now_s)

    def send(self, name: str, message: AnyMessage, now_s: float) -> None:
        """Put a message into the output queue for a neighbour, client or agent."""
        peer = self.peers.get(name)
        if peer is not None:
            self._maybe_sendable[name] = None
            if is_control(message):
                peer.link.enqueue(message, now_s)
                self.counters.control_out_count += 1
            else:
                peer.queue.append(message)

    def refuse(self, peer: Peer, about: str, reason: str, now_s: float) -> None:
        """Tell a peer that its request is not carried out, and why."""
        self.counters.refused_count += 1
        self.send(peer.name, Refused(about=about, reason=reason), now_s)

    # ---- peers come and go ----

    def _connected(self, name: str, hello: Hello, now_s: float) -> list[Effect]:
        problem = self._problem_with(name, hello)
        if problem is not None:
            return [Close(name, problem)]
        peer = self.peers.get(name)
        if peer is not None and not self._goes_on(peer, hello):
            if hello.replica and self.replacement is not None:
                self.replacement.begin(peer, hello, now_s)
            else:
                self._remove_peer(name, now_s)
                peer = None
        is_new = peer is None
        if peer is None:
            peer = Peer(name, hello.role, hello.session, self.new_link(), self._queue_max_count(hello.role))
            self.peers[name] = peer
        peer.lease_ends_s = None
        peer.link.connect(hello.expects, now_s)
        self._watch.add(peer)
        self._maybe_sendable[name] = None
        if is_new and peer.role == "broker":
            peer.behind[name] = ""
            self._tell_members(peer, now_s)
            self.say(self.tables.add_neighbour(name), now_s)
            self._tell_other_brokers(peer, Members(names=(name,), addresses=("",)), now_s)
            self.wait_for_sync(name, now_s)
            self._tell_agents_of_brokers(now_s)
            if self.replacement is not None:
                self.replacement.neighbour_came(peer, hello, now_s)
        elif is_new and self.replacement is not None:
            self.replacement.client_came(peer, hello)
        return []

    def _tell_members(self, peer: Peer, now_s: float) -> None:
        others = self.brokers_besides(peer)
        self.send(peer.name, Members(names=tuple(others), addresses=tuple(others.values())), now_s)

    def brokers_besides(self, peer: Peer) -> dict[str, str]:
        """This broker and all that are reached through others than a neighbour, with their addresses."""
        others: dict[str, str] = {self.name: self.config.address}
        for known in self.peers.values():
            if known is not peer:
                others.update(known.behind)
        return others

    def wait_for_sync(self, neighbour: str, now_s: float) -> None:
        """A neighbour has yet to tell all it knows, and to be told."""
        self._unsynced[neighbour] = None
        self._sync_told.pop(neighbour, None)
        self._sync(now_s)

    # ---- earlier lives of neighbours and of this broker ----

    def forget_what_was_said(self, peer: Peer, now_s: float) -> None:
        """A neighbour has begun another life: control messages of the earlier one that wait are void.

        What it had confirmed stays confirmed: it is in force behind it, and so will it be there.
        """
        name = peer.name
        self._control_in = deque(item for item in self._control_in if item[0] != name)
        self._early.forget(name)
        lost = [(name, marker) for marker in self.moves.gone(name, now_s)]
        (self._held_in if self._congested and self._must_wait(name) else self._data_in).extend(lost)
        self._tell_members(peer, now_s)

    def confirm_advertisement_again(self, id: str, now_s: float) -> None:
        """A neighbour tells again what it told before: say whether it is in force."""
        self._advertisement_confirmations.forget(id)
        if self._advertisement_confirmations.begin(id):
            self._confirm_advertisements([id], now_s)

    def confirm_subscription_again(self, id: str, now_s: float) -> None:
        """A neighbour tells again what it told before: say whether it is in force."""
        self._subscription_confirmations.forget(id)
        if self._subscription_confirmations.begin(id):
            self._confirm_subscriptions([id], now_s)

    def claim_advertisement(self, entry: Entry, peer: Peer, now_s: float) -> None:
        """An advertisement that was kept in force belongs to this peer."""
        claimed = msgspec.structs.replace(entry, hop=peer.name)
        self.say(self.tables.turn(claimed, entry.hop, ""), now_s)
        self._own_advertisement(claimed, now_s)
        if entry.hop in self.tables.neighbours:  # which keeps it for the absent, until it hears where they are
            self.send(entry.hop, Advertise(id=entry.id, filter=entry.filter), now_s)
        if peer.role == "broker":
            self._confirm_advertisements(self._advertisement_confirmations.withdrawn(peer.name, entry.id), now_s)
        self.confirm_advertisement_again(entry.id, now_s)

    def claim_subscription(self, entry: Entry, peer: Peer, message: Subscribe, now_s: float) -> None:
        """A subscription that was kept in force belongs to this peer."""
        if peer.role == "client":
            peer.subscriptions[entry.id] = message.within_s
        self.say(self.tables.claim_subscription(msgspec.structs.replace(entry, hop=peer.name)), now_s)
        self.confirm_subscription_again(entry.id, now_s)

    def end_all_from(self, hop: str, now_s: float) -> None:
        """All that is in force for somebody ends."""
        tables = self.tables
        for id in [entry.id for entry in tables.subscriptions.values() if entry.hop == hop]:
            self._subscription_confirmations.forget(id)
        ended = [entry.id for entry in tables.advertisements.values() if entry.hop == hop]
        for id in ended:
            self._advertisement_confirmations.forget(id)
        self.say(tables.remove_all_from(hop), now_s)
        self._advertise_early(ended, now_s)

    def only_behind(self, peer: Peer, names: tuple[str, ...], now_s: float) -> None:
        """No other brokers than these are reached through a neighbour."""
        self._gone(peer, tuple(name for name in peer.behind if name not in names), now_s)

    def _tell_agents_of_brokers(self, now_s: float) -> None:
        self.tell_agents(NeighboursChanged(), now_s)

    def tell_agents(self, event: AgentEvent, now_s: float) -> None:
        """Something has happened that the agents may want to know."""
        if self._agents is not None:
            self._agents.tell_all(event, now_s)

    def tell_agents_of_move(self, event: AgentEvent, client: str, now_s: float) -> None:
        """A client has come, left, or stayed; it may be asked to move again."""
        self.admission.ended(client, event.reason if isinstance(event, ClientStayed) else "")
        self.tell_agents(event, now_s)

    def objection_to_leaving(self, publisher: str) -> str:
        """Why a publisher is not to be relocated, empty if it may be."""
        return "" if self._agents is None else self._agents.objection_to_leaving(publisher)

    def objection_to_publisher(self, publisher: str) -> str:
        """Why a publisher is not to be served by this broker, empty if it may come."""
        return "" if self._agents is None else self._agents.objection_to_coming(publisher)

    def _queue_max_count(self, role: Role) -> int:
        return self.config.client_queue_max_count if role == "client" else self.config.broker_queue_high_count

    def _problem_with(self, name: str, hello: Hello) -> str | None:
        if hello.version != VERSION:
            return f"protocol version {hello.version} is not spoken here, but {VERSION} is"
        if hello.name != name or not name:
            return "the greeting's name is not the name of this connection"
        if name == self.name:
            return f"{name} is this broker's own name"
        if is_stream(name):
            return f"{name[:100]} is a name for the results of a channel, not for a {hello.role}"
        known = self.peers.get(name)
        if known is not None and known.role != hello.role:
            return f"the name {name} belongs to a {known.role} already"
        if known is not None and known.link.connected and known.session != hello.session and not hello.replica:
            return f"the name {name} is already in use"
        if known is None and hello.role == "broker" and (cycle := self.cycle_with(name)):
            return cycle
        if known is None and hello.role == "client" and len(self.peers) >= self.config.clients_max_count:
            return f"this broker keeps at most {self.config.clients_max_count:,} sessions"
        return None

    def cycle_with(self, name: str) -> str:
        """Why a new link to a broker would close a cycle, empty if it would not.

        >>> Broker(BrokerConfig("B1")).cycle_with("B2")
        ''
        """
        through = next((peer.name for peer in self.peers.values() if name in peer.behind), None)
        if through is None:
            return ""
        return f"a link between {self.name} and {name} would close a cycle: {name} is reached through {through}"

    def _goes_on(self, peer: Peer, hello: Hello) -> bool:
        """Whether both ends remember the same link."""
        is_same_life = peer.session == hello.session and hello.resumes == self.config.session
        return is_same_life and peer.link.fits(hello.expects)

    def _disconnected(self, name: str, now_s: float) -> None:
        peer = self.peers.get(name)
        if peer is None:
            return
        peer.link.disconnect()
        if peer.role == "client":
            peer.lease_ends_s = now_s + self.config.client_lease_s
            self._watch.add(peer)

    def _remove_peer(self, name: str, now_s: float) -> None:
        peer = self.peers.pop(name, None)
        if peer is None:
            return
        if self.safe is not None:
            self.safe.gone(peer)
        self._control_in = deque(item for item in self._control_in if item[0] != name)
        stays = Publish if peer.role == "broker" else ()  # what a neighbour passed on, but not what it said itself
        self._data_in = deque(item for item in self._data_in if item[0] != name or isinstance(item[1], stays))
        self._held_in = deque(item for item in self._held_in if item[0] != name or isinstance(item[1], stays))
        if name in self._congested:
            del self._congested[name]
            self._sort_data_in()
        self._early.forget(name)
        if peer.role == "client":
            self.end_all_from(name, now_s)
            if self.channels is not None:
                self.channels.client_gone(name, now_s)
            self.moves.gone(name, now_s)
            if cause := self.admission.ended(name, why := "it has left the network"):
                self.tell_agents(ClientStayed(name, cause, why), now_s)
            return
        self.tables.cut_neighbour(name)
        self.end_all_from(name, now_s)
        self._confirm_advertisements(self._advertisement_confirmations.forget_neighbour(name), now_s)
        self._confirm_subscriptions(self._subscription_confirmations.forget_neighbour(name), now_s)
        lost = [(name, marker) for marker in self.moves.gone(name, now_s)]
        (self._held_in if self._congested and self._must_wait(name) else self._data_in).extend(lost)
        self._tell_other_brokers(peer, Gone(names=tuple(peer.behind)), now_s)
        self._unsynced.pop(name, None)
        self._sync_told.pop(name, None)
        self._sync(now_s)
        self._tell_agents_of_brokers(now_s)
        if self.replacement is not None:
            self.replacement.neighbour_gone(name, now_s)

    def _members(self, peer: Peer, names: tuple[str, ...], addresses: tuple[str, ...], now_s: float) -> list[Effect]:
        for name in names:
            elsewhere = any(name in other.behind for other in self.peers.values() if other is not peer)
            if name == self.name or elsewhere:
                self._remove_peer(peer.name, now_s)
                return [Close(peer.name, f"the link between {self.name} and {peer.name} closes a cycle through {name}")]
        told = dict(zip_longest(names, addresses[: len(names)], fillvalue=""))
        new = {name: address for name, address in told.items() if peer.behind.get(name) != address}
        peer.behind.update(new)
        if new:
            self._tell_other_brokers(peer, Members(names=tuple(new), addresses=tuple(new.values())), now_s)
            self._tell_agents_of_brokers(now_s)
            if self.replacement is not None and peer.name in new:
                self.replacement.tell_neighbours(now_s)
        return []

    def _gone(self, peer: Peer, names: tuple[str, ...], now_s: float) -> None:
        gone = tuple(name for name in names if peer.behind.pop(name, None) is not None)
        if gone:
            self._tell_other_brokers(peer, Gone(names=gone), now_s)
            self._tell_agents_of_brokers(now_s)

    def _tell_other_brokers(self, source: Peer, message: AnyMessage, now_s: float) -> None:
        for peer in self.peers.values():
            if peer is not source and peer.role == "broker":
                self.send(peer.name, message, now_s)

    def _wake(self, now_s: float) -> list[Effect]:
        if self._agents is not None:
            self._agents.wake(now_s)
        effects = [] if self.replacement is None else self.replacement.wake(now_s)
        while (peer := self._watch.take_due(now_s)) is not None:
            if peer.lease_ends_s is not None and now_s >= peer.lease_ends_s:
                self._remove_peer(peer.name, now_s)
                continue
            peer.link.wake(now_s)
            self._maybe_sendable[peer.name] = None
            self._watch.add(peer)
        return effects if self.channels is None else [*effects, *self.channels.wake(now_s)]


def _earlier_s(one_s: float | None, other_s: float | None) -> float | None:
    return one_s if other_s is None or (one_s is not None and one_s <= other_s) else other_s
