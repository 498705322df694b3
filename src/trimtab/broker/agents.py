"""The agents of one broker: what they hear and what they ask for, carried out through the broker's own tables."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from trimtab.broker.peers import Peer
from trimtab.language import Filter
from trimtab.load.indices import LoadIndices
from trimtab.policies.api import (
    Agent,
    AgentAction,
    AgentEvent,
    AgentReport,
    Announce,
    AskRoundTrips,
    BrokerCapacity,
    ClientPlacement,
    ClientStayed,
    Heard,
    Listen,
    MoveClient,
    Note,
    Objecting,
    Placing,
    QueueReading,
    RelocatePublisher,
    Reporting,
    Tell,
    Tracing,
    TrafficTotals,
    Unlisten,
    Way,
    Woken,
)
from trimtab.policies.relocation.tags import TRACE_MARK
from trimtab.protocol.effects import Effect, Record
from trimtab.protocol.frames import Sendable
from trimtab.protocol.link import Link, LinkConfig
from trimtab.protocol.messages import (
    Advertise,
    AnyMessage,
    ControlPublish,
    Measure,
    Publish,
    Subscribe,
    Unsubscribe,
)

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class Inbox(Link):
    """An agent's side of the output queues: what is sent to it waits here until the broker's present step is done."""

    def __init__(self) -> None:
        super().__init__(LinkConfig())
        self.data = deque(maxlen=0)  # what clients publish is not for agents
        self.heard: deque[AnyMessage] = deque()
        self.data = deque(maxlen=0)

    def enqueue(self, message: Sendable, now_s: float) -> None:
        """Agents hear each other."""
        if type(message) is ControlPublish:
            self.heard.append(message)


class View:
    """A broker as its agents see it."""

    def __init__(self, broker: Broker, agents: Agents) -> None:
        self._broker = broker
        self._agents = agents

    @property
    def name(self) -> str:
        """The broker's name."""
        return self._broker.name

    def neighbours(self) -> list[str]:
        """The brokers that this one has links to."""
        return [peer.name for peer in self._broker.peers.values() if peer.role == "broker"]

    def brokers(self) -> list[str]:
        """All brokers that this one knows of, itself included."""
        return [self._broker.name, *(name for peer in self._broker.peers.values() for name in peer.behind)]

    def clients(self) -> list[str]:
        """The clients that may be moved."""
        return [
            peer.name
            for peer in self._broker.peers.values()
            if peer.role == "client" and peer.subscriptions and not peer.advertisements
        ]

    def publishers(self) -> list[str]:
        """The clients with advertisements."""
        return [peer.name for peer in self._broker.peers.values() if peer.role == "client" and peer.advertisements]

    def filters_of(self, client: str) -> list[Filter]:
        """A client's subscriptions."""
        peer = self._broker.peers.get(client)
        if peer is None:
            return []
        return [self._broker.tables.subscriptions[id].filter for id in peer.subscriptions]

    def requirements_of(self, client: str) -> list[float | None]:
        """The times within which a client wants what it subscribed to."""
        peer = self._broker.peers.get(client)
        return [] if peer is None else list(peer.subscriptions.values())

    def channel_clients(self) -> list[str]:
        """The clients with channels that may be moved."""
        desk, peers = self._broker.channels, self._broker.peers
        return [] if desk is None else [name for name in desk.clients() if not peers[name].advertisements]

    def streams_of(self, client: str) -> dict[str, int]:
        """A client's channels, with the bytes of all results that each has had so far."""
        desk = self._broker.channels
        return {} if desk is None else desk.streams_of(client)

    def covering_filters(self) -> list[Filter]:
        """What neighbours were asked for on behalf of clients."""
        tables = self._broker.tables
        ids: dict[str, None] = {}
        for neighbour in self.neighbours():
            ids.update(dict.fromkeys(tables.told_to(neighbour)[1]))
        routes, peers = [tables.subscriptions[id] for id in ids], self._broker.peers
        return [route.filter for route in routes if any(peers[hop].role == "client" for hop in route.hops)]

    def subscription_count(self) -> int:
        """Subscriptions in the matching engine."""
        return self._broker.tables.matched_count

    def load(self, now_s: float) -> LoadIndices:
        """The load of this moment."""
        return self._broker.read_load(now_s)

    def capacity(self) -> BrokerCapacity:
        """What the broker has."""
        meters = self._broker.meters.config
        return BrokerCapacity(
            meters.bandwidth_bytes_per_s,
            meters.memory_bytes,
            meters.matching_s_per_subscription,
            meters.downlink_bytes_per_s,
        )

    def publication_bytes(self) -> float:
        """The usual size of a publication on the wire."""
        return self._broker.meters.publication_bytes

    def matched_bytes(self) -> float:
        """The size of the publication that is being matched."""
        return self._agents.matched_bytes

    def matched_from(self) -> str:
        """Where the publication that is being matched came from."""
        return self._agents.matched_from

    def queue_of(self, client: str) -> QueueReading:
        """The output queue for a client."""
        peer = self._broker.peers.get(client)
        if peer is None:
            return QueueReading()
        link, queued_count = peer.link, peer.link.queued_data_count
        is_held = queued_count > 0 and (not link.connected or not link.has_more_than_ack())
        return QueueReading(link.data_sent_count + queued_count, queued_count, is_held)

    def meter_window_s(self) -> float:
        """Over how long rates and delays are means."""
        return self._broker.meters.config.window_s

    def traffic(self) -> TrafficTotals:
        """What has come and gone since the broker began."""
        meters = self._broker.meters
        return TrafficTotals(meters.arrived_count, meters.output_bytes)

    def address_of(self, broker: str) -> str:
        """Where clients find a broker."""
        return self._broker.config.address if broker == self._broker.name else self._broker.topology.address_of(broker)

    def objection_to_coming(self, publisher: str) -> str:
        """Why a publisher is not to be served here."""
        return self._agents.objection_to_coming(publisher)


