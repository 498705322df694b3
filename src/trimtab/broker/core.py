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

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from trimtab.broker.agents import Agents
from trimtab.broker.channels import ChannelDesk
from trimtab.broker.config import BrokerConfig
from trimtab.broker.control import Control
from trimtab.broker.draining import Draining, objection_to_draining
from trimtab.broker.entitlements import Entitlements
from trimtab.broker.flow.input_queues import InputQueues
from trimtab.broker.flow.output_queues import OutputQueues
from trimtab.broker.flow.throttle import Throttle
from trimtab.broker.meters import Meters
from trimtab.broker.moves.admission import Admission
from trimtab.broker.moves.transitions import Moves
from trimtab.broker.observer import BrokerObserver
from trimtab.broker.ordering import Ordering
from trimtab.broker.peers import NEVER_S, Counters, Peer, Watch
from trimtab.broker.replication.client_records import Records
from trimtab.broker.replication.durable import DurableDelivery
from trimtab.broker.replication.gaps import Gaps
from trimtab.broker.replication.replacement import Replacement
from trimtab.broker.replication.retention import Item
from trimtab.broker.replication.safe import SafeDelivery
from trimtab.broker.replication.scheduling import ScheduledQueue
from trimtab.broker.replication.takeover import Takeover
from trimtab.broker.routing.interests import Interests
from trimtab.broker.routing.tables import RoutingTables
from trimtab.broker.routing.topology import Topology
from trimtab.broker.sessions import Sessions
from trimtab.broker.stages import Stage
from trimtab.language import limits
from trimtab.language.string_sets import shared_budget
from trimtab.load.indices import LoadIndices
from trimtab.matching.announcements import objection_of
from trimtab.policies.api import Agent
from trimtab.protocol.effects import Close, Effect
from trimtab.protocol.events import (
    BackEndEvent,
    Connected,
    Disconnected,
    DiskSpaceChanged,
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
    RightsChanged,
    RoundTripsMeasured,
    Step,
    Stored,
    Wake,
)
from trimtab.protocol.frames import BATCH_MAX_COUNT, Ack, Hello, Payload
from trimtab.protocol.messages import (
    VERSION_MIN,
    AnyMessage,
    ControlPublish,
    OneWay,
    Publish,
    Refused,
    is_control,
    one_hop_further,
)
from trimtab.protocol.versions import spoken


