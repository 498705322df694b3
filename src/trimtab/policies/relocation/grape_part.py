"""What GRAPE does in a broker: sessions are traced, asked for, and decided about at the publisher's broker.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009), sections 4.1 and 4.2.

With joint placement the sessions of all publishers of a broker that complete within a short while are decided together,
and the brokers on the path of a move whose load would rise are asked for room before (`headroom.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trimtab.policies.api import AgentAction, AskRoundTrips, RoundTripsTold, Way
from trimtab.policies.relocation.decisions import Placement, Reason, Stay
from trimtab.policies.relocation.grape_joint import TracedPublisher, place_jointly
from trimtab.policies.relocation.grape_selection import round_trips_wanted, select_broker
from trimtab.policies.relocation.grape_tracing import Ask, BrokerTrace, Collected, GrapeTraces
from trimtab.policies.relocation.headroom import HeadroomRequests
from trimtab.policies.relocation.messages import (
    AnyRelocation,
    Echo,
    EchoAnswer,
    HeadroomAnswer,
    HeadroomRequest,
    TraceAnswer,
    TraceRequest,
)
from trimtab.policies.relocation.own_delays import OwnDelays
from trimtab.policies.relocation.standing import Phase, Standing
from trimtab.policies.relocation.tags import session_tag
from trimtab.policies.relocation.trace_tree import TraceTree

if TYPE_CHECKING:
    from trimtab.policies.relocation.agent import Desk


class _Evidence:
    """A publisher's session from its end to the decision."""

    def __init__(self, began_s: float, ends_s: float) -> None:
        self.began_s = began_s
        """When the session's first publication came."""
        self.ends_s = ends_s
        """When it is given up."""
        self.traced: TracedPublisher | None = None
        """All that is known, once all answers have come."""
        self.is_ready = False
        """Whether nothing more is awaited: the publisher is to be placed with others."""