class Agents:
    """Runs the agents of a broker."""

    def __init__(self, broker: Broker, agents: Sequence[Agent], former: Agents | None = None) -> None:
        """Agents of a broker, perhaps none; those that succeed others go on with their numbers."""
        self._broker = broker
        self._agents = {f"{broker.name}/{agent.name}": agent for agent in agents}
        self.inboxes = {name: Inbox() for name in self._agents}
        """By the names that the routing tables know."""
        for name, inbox in self.inboxes.items():
            broker.peers[name] = Peer(name, "agent", broker.config.session, inbox, sys.maxsize)
        self.wait_for_start = bool(agents)
        """Whether they have yet to begin, with the first event that tells more than load."""
        self._tracer = next(((name, agent) for name, agent in self._agents.items() if isinstance(agent, Tracing)), None)
        self.traces = self._tracer is not None
        """Whether an agent follows publications."""
        self.matched_bytes = broker.meters.publication_bytes
        """The size of the publication that is being matched."""
        self.matched_from = ""
        """The neighbour that it came from; empty for one of a client here."""
        known: dict[str, int] = {} if former is None else former._sequences
        self._sequences: dict[str, int] = {**known, **{name: known.get(name, 0) for name in self._agents}}
        self._ids: dict[tuple[str, str], str] = {}
        self._next_id: int = 1 if former is None else former._next_id
        self._effects: list[Effect] = []
        self._wake_s: float | None = None
        self._wake_is_known = False
        """Whether no agent has been told anything since the first wake was last looked for."""

    def start(self, now_s: float) -> None:
        """The broker begins its work."""
        self.wait_for_start = False
        for name, agent in self._agents.items():
            self._carry_out(name, agent.start(View(self._broker, self), now_s), now_s)

    def tell_all(self, event: AgentEvent, now_s: float) -> None:
        """Something has happened that any agent may want to know."""
        for name, agent in self._agents.items():
            self._carry_out(name, agent.handle(event, now_s), now_s)

    def matched(self, message: Publish, neighbour: str, hops: Sequence[str], now_s: float) -> None:
        """A publication was matched; it came from a neighbour, or from a client of this broker ("")."""
        self.matched_from = neighbour
        broker = self._broker
        for name, agent in self._agents.items():
            if agent.observes:
                self.matched_bytes = broker.meters.size_of_bytes(message)
                publication = (message.publisher, message.sequence)
                self._carry_out(name, agent.matched(publication, message.values, hops, now_s), now_s)

    def tagged(self, message: Publish, now_s: float) -> Publish:
        """A client's publication as it goes on: with a tag if it is followed, and without one that it came with."""
        assert self._tracer is not None
        tag = self._tracer[1].tag(message.publisher, message.sequence, now_s)
        if tag or message.cause.startswith(TRACE_MARK):
            return msgspec.structs.replace(message, cause=tag, wire=b"")
        return message

    def traced(self, message: Publish, source: str, hops: Sequence[str], now_s: float) -> None:
        """A publication with a cause was matched; it may carry a tag."""
        if self._tracer is None or not message.cause.startswith(TRACE_MARK):
            return
        name, agent = self._tracer
        peers = self._broker.peers
        roles = [peers[hop].role for hop in hops]
        neighbours = tuple(hop for hop, role in zip(hops, roles, strict=True) if role == "broker")
        is_own = source not in peers or peers[source].role != "broker"
        way = Way("" if is_own else source, roles.count("client"), neighbours)
        publication = (message.publisher, message.sequence)
        self._carry_out(name, agent.traced(message.cause, publication, way, now_s), now_s)

    def succeeded_by(self, agents: Sequence[Agent], now_s: float) -> Agents:
        """Let these agents go and others come, while the broker works: its policy changes.

        These do nothing more, and what they announced and asked for ends. Clients that they asked to move answer as
        before. The numbering of filters goes on, because the end of an old advertisement stands behind publications on
        its way and must not meet a new one of the same id.
        """
        self.retire()
        for name in self.inboxes:
            del self._broker.peers[name]
            self._broker.interests.end_all_from(name, now_s)
        return Agents(self._broker, agents, self)

    def retire(self) -> None:
        """Let the agents do nothing more; what they have begun takes its course."""
        self._agents.clear()
        self._tracer = None
        self.traces = False
        self._wake_is_known = False
        for inbox in self.inboxes.values():
            inbox.heard.clear()

    def reports(self) -> dict[str, AgentReport]:
        """What agents do and why, by their names, as far as they tell."""
        return {agent.name: agent.report() for agent in self._agents.values() if isinstance(agent, Reporting)}

    def place(self, client: str, site: tuple[float, float] | None, now_s: float) -> ClientPlacement:
        """Where a client is to connect, if an agent here knows."""
        for agent in self._agents.values():
            if isinstance(agent, Placing):
                return agent.place(client, site, now_s)
        return ClientPlacement("", reason=f"broker {self._broker.name} is no coordinator")

    def wake_at_s(self) -> float | None:
        """When the first agent wants to be woken."""
        if not self._wake_is_known:
            times = (agent.wake_at_s() for agent in self._agents.values())
            self._wake_s = min((time for time in times if time is not None), default=None)
            self._wake_is_known = True
        return self._wake_s

    def wake(self, now_s: float) -> None:
        """Wake the agents whose time has come."""
        for name, agent in self._agents.items():
            due_s = agent.wake_at_s()
            if due_s is not None and due_s <= now_s:
                self._carry_out(name, agent.handle(Woken(), now_s), now_s)

    def run(self, now_s: float) -> list[Effect]:
        """Let the agents hear what was sent to them; returns what the world is to do."""
        for name, inbox in self.inboxes.items():
            while inbox.heard and name in self._agents:
                message = inbox.heard.popleft()
                assert isinstance(message, ControlPublish)
                self._carry_out(name, self._agents[name].handle(Heard(message.values), now_s), now_s)
        effects, self._effects = self._effects, []
        return effects

    def _carry_out(self, name: str, actions: Sequence[AgentAction], now_s: float) -> None:
        broker = self._broker
        self._wake_is_known = False
        for action in actions:
            match action:
                case Tell(values=values, cause=cause):
                    self._sequences[name] += 1
                    message = ControlPublish(
                        publisher=name,
                        sequence=self._sequences[name],
                        values=dict(values),
                        origin_s=now_s,
                        session=broker.config.session,
                        cause=cause,
                    )
                    self._say(name, message)
                case Announce(filter=filter):
                    self._say(name, Advertise(id=self._new_id(name), filter=filter))
                case Listen(key=key, filter=filter):
                    self._ids[name, key] = id = self._new_id(name)
                    self._say(name, Subscribe(id=id, filter=filter))
                case Unlisten(key=key):
                    self._say(name, Unsubscribe(id=self._ids.pop((name, key))))
                case MoveClient(client=client, to_broker=to_broker, cause=cause):
                    self._move(client, to_broker, cause, now_s)
                case RelocatePublisher(client=client, to_broker=to_broker, cause=cause):
                    objection = self.objection_to_leaving(client)
                    self._move(client, to_broker, cause, now_s, objection)
                case AskRoundTrips(client=client, brokers=brokers, cause=cause):
                    addresses = tuple(broker.topology.address_of(each) for each in brokers)
                    broker.send(client, Measure(brokers=brokers, addresses=addresses, cause=cause), now_s)
                case Note(record=record):
                    self._effects.append(Record(record))

    def _say(self, name: str, message: AnyMessage) -> None:
        """What an agent says takes its turn in the input like everything else."""
        self._broker.input.control.append((name, message, self._broker.peers[name].epoch))

    def _move(self, client: str, to_broker: str, cause: str, now_s: float, objection: str = "") -> None:
        """Have an intent admitted, or say why it cannot be."""
        reason = objection or self._broker.admission.admit(client, to_broker, cause, now_s)
        if reason:
            self.tell_all(ClientStayed(client, cause, reason), now_s)

    def objection_to_leaving(self, publisher: str) -> str:
        """Why a publisher is not to be relocated, empty if no agent objects."""
        peer = self._broker.peers.get(publisher)
        if peer is not None and not peer.advertisements:
            return "it advertises nothing"
        agents = [agent for agent in self._agents.values() if isinstance(agent, Objecting)]
        return next((why for agent in agents if (why := agent.objection_to_leaving(publisher))), "")

    def objection_to_coming(self, publisher: str) -> str:
        """Why a publisher is not to be served here, empty if no agent objects."""
        agents = [agent for agent in self._agents.values() if isinstance(agent, Objecting)]
        return next((why for agent in agents if (why := agent.objection_to_coming(publisher))), "")

    def _new_id(self, name: str) -> str:
        session = self._broker.config.session
        incarnation = "" if session == "1" else f"{session}/"  # what an earlier one asked for must not be met
        id = f"{name}/{incarnation}{self._next_id}"
        self._next_id += 1
        return id
