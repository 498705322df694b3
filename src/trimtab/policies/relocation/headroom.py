"""Room for publishers that are to move: asked for along the path, kept for a while, and given back if somebody has
none.

Joint placement knows the load of all brokers that a trace reached, but not what other brokers decide at the same
time. So before a move each broker on its path is told what the move adds to it; one that has room for it, besides
what it has promised to others lately, passes the request on, and the last one answers. O(path) messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trimtab.policies.api import AgentAction
from trimtab.policies.relocation.decisions import Placement, Reason, Stay
from trimtab.policies.relocation.grape_joint import PathChange, has_room
from trimtab.policies.relocation.grape_tracing import Headroom
from trimtab.policies.relocation.messages import HeadroomAnswer, HeadroomRequest

if TYPE_CHECKING:
    from trimtab.policies.relocation.agent import Desk


class _Promise(msgspec.Struct, frozen=True):
    change: PathChange
    ends_s: float


class HeadroomRequests:
    """What one broker has promised, and what it has asked for."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._promises: dict[str, _Promise] = {}
        self._asked: dict[str, Placement] = {}
        """By session: placements that wait for room."""

    def room(self, now_s: float) -> Headroom:
        """The broker's load, with what it has promised and what has not come yet."""
        host = self._desk.host
        load, capacity = host.load(now_s), host.capacity()
        room = Headroom(
            input_rate_per_s=load.input_rate_per_s,
            matching_delay_s=load.matching_delay_s,
            output_rate_bytes_per_s=load.output_rate_bytes_per_s,
            bandwidth_bytes_per_s=capacity.bandwidth_bytes_per_s,
            publication_bytes=host.publication_bytes(),
        )
        self._promises = {session: each for session, each in self._promises.items() if each.ends_s > now_s}
        for promise in self._promises.values():
            change = promise.change
            room = room.with_more(max(change.input_per_s, 0.0), max(change.output_per_s, 0.0))
        return room

    def ask(self, publisher: str, session: str, placement: Placement, changes: tuple[PathChange, ...]) -> AgentAction:
        """Ask the brokers on a path for room, this one being the first on it."""
        while len(self._asked) >= self._desk.config.traces_max_count:
            del self._asked[next(iter(self._asked))]
        self._asked[session] = placement
        request = HeadroomRequest(sender=self._desk.host.name, publisher=publisher, session=session, changes=changes)
        return self._desk.tell(request, changes[1].broker, session)

    def asked(self, request: HeadroomRequest, now_s: float) -> list[AgentAction]:
        """Promise room and pass the request on, or answer: the last one for all, or one that has none."""
        here = self._desk.host.name
        brokers = [change.broker for change in request.changes]
        if here not in brokers:
            return []
        place = brokers.index(here)
        change = request.changes[place]
        back = tuple(reversed(brokers[: place + 1]))
        full = "" if has_room(self.room(now_s), change, self._desk.config.bearable_ratio) else here
        if not full:
            self._promises[request.session] = _Promise(change, now_s + self._desk.config.room_lifetime_s)
            if place < len(brokers) - 1:
                onward = msgspec.structs.replace(request, sender=here)
                return [self._desk.tell(onward, brokers[place + 1], request.session)]
        answer = HeadroomAnswer(
            sender=here, publisher=request.publisher, session=request.session, brokers=back, full=full
        )
        return [self._desk.tell(answer, back[1], request.session)]

    def answered(self, answer: HeadroomAnswer, now_s: float) -> list[AgentAction] | Placement | Stay:
        """Pass an answer back along the path; at the broker that asked, what is decided."""
        here = self._desk.host.name
        if here not in answer.brokers:
            return []
        if answer.full:
            self._promises.pop(answer.session, None)
        place = answer.brokers.index(here)
        if place < len(answer.brokers) - 1:
            onward = msgspec.structs.replace(answer, sender=here)
            return [self._desk.tell(onward, answer.brokers[place + 1], answer.session)]
        placement = self._asked.pop(answer.session, None)
        if placement is None:
            return []
        if answer.full:
            return Stay(Reason.NO_ROOM, f"{answer.full} has none for what goes to {placement.to_broker}")
        return placement
