"""A cluster-head's part where heads plan for all brokers at once: it sees all loads, collects profiles, plans, orders.

This goes beyond A. Cheung's thesis (2006). As there, brokers tell their load (section 3.3.1), differences beyond
thresholds trigger (section 3.3.2), and a session is agreed on before clients move (section 3.4). Unlike there, one head
plans for all edge-brokers of the network in one session, and nobody waits for samples or for one pair after the other.

    IDLE -> COLLECTING -> MOVING -> IDLE

The head of the cluster with the broker that stands out most asks all edge-brokers for their load and clients, plans
(`joint_plan.py`), and tells those that give whom to send where. A large difference counts at once, a small one when it
was seen several times. If a plan finds nothing to do, the head waits longer and longer before it plans again.

What this costs: every head hears the load of every broker, which the thesis avoids for networks of many clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from random import Random
from typing import Final

import msgspec

from trimtab.language import Filter, Value
from trimtab.load.estimation import BrokerResources, with_matching_delay_like
from trimtab.policies.api import (
    AgentAction,
    AgentEvent,
    AgentHost,
    AgentPlace,
    ClientSubscribed,
    Heard,
    Listen,
    MoveClient,
    Note,
    Tell,
    Unlisten,
    Woken,
)
from trimtab.policies.padres.agent import PadresAgent
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex as Index
from trimtab.policies.padres.decisions import NoAction, Status
from trimtab.policies.padres.detection import index_differences, overload_action
from trimtab.policies.padres.messages import (
    LB_CONTROL,
    AnyControl,
    MoveOrder,
    MoveReport,
    OffloadCancel,
    ProfileReply,
    ProfileRequest,
    control_filter,
    control_from_values,
    control_to_values,
    life_of,
)
from trimtab.policies.padres.snapshot import (
    LOCAL_PIE,
    BrokerLoad,
    KnownBroker,
    broker_load_from_values,
    still_believed,
    with_broker,
)
from trimtab.policies.padres_fast.edge import REFRESH_PERIOD_S, FastEdge
from trimtab.policies.padres_fast.joint_plan import ClusterPlan, Member, plan_cluster
from trimtab.policies.padres_fast.publication_window import PublicationWindow, settled_resources
from trimtab.policies.padres_fast.session_records import FastSession, records_of

DETECTIONS_PER_WINDOW_COUNT: Final = 3
"""How often a head looks at the loads while the meters' window passes: rates change no faster."""

DETECT_MIN_S, DETECT_MAX_S = 1.0, 10.0
"""But no more often, and no less."""

SMALL_RATIO: Final = 0.5
"""A difference of so much of the threshold triggers as well, if it is seen often enough."""

SMALL_HITS_COUNT: Final = 6
"""How often: for two windows of the meters."""

COLLECT_MAX_S: Final = 5.0
"""Answers are awaited for so long; control messages overtake all others."""

PROBE_CLIENTS_COUNT: Final = 10
"""A broker that has matched nothing yet is given so many clients at first: what matching costs there is not known."""

WAIT_MAX_FACTOR: Final = 32
"""A head that finds nothing to do although loads differ looks again after twice its usual time, four times ... and so
many times at most."""

SETTLE_MORE_S: Final = 10.0
"""What a session did is told when so long has passed beyond the meters' window."""


def detection_interval_s(window_s: float) -> float:
    """How often a head looks, from how long rates are averaged over.

    >>> detection_interval_s(30.0), detection_interval_s(6.0), detection_interval_s(0.5)
    (10.0, 2.0, 1.0)
    """
    return min(max(window_s / DETECTIONS_PER_WINDOW_COUNT, DETECT_MIN_S), DETECT_MAX_S)


class _Phase(Enum):
    IDLE = "idle"
    COLLECTING = "collecting"
    MOVING = "moving"


