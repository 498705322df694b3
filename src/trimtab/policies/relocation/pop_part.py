"""What POP does in a broker: results run upstream, requests walk downstream, and the answer comes back.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009), sections 3.1 and 3.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.policies.api import AgentAction, RoundTripsTold, Way
from trimtab.policies.relocation.decisions import Placement, Reason, Stay
from trimtab.policies.relocation.messages import (
    AnyRelocation,
    RelocationAnswer,
    RelocationRequest,
    TraceResult,
)
from trimtab.policies.relocation.pop_selection import Arrival, Step, Walk, next_closest, turned_back
from trimtab.policies.relocation.pop_tracing import PopTraces, Profile, Result, Tagger
from trimtab.policies.relocation.standing import Phase, Standing
from trimtab.policies.relocation.tags import pop_tag

if TYPE_CHECKING:
    from trimtab.policies.relocation.agent import Desk


class PopPart:
    """POP in one broker."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._traces = PopTraces(desk.config)
        self._taggers: dict[str, Tagger] = {}
        self._walks_count = 0
        self._walks_end_s: dict[str, float] = {}
        """By publisher: when its walk is given up."""

    # ---- tracing ----

    def tag(self, standing: Standing, sequence: int, now_s: float) -> str:
        """Tag with a probability that falls with every tag of the window, until enough are tagged."""
        config = self._desk.config
        if standing.phase == Phase.RESTING:
            self._walks_count += 1
            standing.trace(f"pop/{self._desk.host.name}/{standing.publisher}/{self._walks_count}")
        if standing.traced_count >= config.pop_threshold_count:
            if not self._traces.outstanding_count(standing.publisher):
                standing.rest(config, now_s)  # the last results were forgotten for others: begin anew
            return ""
        tagger = self._taggers.get(standing.publisher)
        if tagger is None:
            tagger = self._taggers[standing.publisher] = Tagger(config, now_s)
        if not tagger.tags(self._desk.rng, now_s):
            return ""
        standing.traced_count += 1
        return pop_tag(self._desk.host.name)

    def traced(self, tag: str, publication: tuple[str, int], way: Way, now_s: float) -> list[AgentAction]:
        """A tagged publication goes its way; a broker with nobody behind it tells its count at once."""
        result = self._traces.saw(publication, way.source, way.clients_count, way.neighbours, now_s)
        return [] if result is None else self._told(result, now_s)

    def _told(self, result: Result, now_s: float) -> list[AgentAction]:
        """All counts of a publication are there: tell them upstream, or at the publisher's broker see if it was the
        last one."""
        publisher = result.publisher
        if result.to:
            message = TraceResult(
                sender=self._desk.host.name,
                publisher=publisher,
                sequence=result.sequence,
                subscribers_count=result.subscribers_count,
            )
            return [self._desk.tell(message, result.to)]
        standing = self._desk.standings.get(publisher)
        if (
            standing is None
            or standing.phase != Phase.TRACING
            or standing.traced_count < self._desk.config.pop_threshold_count
            or self._traces.outstanding_count(publisher)
        ):
            return []
        standing.select(now_s)
        return self._walk_from_here(standing, now_s)

    # ---- selection ----

    def _walk_from_here(self, standing: Standing, now_s: float) -> list[AgentAction]:
        here = self._desk.host.name
        step = next_closest(self._profile(standing.publisher), Walk(), here)
        if isinstance(step, Arrival):
            return self._desk.account.decide(standing, Stay(Reason.BEST_HERE), now_s)
        self._walks_end_s[standing.publisher] = now_s + self._desk.config.answer_timeout_s
        request = RelocationRequest(sender=here, publisher=standing.publisher, walk=step.walk, brokers=(here,))
        return [self._desk.tell(request, step.to, standing.evidence)]

    def _profile(self, publisher: str) -> Profile:
        return self._traces.profiles.get(publisher, Profile())

    def heard(self, message: AnyRelocation, now_s: float) -> list[AgentAction]:
        """A neighbour's count, a request that walks by, or an answer."""
        match message:
            case TraceResult(sender=sender, publisher=publisher, sequence=sequence, subscribers_count=count):
                result = self._traces.heard((publisher, sequence), sender, count)
                return [] if result is None else self._told(result, now_s)
            case RelocationRequest():
                return self._walked_here(message)
            case RelocationAnswer():
                return self._answered(message, now_s)
            case _:
                return []  # GRAPE's: not said in a network with POP

    def _walked_here(self, request: RelocationRequest) -> list[AgentAction]:
        here, publisher = self._desk.host.name, request.publisher
        if self._desk.host.objection_to_coming(publisher):
            arrival, brokers = turned_back(request.walk), request.brokers
        else:
            brokers = (here, *request.brokers)
            step = next_closest(self._profile(publisher), request.walk, here)
            if isinstance(step, Step):
                onward = RelocationRequest(sender=here, publisher=publisher, walk=step.walk, brokers=brokers)
                return [self._desk.tell(onward, step.to)]
            arrival = step
        answer = RelocationAnswer(
            sender=here, publisher=publisher, brokers=brokers, saved_hops_per_delivery=arrival.saved_hops_per_delivery
        )
        return [self._desk.tell(answer, request.sender)]

    def _answered(self, answer: RelocationAnswer, now_s: float) -> list[AgentAction]:
        here, publisher, brokers = self._desk.host.name, answer.publisher, answer.brokers
        if here not in brokers:
            return []
        place = brokers.index(here)
        if place < len(brokers) - 1:
            onward = RelocationAnswer(
                sender=here,
                publisher=publisher,
                brokers=brokers,
                saved_hops_per_delivery=answer.saved_hops_per_delivery,
            )
            return [self._desk.tell(onward, brokers[place + 1])]
        standing = self._desk.standings.get(publisher)
        if standing is None or self._walks_end_s.pop(publisher, None) is None:
            return []  # given up, or the publisher has gone
        standing.candidates_count = len(brokers)
        saved = answer.saved_hops_per_delivery
        why = f"{saved:.3g} hops less per delivery"
        if place == 0:
            return self._desk.account.decide(standing, Stay(Reason.BEST_HERE), now_s)
        config = self._desk.config
        if saved < config.gain_wanted_ratio(standing.moves_count(config, now_s)):
            return self._desk.account.decide(standing, Stay(Reason.GAIN_TOO_SMALL, f"{brokers[0]}: {why}"), now_s)
        return self._desk.account.decide(standing, Placement(brokers[0], saved, why), now_s)

    # ---- the rest ----

    def round_trips(self, told: RoundTripsTold, now_s: float) -> list[AgentAction]:
        """POP does not ask for these."""
        return []

    def forget(self, publisher: str) -> None:
        """A publisher's stream comes from another side: its profile here is of the past."""
        self._traces.forget(publisher)
        self._taggers.pop(publisher, None)
        self._walks_end_s.pop(publisher, None)

    def woken(self, now_s: float) -> list[AgentAction]:
        """Give up what did not come in time."""
        actions: list[AgentAction] = []
        for result in self._traces.overdue(now_s):
            actions += self._told(result, now_s)
        for publisher in [name for name, ends_s in self._walks_end_s.items() if ends_s <= now_s]:
            del self._walks_end_s[publisher]
            standing = self._desk.standings.get(publisher)
            if standing is not None and standing.phase == Phase.SELECTING:
                actions += self._desk.account.decide(standing, Stay(Reason.NO_ANSWER), now_s)
        return actions

    def wake_at_s(self) -> float | None:
        """When something did not come in time."""
        times = [self._traces.next_overdue_s(), *self._walks_end_s.values()]
        return min((time_s for time_s in times if time_s is not None), default=None)

    @property
    def kept_bytes(self) -> int:
        """Profiles and traced publications, about."""
        return self._traces.kept_bytes
