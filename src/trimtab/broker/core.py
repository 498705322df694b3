"""A broker without its sockets. One publication's way stands in this file from top to bottom:

    Received -> input queue -> Step -> stages -> matching (tables.py) -> output queues (links) -> take_frame

Between the input queue and matching stand the stages that are in force, in this order: what must wait for the end of an
earlier stream of its publisher (streams.py), what is retained until it is handed on or on disk (safe.py, durable.py),
and those of the protocols that do not wait for a takeover and of assistants (late_subscriptions.py, assistance.py).
Mostly there are none. What may have come out of order is put in order before (divisions.py).

The world decides when a step is done (at once, or after the modelled matching delay) and when a frame may leave (when
the transport has room, or the modelled bandwidth). The broker reads no clock: every call is told the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from trimtab.broker.agents import Agents
from trimtab.broker.channels import ChannelDesk
from trimtab.broker.config import BrokerConfig
from trimtab.broker.draining import Draining, objection_to_draining
from trimtab.broker.flow.input_queues import InputQueues
from trimtab.broker.flow.throttle import Gatekeeper
from trimtab.broker.meters import Meters
from trimtab.broker.moves.admission import Admission
from trimtab.broker.moves.streams import Held
from trimtab.broker.moves.transitions import Moves
from trimtab.broker.observer import BrokerObserver
from trimtab.broker.peers import NEVER_S, Counters, Peer, Watch
from trimtab.broker.policy_change import succeed
from trimtab.broker.replication.client_records import Records
from trimtab.broker.replication.durable import DurableDelivery
from trimtab.broker.replication.gaps import DroppingLink, Gaps
from trimtab.broker.replication.replacement import Replacement
from trimtab.broker.replication.retention import Item
from trimtab.broker.replication.safe import SafeDelivery
from trimtab.broker.replication.scheduling import ScheduledQueue
from trimtab.broker.replication.takeover import Takeover
from trimtab.broker.routing.interests import Interests
from trimtab.broker.routing.tables import RoutingTables
from trimtab.broker.routing.topology import Reach
from trimtab.broker.sessions import Sessions
from trimtab.broker.stages import Stage
from trimtab.language import Filter
from trimtab.load.indices import LoadIndices
from trimtab.matching.announcements import objection_of
from trimtab.policies.api import (
    Agent,
    AgentEvent,
    AgentReport,
    ClientStayed,
    Place,
    RoundTripsTold,
)
from trimtab.protocol.codec import decode_publication
from trimtab.protocol.effects import Close, Effect
from trimtab.protocol.events import (
    BackEndEvent,
    Connected,
    Disconnected,
    Event,
    FenceChanged,
    KeepClients,
    LeftBehind,
    LinkRemoved,
    LoadMeasured,
    MoveTo,
    PublicationSizes,
    Received,
    Recovered,
    Resumed,
    RoomChanged,
    RoundTripsMeasured,
    Step,
    Stored,
    Wake,
)
from trimtab.protocol.frames import BATCH_MAX_COUNT, Ack, Hello, Payload, Sendable
from trimtab.protocol.link import Link
from trimtab.protocol.messages import (
    VERSION_MIN,
    Accepted,
    Advertise,
    AnyMessage,
    ChannelConfirmed,
    Complete,
    Confirmed,
    ControlPublish,
    End,
    Gap,
    GapQuestion,
    Gone,
    Guard,
    GuardAll,
    Guarded,
    Handover,
    Leaving,
    Measure,
    Measured,
    Members,
    MoveIn,
    OneWay,
    Publish,
    Redirect,
    Refused,
    Resume,
    Stay,
    Stayed,
    Stranded,
    Subscribe,
    SubscribeChannel,
    Swept,
    Unadvertise,
    Unsubscribe,
    is_control,
    one_hop_further,
)
from trimtab.protocol.versions import spoken


class Broker:
    """The state machine of one broker.

    A world drives it by the methods of "the world's side" and writes none of its fields: what the world knows comes in
    as events, and what it wants to watch it is told through an observer. For worlds with very many frames there are
    `receive` for `handle(Received(...))`, and `touched` with `take_in_turn` for `sendable` with `take_frame`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        agents: Sequence[Agent] = (),
        now_s: float = 0.0,
        *,
        observer: BrokerObserver | None = None,
    ) -> None:
        self.config = config
        self._observer = observer
        """Who is told what becomes of publications and clients, if anybody watches."""
        self.name = config.name
        self.meters = Meters(config.meters, now_s)
        """Told by both worlds what arrived, was matched and was queued, one publication or many at a time."""
        self.memory_bytes = 0
        """Memory in use, as far as the world has told (`LoadMeasured`)."""
        self.publication_bytes = 320.0
        """The usual size of a publication on the wire, as far as the world has told (`LoadMeasured`)."""
        self.sizes_bytes: dict[str, int] = {}
        """Sizes by publisher, where the world has told that they differ (`PublicationSizes`)."""
        self.tables = RoutingTables(
            subscription_covering=config.subscription_covering, advertisement_covering=config.advertisement_covering
        )
        self.peers: dict[str, Peer] = {}
        self.counters = Counters()
        self.epoch = config.epoch
        """The number of this incarnation."""
        self.later: list[Effect] = []
        """What the world is to do besides, since it was last asked."""
        self.now_s = now_s
        self.interests = Interests(self)
        self.records = Records(self)
        self.takeover = Takeover(self)
        """What this broker and its neighbours tell each other when a link begins anew."""
        self._awaited_ends, self._sweeps = self.takeover.streams.awaited, self.takeover.sweeps
        self._returning = self.takeover.returning
        self.reach = Reach(self)
        self.moves = Moves(self)
        self.gaps = Gaps(self)
        """Who tells subscribers what may be lost."""
        self.admission = Admission(self)
        self._maybe_sendable: dict[str, None] = {}
        """Peers to whom something has happened since they had nothing to send; asking all of thousands takes long."""
        self._watch = Watch(self.peers)
        self._watched = self._watch.planned_s
        self._input = InputQueues(self.peers)
        self._congested = self._input.congested
        self.sessions = Sessions(self, self._watch, self._input)
        self.gatekeeper = Gatekeeper(self, config.protection) if config.protection is not None else None
        """Who lets clients' messages in, if clients have limits."""
        self.disk_has_room = True
        """Whether publications of clients may be taken, as far as the disk is concerned."""
        self.fence_problem = ""
        """Why nothing is acknowledged or confirmed, because another incarnation may have this one's place."""
        self.client_queue_is_full = False
        """Whether the last `Step` has brought a client's queue to its limit: a world should send before the next."""
        self.channels: ChannelDesk | None = None
        """Where clients subscribe to channels of the back end, if there is one."""
        if config.has_back_end:
            self.channels = ChannelDesk(self, config.results_cached_max_count, config.stream_linger_s)
        self.safe: SafeDelivery | None = None
        """What is handed on and retained until it is safe or durable, if that is promised."""
        if config.acknowledges == "durable" and not config.assists:
            self.safe = DurableDelivery(self)
        elif config.acknowledges != "received":  # what an assistant has, counts when it is done behind it
            self.safe = SafeDelivery(self, is_end_to_end=config.assists != "")
        self.draining: Draining | None = None
        """How far this broker is with leaving the network, if it does."""
        self.stages: tuple[Stage, ...] = ()
        """What publications pass besides, in this order."""
        self.replacement = Replacement(self, config.replication) if config.replication is not None else None
        """Who watches neighbours and has them replaced when they fail, if anybody does."""
        self._divided: Mapping[str, object] = {}
        """Neighbours whose data may have to be put in order."""
        if self.replacement is not None:
            self._divided = self.replacement.divisions.by_source
        if self.takeover.is_learning:
            self.learns()
        self._agents: Agents | None = None
        self._agents_wait_for_start: bool
        self.change_agents(agents, now_s)

    # ---- the world's side ----

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """Take in an event; returns what the world is to do."""
        self.now_s = now_s
        if self._agents is None:
            effects = self._handle(event, now_s)
            return self._with_later(effects) if self.later else effects
        if self._agents_wait_for_start and not isinstance(event, LoadMeasured | PublicationSizes):
            self._agents_wait_for_start = False
            self._agents.start(now_s)
        effects = self._handle(event, now_s)
        return self._with_later([*effects, *self._agents.run(now_s)])

    def _with_later(self, effects: list[Effect]) -> list[Effect]:
        later, self.later = self.later, []
        return [*effects, *later]

    def _handle(self, event: Event, now_s: float) -> list[Effect]:
        match event:
            case Received(peer=peer, frame=frame):
                self.receive(peer, frame, now_s)
                return []
            case Step(count=count):
                self.client_queue_is_full = False
                return self._step(now_s) if count == 1 else self._steps(count, now_s)
            case Connected(peer=peer, hello=hello):
                return self.sessions.connected(peer, hello, now_s)
            case Disconnected(peer=peer, returns=returns):
                self.sessions.disconnected(peer, now_s, returns=returns)
                return []
            case LinkRemoved(peer=peer):
                self.remove_peer(peer, now_s)
                return []
            case Wake():
                return self._wake(now_s)
            case Stored(number=number):
                if self.safe is not None:
                    self.safe.stored(number, now_s)
                    self.records.stored(number, now_s)
                return []
            case RoomChanged(has_room=has_room):
                self.disk_has_room = has_room
                if has_room:
                    self._input.let_go()
                return []
            case FenceChanged(problem=problem):
                self._fence_changed(problem, now_s)
                return []
            case Recovered(publications=publications, records=records, damage=damage):
                self.gaps.damaged(damage, publications)
                if self.safe is not None:
                    self.safe.recovered(publications, records, now_s)
                return []
            case Resumed(left=left):
                self._resume(left, now_s)
                return []
            case LoadMeasured():
                self._load_measured(event)
                return []
            case PublicationSizes(by_publisher=by_publisher):
                self.sizes_bytes.update(by_publisher)
                return []
            case KeepClients():
                self.admission.keep_clients()
                return []
            case MoveTo() | RoundTripsMeasured():
                return []  # for clients
            case _:
                return self._back_end_said(event, now_s)

    def _fence_changed(self, problem: str, now_s: float) -> None:
        """Publications of clients, acknowledgements and confirmations wait as long as there is a problem."""
        self.fence_problem = problem
        if not problem:
            self._input.let_go()
            self.interests.confirm_held(now_s)
            self._maybe_sendable.update(dict.fromkeys(self.peers))

    def _back_end_said(self, event: BackEndEvent, now_s: float) -> list[Effect]:
        return [] if self.channels is None else [*self.channels.handle(event, now_s)]

    def left_behind(self) -> LeftBehind:
        """What the next incarnation must know when this one ends: its clients, and what nobody else has.

        Where publications are acknowledged when they are durable, disks have all of them. Where they are when they are
        safe, those from whom they came have them as well, but may end at the same time.
        """
        peers = [peer for peer in self.peers.values() if peer.role != "agent" and not peer.assists]
        records = [each.left_with or self.records.record_of(each) for each in peers if each.role == "client"]
        tails: dict[str, tuple[Sendable, ...]] = {}
        waiting: list[tuple[str, AnyMessage]] = []
        if self.config.acknowledges != "durable":
            tails = {peer.name: tuple(peer.link.undelivered_data()) for peer in peers}
            neighbours = {peer.name for peer in peers if peer.role == "broker"}
            waiting = [(source, message) for source, message in self.data_waiting() if source in neighbours]
        if self.safe is None and self.replacement is not None:
            waiting = [*self.replacement.divisions.left_behind(), *waiting]
        return LeftBehind(
            records=tuple(records),
            version=self.records.version,
            tails={name: tail for name, tail in tails.items() if tail},
            waiting=tuple(waiting),
        )

    def _resume(self, left: LeftBehind, now_s: float) -> None:
        """The incarnation before was asked to end: its clients are known, and what it had goes on."""
        self.sessions.tails.update(left.tails)
        self._input.add_first(left.waiting)
        self.gaps.resumed()
        self.takeover.resumed(left, now_s)

    def _load_measured(self, event: LoadMeasured) -> None:
        if event.memory_bytes is not None:
            self.memory_bytes = event.memory_bytes
        if event.output_delay_s is not None:
            self.meters.sent(event.output_delay_s)
        if event.publication_bytes is not None:
            self.publication_bytes = event.publication_bytes

    def greeting(self, peer: str) -> Hello:
        """The greeting for a connection to a peer, known or not."""
        known = self.peers.get(peer)
        expects, resumes = (known.link.expects, known.session) if known else (1, "")
        config = self.config
        return Hello(
            config.wire_version_max,
            "broker",
            self.name,
            config.session,
            expects,
            resumes,
            config.replica,
            config.assists,
            config.reorders,
            order=config.order,
            version_min=VERSION_MIN,
            epoch=self.epoch,
            granted=known.incarnation if known is not None and known.role == "broker" else 0,
        )

    @property
    def input_count(self) -> int:
        """Messages in the input queue that can be processed."""
        return len(self._input.control) + len(self._input.data)

    @property
    def held_count(self) -> int:
        """Messages in the input that wait for routes, for a congested output queue, or until a client may send more."""
        count = len(self._input.held) + (self.gatekeeper.waiting_count if self.gatekeeper is not None else 0)
        return count + self.takeover.streams.held_count if self.takeover.streams else count

    @property
    def output_count(self) -> int:
        """Messages in all output queues."""
        count = 0
        for peer in self.peers.values():
            count += len(peer.link.control) + len(peer.link.data)
        return count

    @property
    def data_count(self) -> int:
        """Publications and markers in the input, whether they can be processed or must wait."""
        return len(self._input.data) + self.held_count

    @property
    def next_is_publication(self) -> bool:
        """Whether the next step matches a publication, which is what takes time."""
        if self._input.control:
            return type(self._input.control[0][1]) is ControlPublish
        return bool(self._input.data) and isinstance(self._input.data[0][1], Publish)

    @property
    def next_publisher(self) -> str:
        """Whose publication the next step matches, empty if it does something else."""
        if self._input.control or not self._input.data:
            return ""
        message = self._input.data[0][1]
        return message.publisher if isinstance(message, Publish) else ""

    def data_waiting(self) -> Iterator[tuple[str, AnyMessage]]:
        """The data messages of the input with their sources, whether they can be processed or must wait."""
        waiting = self.gatekeeper.waiting() if self.gatekeeper is not None else ()
        held = ((source, message) for source, message, _ in self.takeover.streams.held())
        return chain(self._input.held, self._input.data, waiting, held)

    def data_count_from(self, source: str) -> int:
        """Data messages of a source in the input."""
        return self._input.data_count_from(source)

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

    def touched(self) -> dict[str, None]:
        """Peers to whom something has happened since this was last asked; no other can have a new frame to send.

        For a world that keeps its own list of peers with frames; `sendable` does not see these peers again.
        """
        touched, self._maybe_sendable = self._maybe_sendable, {}
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
        if self._congested:
            self._input.relieve(known)
        return frame

    def heartbeat(self, peer: str, *, asks: bool) -> Ack | None:
        """What shows a peer at once that this broker lives, and may ask the same of it; None if it is not connected."""
        known = self.peers.get(peer)
        return None if known is None else known.link.heartbeat(asks=asks)

    def _say_acceptance(self, peer: Peer, now_s: float) -> None:
        if self._owes_acceptance(peer):
            peer.accepted_owed = False
            peer.link.enqueue(Accepted(publisher=peer.name, sequence=self._answered_until(peer)), now_s)

    def _answered_until(self, peer: Peer) -> int:
        return peer.last_sequence if self.safe is None else peer.safe_sequence

    def new_link(self) -> Link:
        """A link to a peer."""
        if self.safe is not None:
            return self.safe.new_link()
        return DroppingLink(self.config.link) if self.config.slow_policy == "drop-oldest" else Link(self.config.link)

    def take_frames(self, peer: str, now_s: float) -> list[Payload | Ack]:
        """All frames that can be sent to a peer now."""
        known = self.peers.get(peer)
        if known is None:
            return []
        if known.accepted_owed:
            self._say_acceptance(known, now_s)
        frames = known.link.take_all(now_s)
        if peer not in self._watched:
            self._watch.add(known)
        if self._congested:
            self._input.relieve(known)
        return frames

    def _owes_acceptance(self, peer: Peer) -> bool:
        return peer.accepted_owed and peer.link.connected and not self.fence_problem

    def take_in_turn(self, peer: str, now_s: float) -> tuple[Payload | Ack | None, bool]:
        """The next frame for a peer, None if there is none now, and whether there may be another behind it."""
        known = self.peers.get(peer)
        if known is None:
            return None, False
        if known.accepted_owed:
            self._say_acceptance(known, now_s)
        taken = known.link.take_one(now_s)
        if peer not in self._watched:
            self._watch.add(known)
        if self._congested:
            self._input.relieve(known)
        return taken

    def within_of(self, peer: str) -> float | None:
        """The strictest latency requirement of a client's subscriptions, None if it has none or is no client."""
        known = self.peers.get(peer)
        return None if known is None else known.strictest_within_s()

    def owes_only_ack(self, peer: str) -> bool:
        """Whether all that there is to send to a peer is an acknowledgement, which may wait a little."""
        known = self.peers.get(peer)
        if known is None or known.accepted_owed:
            return False
        return known.link.has_frame() and not known.link.has_more_than_ack()

    def wake_at_s(self, before_s: float = NEVER_S) -> float | None:
        """When the broker wants its next `Wake`; whoever plans one already need only know of times before it."""
        first_s = self._watch.next_due_s(before_s)
        if self._agents is not None:
            first_s = _earlier_s(first_s, self._agents.wake_at_s())
        if self.replacement is not None:
            first_s = _earlier_s(first_s, self.replacement.wake_at_s())
        first_s = _earlier_s(first_s, self.moves.wake_at_s())
        if self.draining is not None:
            first_s = _earlier_s(first_s, self.draining.wake_at_s())
        if self.later:
            return self.now_s
        if self.gatekeeper is not None:
            first_s = _earlier_s(first_s, self.gatekeeper.wake_at_s())
        return first_s if self.channels is None else _earlier_s(first_s, self.channels.wake_at_s())

    def drain(self, targets: Sequence[str], now_s: float, *, carries: bool = False) -> str:
        """Leave the network for good, when all clients have moved to other brokers; returns why that cannot be.

        One that `carries` stays for its neighbours, who are linked by it, and only takes no clients any more.
        """
        if objection := objection_to_draining(self, targets, carries=carries):
            return objection
        if self.draining is not None:
            self.draining.go_on(targets, carries=carries)
        else:
            self.draining = Draining(self, targets, carries=carries, now_s=now_s)
        return ""

    def drain_no_more(self) -> str:
        """Stay, and take clients again; returns why that cannot be."""
        if self.draining is None:
            return f"{self.name} is not being drained"
        if self.draining.phase == "leaving":
            return f"{self.name} has said that it leaves"
        self.draining = None
        return ""

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

    def change_agents(self, agents: Sequence[Agent], now_s: float) -> None:
        """Let these agents work here from the next event on, and no others."""
        self._agents = succeed(self, self._agents, agents, now_s)
        self._agents_wait_for_start = bool(agents)

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
            output_count=self.output_count,
            memory_bytes=self.memory_bytes,
        )

    # ---- one publication's way ----

    def receive(self, name: str, frame: Payload | Ack, now_s: float) -> None:
        """A frame arrived from a peer: the same as the event `Received`, for worlds with very many of them."""
        peer = self.peers.get(name)
        if peer is None:
            return  # a frame that was under way when the peer was removed
        messages = peer.link.receive(frame, now_s)
        if self.safe is not None:
            self.safe.settle_news()
        if messages or peer.link.has_frame():
            self._maybe_sendable[name] = None
        if not messages:
            return
        if self.gatekeeper is not None and peer.role == "client":
            messages = self.gatekeeper.admit(peer, messages, now_s)
        peer.link.data_arrived(self._input.add(name, messages, peer.epoch))

    def let_in(self, name: str, messages: list[AnyMessage]) -> None:
        """Messages that had to wait until their client might send more take their places in the input."""
        self._input.add(name, messages, self.peers[name].epoch)

    def hear_clients(self, said: Sequence[tuple[str, AnyMessage, int]]) -> None:
        """What clients have said and what had to wait takes its place in the input."""
        self._input.control.extendleft(reversed(said))
        self._input.let_go()

    def let_in_first(self, items: Sequence[tuple[str, Publish]]) -> None:
        """Publications from the disk take their places in the input, before all others."""
        self._input.add_first(items)

    def _steps(self, count: int, now_s: float) -> list[Effect]:
        """Process up to so many messages, fewer where a queue should be sent first."""
        effects: list[Effect] = []
        while count and (self._input.control or self._input.data) and not self.client_queue_is_full:
            effects += self._step(now_s)
            count -= 1
        return effects

    def _step(self, now_s: float) -> list[Effect]:
        if self._input.control:
            name, message, epoch = self._input.control.popleft()
            self.counters.control_in_count += 1
            peer = self.peers.get(name)
            if peer is None or peer.epoch != epoch:
                return []  # said in an earlier epoch of the link: what matters is said again in this one
            if self.takeover.holds_clients and peer.role == "client":
                self.takeover.hold_client(name, message, epoch)
                return []
            return self._control(peer, message, now_s)
        if not self._input.data:
            return []
        name, data = self._input.data.popleft()
        peer = self.peers.get(name)
        is_publication = type(data) is Publish
        must_stop = self.takeover.holds_clients or (
            is_publication and (not self.disk_has_room or bool(self.fence_problem))
        )
        if must_stop and peer is not None and peer.role == "client":
            self._input.stop(name, data)
            return []
        waits = self._awaited_ends or self._sweeps or self._returning or self._divided
        if is_publication and self.safe is None and not waits:
            if peer is not None and peer.link.did():
                self._maybe_sendable[name] = None
            return self.through(name, data, now_s) if self.stages else self.route(name, data, now_s)  # type: ignore[arg-type]
        is_stale = peer is not None and peer.link.stale_count > 0
        if peer is not None and peer.role == "client" and is_publication and self.takeover.streams.must_hold(data):  # type: ignore[arg-type]
            self._input.stop(name, data)
            return []
        if peer is not None and peer.link.did():
            self._maybe_sendable[name] = None
        item = None if self.safe is None else self.safe.begin(name, data, is_stale=is_stale)
        effects: list[Effect] = []
        if not self._must_wait(name, data, item, now_s, is_stale=is_stale):
            effects = self._process(name, data, item, now_s, is_stale=is_stale)
        if self._sweeps:
            self.takeover.sweep_what_is_due(now_s)
        if name in self._returning:
            self.takeover.look_for_returned(now_s)
        return effects

    def _must_wait(self, name: str, data: AnyMessage, item: Item | None, now_s: float, *, is_stale: bool) -> bool:
        """Whether something must wait although its turn has come; then it goes on by `release`."""
        streams = self.takeover.streams
        if self.replacement is not None and self.replacement.divisions.must_wait((name, data, item)):
            return True
        match data:
            case Publish() if streams.must_hold(data):
                streams.hold(name, data, item)
            case Unadvertise() | Gap() if streams.holds_from(name):
                peer = self.peers.get(name)
                streams.hold_behind((name, data, item, -1 if is_stale or peer is None else peer.epoch))
            case Unadvertise() if self.safe is not None and self.safe.must_wait_for_disk(name):
                self.safe.hold_behind_disk(name, (name, data, item))
            case Handover():
                return self.moves.must_wait(name, data, item, now_s)
            case _:
                return False
        return True

    def _process(
        self, source: str, data: AnyMessage, item: Item | None, now_s: float, *, is_stale: bool = False
    ) -> list[Effect]:
        """A data message whose turn has come: a publication or a marker."""
        if isinstance(data, Publish):
            effects = self.through(source, data, now_s)
        elif isinstance(data, OneWay):
            effects = []
            if self.replacement is not None:
                self.replacement.one_way(source, data)
        else:
            peer = self.peers.get(source)
            effects = [] if peer is None else self._control(peer, data, now_s, is_stale=is_stale)
        if self.safe is not None:
            self.safe.end(source, data, item)
        return effects

    def release(self, held: Iterable[Held], now_s: float) -> list[Effect]:
        """What has waited goes on: for its order, the end of an earlier stream, the disk, or a record."""
        effects: list[Effect] = []
        for source, message, item in held:
            if isinstance(message, Handover) and self.moves.must_wait(source, message, item, now_s):
                continue
            if isinstance(message, Publish) and self.takeover.streams.must_hold(message):
                self.takeover.streams.hold(source, message, item)
                continue
            if self.safe is not None:
                self.safe.retention.clear()
            effects += self._process(source, message, item, now_s)
        self._input.let_go()
        for source, end, item, epoch in self.takeover.streams.released_ends():
            if isinstance(end, Handover):
                if self.safe is not None:
                    self.safe.retention.clear()
                if self.moves.must_wait(source, end, item, now_s):
                    continue
            effects += self.release_marker((source, end, item), epoch, now_s)
        if self._sweeps:
            self.takeover.sweep_what_is_due(now_s)
        return effects

    def release_marker(self, held: Held, epoch: int, now_s: float) -> list[Effect]:
        """A marker that has waited behind publications goes on; it was said in an epoch of its link."""
        source, marker, item = held
        if self.safe is not None:
            self.safe.retention.clear()
        peer = self.peers.get(source)
        is_stale = peer is None or peer.epoch != epoch
        return self._process(source, marker, item, now_s, is_stale=is_stale)

    def hear_last(self, name: str, marker: AnyMessage) -> None:
        """A neighbour that is gone says this behind all that has come from it."""
        self._input.add(name, [marker], 0)

    def through(self, source: str, message: Publish, now_s: float) -> list[Effect]:
        """Take a publication through the stages that are in force, and route it."""
        return self.after_stage(-1, source, message, now_s) if self.stages else self.route(source, message, now_s)

    def after_stage(self, place: int, source: str, message: Publish, now_s: float) -> list[Effect]:
        """A publication has passed the stage at a place."""
        if place + 1 < len(self.stages):
            return self.stages[place + 1].publication(source, message, place + 1, now_s)
        return self.route(source, message, now_s)

    def add_stage(self, stage: Stage) -> None:
        """One more stage is in force, behind the others."""
        if stage not in self.stages:
            self.stages = (*self.stages, stage)

    def remove_stage(self, stage: Stage) -> None:
        """A stage is in force no more."""
        self.stages = tuple(each for each in self.stages if each is not stage)

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
        for stage in self.stages:
            hops = stage.choose_hops(source, hops)
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
        if self.safe is not None:
            for hop in hops:
                queue = peers[hop].queue
                self.safe.retention.note(queue.last if isinstance(queue, ScheduledQueue) else peers[hop].link)
        for effect in effects:  # behind the publication, for the end of a publisher's advertisements ends routes
            if isinstance(effect, Close):
                self.remove_peer(effect.peer, now_s)
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
        peer.accepted_sequence = 0
        peer.last_sequence = message.sequence
        peer.accepted_owed = True
        if peer.announcements is None:
            objection = objection_of((), message.values)
        elif not (objection := peer.announcements.objection(message.values)) and self.gatekeeper is not None:
            objection = self.gatekeeper.objection_to(message)
        if objection:
            self.refuse(peer, f"{message.publisher}:{message.sequence}", objection, now_s)
            return False
        peer.accepted_sequence = message.sequence
        if self._observer is not None:
            self._observer.accepted(message, now_s)
        return True

    # ---- queues that are full ----

    def _queue_is_full(self, peer: Peer) -> list[Effect]:
        """A publication has filled an output queue: hold its sources back, or deal with a slow client."""
        waiting_count = len(peer.queue)
        if waiting_count == peer.queue_max_count:
            self.client_queue_is_full |= peer.role == "client"
        elif peer.role == "broker" or self.config.slow_policy == "block":
            self._input.congest(peer)
        elif self.config.slow_policy == "drop-oldest":
            self._drop_oldest(peer)
        else:
            reason = f"too slow: {waiting_count:,} publications waited; read faster or ask for less"
            if self._observer is not None:
                self._observer.disconnected_as_slow(peer.name)
            return [Close(peer.name, reason)]
        if self._observer is not None and peer.role == "client":
            self._observer.client_queue_full(peer.name, peer.link.queued_data_count)
        return []

    def _drop_oldest(self, peer: Peer) -> None:
        """Give up the publication that has waited longest for a slow client, and count it."""
        self.gaps.about_to_drop(peer)
        dropped = peer.link.drop_oldest_data()
        if dropped is not None:
            self.counters.dropped_count += 1
        if self._observer is not None and isinstance(dropped, Publish):
            self._observer.dropped(peer.name, dropped)

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
        self._input.control.append((name, message, self.peers[name].epoch))

    def _control(self, peer: Peer, message: AnyMessage, now_s: float, *, is_stale: bool = False) -> list[Effect]:
        name = peer.name
        if peer.assists and self.replacement is not None:
            return self.replacement.from_assistant(peer, message, now_s)
        match message:
            case Advertise():
                self.interests.advertise(peer, message, now_s)
            case Subscribe():
                self.interests.subscribe(peer, message, now_s)
            case Unadvertise():
                self.interests.unadvertise(peer, message, now_s, is_stale=is_stale)
            case SubscribeChannel():
                return self._subscribe_channel(peer, message, now_s)
            case Unsubscribe(id=id):
                if self.channels is None or not self.channels.unsubscribe(name, id, now_s):
                    self.interests.unsubscribe(peer, id, now_s)
            case Confirmed():
                self.interests.confirmed(name, message, now_s)
            case ControlPublish():
                self._control_publication(peer, message, now_s)
            case Members(names=names, addresses=addresses):
                return self.reach.members_came(peer, names, addresses, now_s)
            case Gone(names=names):
                self.reach.members_gone(peer, names, now_s)
            case Handover() | Complete() | Guard() | GuardAll() | Guarded() | Leaving() | Gap() | GapQuestion() if (
                peer.role != "broker"
            ):
                self.refuse(peer, "", "only brokers say this", now_s)
            case Leaving():
                peer.leaves = True
                self.records.look_for_guardian(now_s)
            case MoveIn():
                self.gaps.moves_in(name)
                self.moves.move_in(peer, message, now_s)
            case Gap():
                self.gaps.passes(peer, message, now_s)
            case GapQuestion():
                self.gaps.asked(peer, message, now_s)
            case Handover():
                self.moves.handover(peer, message, now_s)
            case Complete():
                return self.moves.complete(peer, message, now_s)
            case Stay():
                self.moves.stay(peer, message, now_s)
            case Guard():
                self.records.guard(name, message, now_s)
            case GuardAll():
                self.records.guard_all(name, message, now_s)
            case Guarded():
                self.records.guarded(name, message, now_s)
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
                if not self._is_told(peer, message, now_s) and self.replacement is not None:
                    return self.replacement.handle(peer, message, now_s)
        return []

    def _is_told(self, peer: Peer, message: AnyMessage, now_s: float) -> bool:
        """Whether a message belongs to what is told when a link begins anew; of clients that is only its end."""
        if peer.role != "broker" and not isinstance(message, Swept):
            return True
        return self.takeover.handle(peer, message, now_s)

    def _subscribe_channel(self, peer: Peer, message: SubscribeChannel, now_s: float) -> list[Effect]:
        if self.channels is None or peer.role != "client":
            reason = "this broker has no back end" if self.channels is None else "only clients subscribe to channels"
            self.refuse(peer, message.id, reason, now_s)
            return []
        if not self.interests.may_add(peer, message.id, message.id in self.tables.subscriptions, now_s):
            return []
        return [*self.channels.subscribe(peer.name, message, now_s)]

    def send(self, name: str, message: AnyMessage, now_s: float) -> None:
        """Put a message into the output queue for a neighbour, client or agent."""
        peer = self.peers.get(name)
        said = None if peer is None else spoken(message, peer.version)
        if peer is not None and said is not None:
            self._maybe_sendable[name] = None
            if is_control(said):
                peer.link.enqueue(said, now_s)
                self.counters.control_out_count += 1
            else:
                peer.queue.append(said)
                if self.safe is not None:
                    self.safe.retention.note(peer.link)

    def send_to_others(self, source: str, message: AnyMessage, now_s: float) -> None:
        """Send something to all neighbours but the one that it came from."""
        for peer in list(self.peers.values()):
            if peer.role == "broker" and peer.name != source and not peer.assists:
                self.send(peer.name, message, now_s)

    def refuse(self, peer: Peer, about: str, reason: str, now_s: float) -> None:
        """Tell a peer that its request is not carried out, and why."""
        self.counters.refused_count += 1
        self.send(peer.name, Refused(about=about, reason=reason), now_s)

    # ---- takeovers ----

    def learns(self) -> None:
        """Routes, and clients of an earlier incarnation, have yet to become known: data may have to wait for them."""
        if self.config.replica in ("", "synchronous") and not self.config.assists:
            self._input.gate(is_closed=True)
        self.records.await_clients()

    def learned(self, now_s: float) -> None:
        """All routes are known: go on with what has waited for them, the disk's first."""
        self.gaps.learned(now_s)
        if self.safe is not None:
            self.safe.learned(now_s)
        self._input.gate(is_closed=False)
        self.records.look_for_guardian(now_s)
        self.moves.resume_all(now_s)
        if self.replacement is not None:
            self.replacement.learned(now_s)

    def settle_news(self) -> None:
        """Something may have arrived at a peer."""
        if self.safe is not None:
            self.safe.settle_news()

    def to_disk(self, entry: Guard) -> int:
        """Have something written; returns its number."""
        assert self.safe is not None
        return self.safe.to_disk(entry)

    def heard_all_from(self, neighbour: str) -> None:
        """A neighbour has told all its subscriptions."""
        if self.replacement is not None:
            self.replacement.heard_all_from(neighbour)

    def found_on_disk(self, message: Publish) -> None:
        """A publication that an earlier incarnation accepted is on the disk."""
        if self._observer is not None:
            self._observer.recovered(message)

    def passed_by_stand_in(self, message: Publish) -> None:
        """A replica that does not know all routes yet, or an assistant, has passed a publication on."""
        if self._observer is not None:
            self._observer.passed_by_stand_in(message)

    def client_known(self, peer: Peer, filters: Sequence[Filter]) -> None:
        """A client of an earlier incarnation is known, with all it wants."""
        if self.replacement is not None:
            self.replacement.client_known(peer, filters)

    def late_subscription(self, peer: Peer, filter: Filter) -> None:
        """A neighbour's subscription is known: what has passed may have to follow, by some protocols."""
        if self.replacement is not None:
            self.replacement.late_subscription(peer, filter)

    def settle_divisions(self) -> None:
        """A takeover has come further: others may wait for the word that all is in order."""
        if self.replacement is not None:
            self.replacement.divisions.settle()

    def begin_assistance_if_still(self, now_s: float) -> None:
        """A publisher's move has passed; an assistant may have waited for that."""
        if self.replacement is not None:
            self.replacement.assistance.begin_if_still(now_s)

    # ---- peers ----

    def remove_peer(self, name: str, now_s: float) -> None:
        """A peer is gone, with all that is in force for it."""
        peer = self.peers.get(name)
        if self._observer is not None and peer is not None and peer.lease_ends_s is not None:
            if now_s >= peer.lease_ends_s:
                self._tell_of_lapse(self._observer, peer)
        self.sessions.remove(name, now_s)

    def _tell_of_lapse(self, observer: BrokerObserver, peer: Peer) -> None:
        """What ends with a client's lease; a stay that has not begun yet, for all the client knows, ends unnoticed."""
        if peer.is_leaving:
            undelivered = peer.link.undelivered_data()
            observer.left_unheard(peer.name, [each for each in map(_publication, undelivered) if each is not None])
        elif not peer.old_broker:
            observer.lease_lapsed(peer.name, list(peer.subscriptions))

    def same_side(self, assistant: str, neighbour: str) -> None:
        """What comes from an assistant is like what comes from the neighbour that it assists."""
        self._input.same_side[assistant] = neighbour

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

    def _wake(self, now_s: float) -> list[Effect]:
        if self._agents is not None:
            self._agents.wake(now_s)
        effects = [] if self.replacement is None else self.replacement.wake(now_s)
        self.moves.wake(now_s)
        while (peer := self._watch.take_due(now_s)) is not None:
            if peer.lease_ends_s is not None and now_s >= peer.lease_ends_s:
                self.remove_peer(peer.name, now_s)
                continue
            peer.link.wake(now_s)
            self._maybe_sendable[peer.name] = None
            self._watch.add(peer)
        if self.gatekeeper is not None:
            self.gatekeeper.wake(now_s)
        if self.draining is not None:
            effects = [*effects, *self.draining.wake(now_s)]
        return effects if self.channels is None else [*effects, *self.channels.wake(now_s)]


def _publication(message: Sendable) -> Publish | None:
    if isinstance(message, bytes):
        return decode_publication(message)
    return message if isinstance(message, Publish) else None


def _earlier_s(one_s: float | None, other_s: float | None) -> float | None:
    return one_s if other_s is None or (one_s is not None and one_s <= other_s) else other_s