class FastHead:
    """What a cluster-head does."""

    def __init__(self, host: AgentHost, cluster: str, config: PadresConfig, rng: Random, now_s: float) -> None:
        self.cluster = cluster
        self.observes = True
        self.known: dict[str, KnownBroker] = {}
        self._host = host
        self._config = config
        self._rng = rng
        self._window = PublicationWindow(now_s, recent_s=host.meter_window_s())
        self._phase = _Phase.IDLE
        self._session = ""
        self._life = life_of(now_s)
        self._sessions_count = 0
        self._begin_s = now_s
        self._deadline_s = 0.0
        self._asked: dict[str, None] = {}
        self._replies: dict[str, ProfileReply] = {}
        self._served: dict[str, tuple[int, dict[str, tuple[Filter, ...]]]] = {}
        """For each edge-broker the number of its last answer and its clients."""
        self._giving: dict[str, None] = {}
        self._moved_before: dict[str, None] = {}
        self._index = Index.INPUT
        self._hits_count = 0
        self._is_unsure = False
        """Whether the last plan left out clients of whom this head had not seen enough."""
        self._every_s = detection_interval_s(host.meter_window_s())
        self._wait_s = self._every_s
        self._not_before_s = now_s
        self._finished: FastSession | None = None
        self._running: FastSession | None = None
        self._next_detection_s = now_s + rng.uniform(0.0, self._every_s)

    def begin(self) -> list[AgentAction]:
        """Listen to the load of all brokers and to what is said to this one."""
        return [
            Listen("control", control_filter(self._host.name)),
            Listen("load of all", Filter.where({"class": LOCAL_PIE})),
        ]

    def end(self) -> list[AgentAction]:
        """The broker's role changes: listen no more."""
        return [*self._release(), Unlisten("control"), Unlisten("load of all")]

    def wake_at_s(self) -> float:
        """When something is to be done next."""
        return self._next_detection_s if self._phase == _Phase.IDLE else min(self._next_detection_s, self._deadline_s)

    def matched(
        self, publication: tuple[str, int], values: Mapping[str, Value], hops: Sequence[str], now_s: float
    ) -> list[AgentAction]:
        """A publication passed."""
        self._window.saw(publication, values, now_s)
        return []

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        match event:
            case Heard(values=values) if values.get("class") == LOCAL_PIE:
                self.known = with_broker(self.known, broker_load_from_values(values), now_s)
                return []
            case Heard(values=values) if values.get("class") == LB_CONTROL:
                return self._received(control_from_values(values), now_s)
            case Woken():
                return self._woken(now_s)
            case ClientSubscribed(client=client):
                return self._send_to_edge([client])
            case _:
                return []

    def _send_to_edge(self, clients: Sequence[str]) -> list[AgentAction]:
        """Subscribers that came to the head go to an edge-broker of its cluster that is not overloaded, at random."""
        edges = [entry.load for _, entry in sorted(self.known.items()) if entry.load.cluster == self.cluster]
        names = [load.broker for load in edges if load.status == Status.OK] or [load.broker for load in edges]
        return [MoveClient(each, self._rng.choice(names), f"{self._host.name}/redirect") for each in clients if names]

    # ---- detection ----

    def _woken(self, now_s: float) -> list[AgentAction]:
        actions: list[AgentAction] = []
        if self._phase == _Phase.COLLECTING and now_s >= self._deadline_s:
            actions += self._plan(now_s)
        elif self._phase == _Phase.MOVING and now_s >= self._deadline_s:
            actions += self._end(now_s)
        if now_s >= self._next_detection_s:
            self._next_detection_s = now_s + self._every_s
            actions += self._send_to_edge(self._host.clients())
            actions += self._detect(now_s)
        return actions

    def _detect(self, now_s: float) -> list[AgentAction]:
        self.known = still_believed(self.known, now_s, self._config.pie_lifetime_periods * REFRESH_PERIOD_S)
        settle_s = self._host.meter_window_s() + SETTLE_MORE_S
        actions = self._tell_finished(now_s) if self._finished and now_s >= self._finished.end_s + settle_s else []
        if self._phase != _Phase.IDLE or now_s < self._not_before_s:
            return actions
        excess, self._index = largest_difference(
            self.cluster, [each.load for each in self.known.values()], self._config
        )
        overloaded = any(
            each.load.cluster == self.cluster and overload_action(each.load, self._config.lower_overload_ratio)
            for each in self.known.values()
        )
        self._hits_count = self._hits_count + 1 if excess > SMALL_RATIO else 0
        if len(self.known) < 2 or not (excess > 1.0 or overloaded or self._hits_count >= SMALL_HITS_COUNT):
            return actions
        return [*actions, *self._tell_finished(now_s), *self._ask(now_s)]

    # ---- sessions ----

    def _ask(self, now_s: float) -> list[AgentAction]:
        self._sessions_count += 1
        self._session = f"{self._host.name}/{self._life}/fast{self._sessions_count}"
        self._phase, self._begin_s, self._deadline_s = _Phase.COLLECTING, now_s, now_s + COLLECT_MAX_S
        self._asked = dict.fromkeys(sorted(self.known))
        self._replies = {}
        return [
            self._say(
                name,
                ProfileRequest(session=self._session, sender=self._host.name, heard=self._served.get(name, (0, {}))[0]),
            )
            for name in self._asked
        ]

    def _received(self, message: AnyControl, now_s: float) -> list[AgentAction]:
        is_ours = message.session == self._session
        match message:
            case ProfileReply(sender=sender) if is_ours and self._phase == _Phase.COLLECTING:
                self._replies[sender] = message
                self._note_clients(message)
                return self._plan(now_s) if all(name in self._replies for name in self._asked) else []
            case ProfileReply(sender=sender, session=session, status=Status.OK):  # too late: not needed any more
                self._served.pop(sender, None)
                return [self._say(sender, OffloadCancel(session=session, sender=self._host.name, reason="too late"))]
            case MoveReport(sender=sender, stayed=stayed) if is_ours and sender in self._giving:
                del self._giving[sender]
                if self._running is not None:
                    self._running = self._running.without(sender, stayed)
                return [] if self._giving else self._end(now_s)
            case _:  # late, repeated, or not for this part
                return []

    def _note_clients(self, reply: ProfileReply) -> None:
        if reply.status != Status.OK:
            return
        number, clients = self._served.get(reply.sender, (0, {}))
        if reply.since != number:
            clients = {}
        for name in reply.left:
            clients.pop(name, None)
        clients.update((told.client, told.filters) for told in reply.came)
        self._served[reply.sender] = (reply.number, clients)

    def _plan(self, now_s: float) -> list[AgentAction]:
        members = self._members(now_s)
        plan = plan_cluster(members, self._config)
        if isinstance(plan, NoAction):
            factor = 1 if self._is_unsure else 2
            self._wait_s = min(factor * self._wait_s, WAIT_MAX_FACTOR * self._every_s)
            return self._end(now_s)
        self._wait_s = self._every_s
        orders: dict[str, list[tuple[str, str]]] = {}
        for move in plan.moves:
            orders.setdefault(move.from_broker, []).append((move.client, move.to_broker))
            self._moved_before[move.client] = None
        self._running = self._session_of(members, plan)
        self._giving = dict.fromkeys(orders)
        self._phase = _Phase.MOVING
        self._deadline_s = now_s + self._config.migration_deadline_s(len(plan.moves)) + COLLECT_MAX_S
        return [
            self._say(name, MoveOrder(session=self._session, sender=self._host.name, moves=tuple(moves)))
            for name, moves in orders.items()
        ]

    def _members(self, now_s: float) -> list[Member]:
        """All brokers that answered, with the load that they will have with the clients that they have."""
        measured = {
            name: reply.resources
            for name, reply in self._replies.items()
            if reply.status == Status.OK and reply.resources is not None
        }
        served = {name: self._served[name][1] for name in measured}
        samples = self._window.samples(served, round(self._host.publication_bytes()), now_s)
        here = {client for clients in served.values() for client in clients}
        self._moved_before = {client: None for client in self._moved_before if client in here}
        moved_before = frozenset(self._moved_before)
        known = [resources for resources in measured.values() if resources.matching_delay_s > 0]
        slowest = max(known, key=_slope_s, default=None)
        members: list[Member] = []
        self._is_unsure = False
        for name, resources in measured.items():
            sample = samples[name]
            room_count = None
            if resources.matching_delay_s <= 0 and resources.matching_delay_slope_s is None and slowest is not None:
                resources, room_count = with_matching_delay_like(resources, slowest), PROBE_CLIENTS_COUNT
            settled = settled_resources(resources, sample)
            if settled is None:  # its clients receive what does not come this way, or rates have just changed
                self._is_unsure = self._is_unsure or bool(sample.clients)
                received = 0
                for client in sample.clients:
                    received |= client.bits
                sample = msgspec.structs.replace(sample, clients=(), fixed_bits=received)
            members.append(Member(name, settled or resources, sample, moved_before, room_count))
        return members

    def _session_of(self, members: Sequence[Member], plan: ClusterPlan) -> FastSession:
        names = [member.broker for member in members]
        return FastSession(
            session=self._session,
            index=self._index,
            begin_s=self._begin_s,
            end_s=self._begin_s,
            moves=plan.moves,
            clusters={name: self.known[name].load.cluster for name in names if name in self.known},
            before={member.broker: member.resources for member in members},
            estimated=dict(zip(names, plan.after, strict=True)),
            stopped=plan.stopped,
        )

    def _end(self, now_s: float) -> list[AgentAction]:
        self._phase = _Phase.IDLE
        self._not_before_s = now_s + self._wait_s
        self._hits_count = 0
        self._giving = {}
        actions = self._release()
        if self._running is not None:
            self._finished = msgspec.structs.replace(self._running, end_s=now_s)
            self._running = None
        return actions

    def _release(self) -> list[AgentAction]:
        held = [name for name, reply in self._replies.items() if reply.status == Status.OK]
        self._replies = {}
        return [
            self._say(name, OffloadCancel(session=self._session, sender=self._host.name, reason="done"))
            for name in held
        ]

    def _tell_finished(self, now_s: float) -> list[AgentAction]:
        session, self._finished = self._finished, None
        if session is None:
            return []
        observed = {name: entry.load for name, entry in self.known.items()}
        return [Note(record) for record in records_of(session, observed)]

    def _say(self, to: str, message: AnyControl) -> Tell:
        return Tell(control_to_values(message, to), cause=message.session)