class GrapePart:
    """GRAPE in one broker."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._traces = GrapeTraces(desk.config)
        self._delays = OwnDelays(desk.host)
        self._rooms = HeadroomRequests(desk)
        self._is_joint = desk.config.algorithm == "grape-joint"
        self._began_s: dict[str, float] = {}
        """By publisher: when its present session began."""
        self._evidence: dict[str, _Evidence] = {}
        """By publisher: sessions that are over and not decided about."""
        self._joint_at_s: float | None = None
        """When those that are complete are placed together."""

    # ---- tracing ----

    def tag(self, standing: Standing, sequence: int, now_s: float) -> str:
        """All publications of a session carry its name."""
        if standing.phase == Phase.RESTING:
            standing.trace(session_tag(self._desk.host.name, standing.publisher, sequence))
            self._began_s[standing.publisher] = now_s
        standing.traced_count += 1
        return standing.evidence

    def traced(self, tag: str, publication: tuple[str, int], way: Way, now_s: float) -> list[AgentAction]:
        """A publication of a session goes its way; at the publisher's broker it may be the last one."""
        publisher, _ = publication
        echo = self._ask_for_echo(way, now_s)
        news = self._traces.saw(tag, publication, way.source, way.clients_count, way.neighbours, now_s)
        standing = None if way.source else self._desk.standings.get(publisher)
        if (
            standing is not None
            and standing.evidence == tag
            and standing.traced_count >= self._desk.config.grape_threshold_count
        ):
            standing.select(now_s)
            ends_s = now_s + 2 * self._desk.config.answer_timeout_s
            self._evidence[publisher] = _Evidence(self._began_s.pop(publisher, now_s), ends_s)
            news = [*news, *self._traces.asked(tag, publisher, "", 0, now_s)]
        return [*echo, *self._go_on(news, now_s)]

    def _ask_for_echo(self, way: Way, now_s: float) -> list[AgentAction]:
        if not self._delays.sample(now_s):
            return []
        name = self._delays.to_be_asked(way.neighbours, now_s)
        return [] if name is None else [self._desk.tell(Echo(sender=self._desk.host.name, sent_s=now_s), name)]

    def _go_on(self, news: list[Ask | Collected], now_s: float) -> list[AgentAction]:
        actions: list[AgentAction] = []
        here = self._desk.host.name
        for each in news:
            publisher = each.publisher
            if isinstance(each, Ask):
                request = TraceRequest(
                    sender=here, publisher=publisher, session=each.session, sent_count=each.sent_count
                )
                actions.append(self._desk.tell(request, each.to, each.session))
                continue
            traces = (self._own_part(each.traces[0], publisher, now_s), *each.traces[1:])
            if each.to:
                answer = TraceAnswer(sender=here, publisher=publisher, session=each.session, traces=traces)
                actions.append(self._desk.tell(answer, each.to, each.session))
            else:
                actions += self._complete(each.session, publisher, traces, each.missing, now_s)
        return actions

    def _own_part(self, trace: BrokerTrace, publisher: str, now_s: float) -> BrokerTrace:
        """What this broker adds to what it has of a session: itself, its neighbours, its delays, and its room."""
        host, delays = self._desk.host, self._delays
        neighbours = tuple(host.neighbours())
        return msgspec.structs.replace(
            trace,
            broker=host.name,
            neighbours=neighbours,
            input_delay_s=delays.input_s,
            matching_delay_s=delays.matching_s,
            output_delays_s={name: delay_s for name, delay_s in delays.outputs_s.items() if delay_s > 0},
            links_s=delays.links_s,
            client_output_delay_s=delays.clients_output_s,
            serves_publishers=not host.objection_to_coming(publisher),
            room=self._rooms.room(now_s) if self._is_joint else None,
        )

    def heard(self, message: AnyRelocation, now_s: float) -> list[AgentAction]:
        """A neighbour asks for a session, answers, or asks for room."""
        match message:
            case TraceRequest(sender=sender, publisher=publisher, session=session, sent_count=count):
                return self._go_on(self._traces.asked(session, publisher, sender, count, now_s), now_s)
            case TraceAnswer(sender=sender, session=session, traces=traces):
                return self._go_on(self._traces.answered(session, sender, traces), now_s)
            case Echo(sender=sender, sent_s=sent_s):
                here, matching_s = self._desk.host.name, self._delays.matching_s
                return [self._desk.tell(EchoAnswer(sender=here, sent_s=sent_s, matching_delay_s=matching_s), sender)]
            case EchoAnswer():
                self._delays.echoed(message, now_s)
                return []
            case HeadroomRequest():
                return self._rooms.asked(message, now_s)
            case HeadroomAnswer():
                placement = self._rooms.answered(message, now_s)
                if isinstance(placement, list):
                    return placement
                return self._decided(message.publisher, message.session, placement, now_s)
            case _:
                return []  # POP's: not said in a network with GRAPE

    # ---- selection ----

    def _complete(
        self, session: str, publisher: str, traces: tuple[BrokerTrace, ...], missing: tuple[str, ...], now_s: float
    ) -> list[AgentAction]:
        """All that brokers have of a session has come; ask the publisher for round-trip times if they matter."""
        standing, evidence = self._desk.standings.get(publisher), self._evidence.get(publisher)
        if standing is None or evidence is None or standing.evidence != session:
            return []
        standing.candidates_count = len(traces)
        if missing:
            return self._decided(publisher, session, Stay(Reason.NO_ANSWER, f"from {missing[0]}"), now_s)
        aim = self._desk.config.aim_of(publisher)
        evidence.traced = TracedPublisher(
            publisher=publisher,
            broker=self._desk.host.name,
            traces=traces,
            published_count=standing.traced_count,
            over_s=standing.complete_s - evidence.began_s,
            aim=aim,
            moves_count=standing.moves_count(self._desk.config, now_s),
        )
        wanted = round_trips_wanted(TraceTree(self._desk.host.name, traces, standing.traced_count), aim)
        if wanted:
            return [AskRoundTrips(publisher, tuple(wanted), session)]
        return self._select(publisher, now_s)

    def round_trips(self, told: RoundTripsTold, now_s: float) -> list[AgentAction]:
        """The publisher tells how far brokers are; one that it cannot reach is as far as a timeout."""
        evidence = self._evidence.get(told.client)
        standing = self._desk.standings.get(told.client)
        if evidence is None or evidence.traced is None or standing is None or standing.evidence != told.cause:
            return []
        far_s = self._desk.config.answer_timeout_s
        names = [trace.broker for trace in evidence.traced.traces]
        round_trips_s = {name: told.round_trips_s.get(name, far_s) for name in names}
        evidence.traced = msgspec.structs.replace(evidence.traced, round_trips_s=round_trips_s)
        return self._select(told.client, now_s)

    def _select(self, publisher: str, now_s: float) -> list[AgentAction]:
        standing, evidence = self._desk.standings[publisher], self._evidence[publisher]
        assert evidence.traced is not None
        if self._is_joint:
            evidence.is_ready = True
            if self._joint_at_s is None:
                self._joint_at_s = now_s + self._desk.config.joint_wait_s
            return []
        traced = evidence.traced
        tree = TraceTree(traced.broker, traced.traces, traced.published_count)
        wanted_ratio = self._desk.config.gain_wanted_ratio(traced.moves_count)
        found = select_broker(tree, traced.aim, traced.round_trips_s, wanted_ratio)
        return self._decided(publisher, standing.evidence, found, now_s)

    def _select_jointly(self, now_s: float) -> list[AgentAction]:
        """Place all publishers whose sessions are complete, and ask for room on the way of each that is to move."""
        self._joint_at_s = None
        ready = [each.traced for each in self._evidence.values() if each.is_ready and each.traced is not None]
        actions: list[AgentAction] = []
        for publisher, joint in place_jointly(ready, self._desk.config).items():
            session = self._desk.standings[publisher].evidence
            found = joint.placement
            if isinstance(found, Stay):
                actions += self._decided(publisher, session, found, now_s)
                continue
            self._evidence[publisher].is_ready = False  # decided, if there is room
            actions.append(self._rooms.ask(publisher, session, found, joint.changes))
        return actions

    def _decided(self, publisher: str, session: str, found: Placement | Stay, now_s: float) -> list[AgentAction]:
        standing = self._desk.standings.get(publisher)
        self._evidence.pop(publisher, None)
        if standing is None or standing.evidence != session or standing.phase != Phase.SELECTING:
            return []
        return self._desk.account.decide(standing, found, now_s)

    # ---- the rest ----

    def forget(self, publisher: str) -> None:
        """A publisher has moved: what was not decided about is of the past."""
        self._evidence.pop(publisher, None)
        self._began_s.pop(publisher, None)

    def woken(self, now_s: float) -> list[AgentAction]:
        """Decide together what is complete, and give up what did not come in time."""
        actions = self._go_on(self._traces.overdue(now_s), now_s)
        if self._joint_at_s is not None and self._joint_at_s <= now_s:
            actions += self._select_jointly(now_s)
        for publisher in [name for name, evidence in self._evidence.items() if evidence.ends_s <= now_s]:
            session = self._desk.standings[publisher].evidence if publisher in self._desk.standings else ""
            actions += self._decided(publisher, session, Stay(Reason.NO_ANSWER), now_s)
        return actions

    def wake_at_s(self) -> float | None:
        """When something did not come in time, or publishers are placed together."""
        times = [self._traces.next_overdue_s(), self._joint_at_s]
        times += [evidence.ends_s for evidence in self._evidence.values()]
        return min((time_s for time_s in times if time_s is not None), default=None)

    @property
    def kept_bytes(self) -> int:
        """Sessions, about."""
        return self._traces.kept_bytes