class Broker:
    """The state machine of one broker.

    A world drives it by the methods of "the world's side" and writes none of its fields: what the world knows comes in
    as events, and what it wants to watch it is told through an observer. For worlds with very many frames there are
    `receive` for `handle(Received(...))`, and the batch forms of `output` for `sendable` with `take_frame`.
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
        self.observer = observer
        """Who is told what becomes of publications and clients, if anybody watches."""
        self.name = config.name
        self.meters = Meters(config.meters, now_s)
        """Told by both worlds what arrived, was matched and was queued, one publication or many at a time."""
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
        self.entitlements = Entitlements(self)
        """What clients may do, where that is limited."""
        self.records = Records(self)
        self.takeover = Takeover(self)
        """What this broker and its neighbours tell each other when a link begins anew."""
        self._awaited_ends, self._sweeps = self.takeover.streams.awaited, self.takeover.sweeps
        self._returning = self.takeover.returning
        self.topology = Topology(self)
        self.moves = Moves(self)
        self.gaps = Gaps(self)
        """Who tells subscribers what may be lost."""
        self.admission = Admission(self)
        self._watch = Watch(self.peers)
        self.input = InputQueues(self.peers)
        self.output = OutputQueues(self, self._watch, self.input)
        self.sessions = Sessions(self, self._watch, self.input)
        self.control = Control(self)
        self.ordering = Ordering(self)
        self.throttle = Throttle(self, config.protection) if config.protection is not None else None
        """Who lets clients' messages in, if clients have limits."""
        self.disk_has_room = True
        """Whether publications of clients may be taken, as far as the disk is concerned."""
        self.fence_problem = ""
        """Why nothing is acknowledged or confirmed, because another incarnation may have this one's place."""
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
            self.takeover.begin_learning()
        self.agents = Agents(self, agents)

    # ---- the world's side ----

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """Take in an event; returns what the world is to do."""
        self.now_s, agents = now_s, self.agents
        if agents.inboxes:
            if agents.wait_for_start and not isinstance(event, LoadMeasured | PublicationSizes):
                agents.start(now_s)
            effects = [*self._handle(event, now_s), *agents.run(now_s)]
        else:
            effects = self._handle(event, now_s)
        if self.later:
            later, self.later = self.later, []
            effects = [*effects, *later]
        return effects

    def _handle(self, event: Event, now_s: float) -> list[Effect]:
        match event:
            case Received(peer=peer, frame=frame):
                self.receive(peer, frame, now_s)
                return []
            case Step(count=count):
                self.output.client_queue_is_full = False
                return self._step(now_s) if count == 1 else self._steps(count, now_s)
            case Connected(peer=peer, hello=hello, rights=rights):
                with shared_budget(limits.LINK_MAX_STEPS):
                    effects = self.sessions.connected(peer, hello, now_s)
                if rights is not None and not effects:
                    self.entitlements.granted(peer, rights, now_s)
                return effects
            case RightsChanged(peer=peer, rights=rights):
                self.entitlements.granted(peer, rights, now_s)
                return []
            case Disconnected(peer=peer, returns=returns):
                with shared_budget(limits.LINK_MAX_STEPS):
                    self.sessions.disconnected(peer, now_s, returns=returns)
                return []
            case LinkRemoved(peer=peer):
                with shared_budget(limits.LINK_MAX_STEPS):
                    self.sessions.remove(peer, now_s)
                return []
            case Wake():
                return self._wake(now_s)
            case Stored(number=number):
                if self.safe is not None:
                    self.safe.stored(number, now_s)
                    self.records.stored(number, now_s)
                return []
            case DiskSpaceChanged(has_room=has_room):
                self.disk_has_room = has_room
                if has_room:
                    self.input.let_go()
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
                self.sessions.resumed(left, now_s)
                return []
            case LoadMeasured() | PublicationSizes():
                self.meters.told(event)
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
            self.input.let_go()
            self.interests.confirm_held(now_s)
            self.output.maybe_sendable.update(dict.fromkeys(self.peers))

    def _back_end_said(self, event: BackEndEvent, now_s: float) -> list[Effect]:
        return [] if self.channels is None else [*self.channels.handle(event, now_s)]

    def left_behind(self) -> LeftBehind:
        """What the next incarnation must know when this one ends."""
        return self.sessions.left_behind()

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
        return len(self.input.control) + len(self.input.data)

    @property
    def held_count(self) -> int:
        """Messages in the input that wait for routes, for a congested output queue, or until a client may send more."""
        count = len(self.input.held) + (self.throttle.waiting_count if self.throttle is not None else 0)
        return count + self.takeover.streams.held_count if self.takeover.streams else count

    @property
    def client_queue_is_full(self) -> bool:
        """Whether the last `Step` has brought a client's queue to its limit: a world should send before the next."""
        return self.output.client_queue_is_full

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
        return len(self.input.data) + self.held_count

    @property
    def next_is_publication(self) -> bool:
        """Whether the next step matches a publication, which is what takes time."""
        if self.input.control:
            return type(self.input.control[0][1]) is ControlPublish
        return bool(self.input.data) and isinstance(self.input.data[0][1], Publish)

    @property
    def next_publisher(self) -> str:
        """Whose publication the next step matches, empty if it does something else."""
        if self.input.control or not self.input.data:
            return ""
        message = self.input.data[0][1]
        return message.publisher if isinstance(message, Publish) else ""

    def data_waiting(self) -> Iterator[tuple[str, AnyMessage]]:
        """The data messages of the input with their sources, whether they can be processed or must wait."""
        waiting = self.throttle.waiting() if self.throttle is not None else ()
        held = ((source, message) for source, message, _ in self.takeover.streams.held())
        return chain(self.input.held, self.input.data, waiting, held)

    def sendable(self) -> list[str]:
        """Peers with a frame to send."""
        return self.output.sendable()

    def take_frame(self, peer: str, now_s: float, messages_max_count: int = BATCH_MAX_COUNT) -> Payload | Ack | None:
        """The next frame for a peer, with up to so many messages; None if there is none now."""
        return self.output.take_frame(peer, now_s, messages_max_count)

    def heartbeat(self, peer: str, *, asks: bool) -> Ack | None:
        """What shows a peer at once that this broker lives, and may ask the same of it; None if it is not connected."""
        known = self.peers.get(peer)
        return None if known is None else known.link.heartbeat(asks=asks)

    def wake_at_s(self, before_s: float = NEVER_S) -> float | None:
        """When the broker wants its next `Wake`; whoever plans one already need only know of times before it."""
        first_s = self._watch.next_due_s(before_s)
        first_s = _earlier_s(first_s, self.agents.wake_at_s())
        if self.replacement is not None:
            first_s = _earlier_s(first_s, self.replacement.wake_at_s())
        first_s = _earlier_s(first_s, self.moves.wake_at_s())
        if self.draining is not None:
            first_s = _earlier_s(first_s, self.draining.wake_at_s())
        if self.later:
            return self.now_s
        if self.throttle is not None:
            first_s = _earlier_s(first_s, self.throttle.wake_at_s())
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

    def change_agents(self, agents: Sequence[Agent], now_s: float) -> None:
        """Let these agents work here from the next event on, and no others."""
        self.agents = self.agents.succeeded_by(agents, now_s)

    def watched_by(self, observer: BrokerObserver) -> None:
        """Tell somebody from here on what becomes of publications and clients."""
        self.observer = observer

    def retire_agents(self) -> None:
        """Let the agents do nothing more, for the end of an experiment."""
        self.agents.retire()
        if self.replacement is not None:
            self.replacement.retire()

    def read_load(self, now_s: float) -> LoadIndices:
        """The load indices of this moment."""
        return self.meters.read(now_s, input_count=self.input_count, output_count=self.output_count)

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
            self.output.maybe_sendable[name] = None
        if not messages:
            return
        if self.throttle is not None and peer.role == "client":
            messages = self.throttle.admit(peer, messages, now_s)
        peer.link.data_arrived(self.input.add(name, messages, peer.epoch))

    def _steps(self, count: int, now_s: float) -> list[Effect]:
        """Process up to so many messages, fewer where a queue should be sent first."""
        effects: list[Effect] = []
        self.control.spent_steps = 0
        input, output = self.input, self.output
        while count and (input.control or input.data) and not output.client_queue_is_full:
            effects += self._step(now_s)
            count -= 1
            if self.control.spent_steps >= limits.MESSAGE_MAX_STEPS:
                break  # others wait as well
        return effects

    def _step(self, now_s: float) -> list[Effect]:
        if self.input.control:
            name, message, epoch = self.input.control.popleft()
            self.counters.control_in_count += 1
            peer = self.peers.get(name)
            if peer is None or peer.epoch != epoch:
                return []  # said in an earlier epoch of the link: what matters is said again in this one
            if self.takeover.holds_clients and peer.role == "client":
                self.takeover.hold_client(name, message, epoch)
                return []
            return self.control.take(peer, message, now_s)
        if not self.input.data:
            return []
        name, data = self.input.data.popleft()
        peer = self.peers.get(name)
        is_publication = type(data) is Publish
        must_stop = self.takeover.holds_clients or (
            is_publication and (not self.disk_has_room or bool(self.fence_problem))
        )
        if must_stop and peer is not None and peer.role == "client":
            self.input.stop(name, data)
            return []
        waits = self._awaited_ends or self._sweeps or self._returning or self._divided
        if is_publication and self.safe is None and not waits:
            if peer is not None and peer.link.did():
                self.output.maybe_sendable[name] = None
            return self.through(name, data, now_s) if self.stages else self.route(name, data, now_s)  # type: ignore[arg-type]
        is_stale = peer is not None and peer.link.stale_count > 0
        if peer is not None and peer.role == "client" and is_publication and self.takeover.streams.must_hold(data):  # type: ignore[arg-type]
            self.input.stop(name, data)
            return []
        if peer is not None and peer.link.did():
            self.output.maybe_sendable[name] = None
        item = None if self.safe is None else self.safe.begin(name, data, is_stale=is_stale)
        effects: list[Effect] = []
        if not self.ordering.must_wait(name, data, item, now_s, is_stale=is_stale):
            effects = self.process(name, data, item, now_s, is_stale=is_stale)
        if self._sweeps:
            self.takeover.sweep_what_is_due(now_s)
        if name in self._returning:
            self.takeover.look_for_returned(now_s)
        return effects

    def process(
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
            effects = [] if peer is None else self.control.take(peer, data, now_s, is_stale=is_stale)
        if self.safe is not None:
            self.safe.end(source, data, item)
        return effects

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
        agents = self.agents
        if is_from_client and agents.traces:
            message = agents.tagged(message, now_s)
        onward = one_hop_further(message)
        effects: list[Effect] = []
        hops = self.tables.hops_for(message.values)
        if agents.inboxes:
            agents.matched(message, "" if is_from_client else source, hops, now_s)
        if not is_from_client and source in hops:
            hops.remove(source)
        for stage in self.stages:
            hops = stage.choose_hops(source, hops)
        if message.cause:
            agents.traced(message, source, hops, now_s)
        self.counters.publications_out_count += len(hops)
        peers, sendable = self.peers, self.output.maybe_sendable
        for hop in hops:
            sendable[hop] = None
            to = peers[hop]
            queue = to.queue
            queue.append(onward)
            if len(queue) >= to.queue_max_count:
                effects += self.output.filled(to)
        if self.safe is not None:
            for hop in hops:
                queue = peers[hop].queue
                self.safe.retention.note(queue.last if isinstance(queue, ScheduledQueue) else peers[hop].link)
        for effect in effects:  # behind the publication, for the end of a publisher's advertisements ends routes
            if isinstance(effect, Close):
                self.sessions.remove(effect.peer, now_s)
        return effects

    def _take_over(self, peer: Peer, message: Publish, now_s: float) -> bool:
        """Whether a client's publication is new and announced; if so the broker answers for it from now on."""
        self.output.maybe_sendable[peer.name] = None
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
        if peer.rights is not None and not peer.rights.may_publish(message.values):
            objection = peer.rights.publication_objection(message.values)
        elif peer.announcements is None:
            objection = objection_of((), message.values)
        elif not (objection := peer.announcements.objection(message.values)) and self.throttle is not None:
            objection = self.throttle.objection_to(message)
        if objection:
            self.refuse(peer, f"{message.publisher}:{message.sequence}", objection, now_s)
            return False
        peer.accepted_sequence = message.sequence
        if self.observer is not None:
            self.observer.accepted(message, now_s)
        return True

    # ---- what the parts say to peers ----

    def send(self, name: str, message: AnyMessage, now_s: float) -> None:
        """Put a message into the output queue for a neighbour, client or agent."""
        peer = self.peers.get(name)
        said = None if peer is None else spoken(message, peer.version)
        if peer is not None and said is not None:
            self.output.maybe_sendable[name] = None
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

    def _wake(self, now_s: float) -> list[Effect]:
        self.agents.wake(now_s)
        effects = [] if self.replacement is None else self.replacement.wake(now_s)
        self.moves.wake(now_s)
        while (peer := self._watch.take_due(now_s)) is not None:
            if peer.lease_ends_s is not None and now_s >= peer.lease_ends_s:
                self.sessions.remove(peer.name, now_s)
                continue
            peer.link.wake(now_s)
            self.output.maybe_sendable[peer.name] = None
            self._watch.add(peer)
        if self.throttle is not None:
            self.throttle.wake(now_s)
        if self.draining is not None:
            effects = [*effects, *self.draining.wake(now_s)]
        return effects if self.channels is None else [*effects, *self.channels.wake(now_s)]


def _earlier_s(one_s: float | None, other_s: float | None) -> float | None:
    return one_s if other_s is None or (one_s is not None and one_s <= other_s) else other_s