def _slope_s(resources: BrokerResources) -> float:
    return resources.matching_delay_s / max(resources.subscription_count, 1)


def largest_difference(cluster: str, loads: Sequence[BrokerLoad], config: PadresConfig) -> tuple[float, Index]:
    """By how much some broker of a cluster exceeds some other broker of any, as a share of the threshold, and in which
    index. A broker of the cluster must be the one that stands out most, so that one head acts and not all of them.

    >>> def load(broker, cluster, ratio):
    ...     return BrokerLoad(broker=broker, cluster=cluster, status=Status.OK, input_utilization_ratio=ratio,
    ...         output_utilization_ratio=0.0, matching_delay_s=0.0)
    >>> loads = [load("B11", "B10", 0.5), load("B21", "B20", 0.25)]
    >>> largest_difference("B10", loads, PadresConfig()), largest_difference("B20", loads, PadresConfig())[0]
    ((2.5, <LoadIndex.INPUT: 'input'>), 0.0)
    """
    found, index, owner = 0.0, Index.INPUT, ""
    for ours in sorted(loads, key=lambda load: load.broker):
        for theirs in loads:
            for action, difference in index_differences(ours, theirs, config).items():
                limit = config.local_delay_threshold if action == Index.MATCH else config.local_ratio_threshold
                if difference / limit > found + 1e-12:
                    found, index, owner = difference / limit, action, ours.cluster
    return (found, index) if owner == cluster else (0.0, index)


def agent_of(config: PadresConfig, place: AgentPlace) -> PadresAgent:
    """The agent of one broker."""
    return PadresAgent(config, place.rng("padres-fast"), name="padres-fast", edge=FastEdge, head=FastHead)
