"""The agent that moves subscribers towards their publishers, link by link, where brokers have room for them.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009): the future work of section 7.

Each broker looks at the publications that it matches until it has seen as many as a trace session of GRAPE has
(section 4.1), decides about every group of subscribers (`subscriber_selection.py`), and begins anew after a rest.
Brokers tell their neighbours what room they have; nobody is moved to one that would be filled beyond what it bears.

Deviations: this is beyond the paper. Publishers stay where they are; `grape-subscribers+grape-load100` moves both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from trimtab.language import Filter, Value
from trimtab.policies.api import (
    AgentAction,
    AgentEvent,
    AgentHost,
    AgentPlace,
    AgentReport,
    Announce,
    ClientCame,
    ClientLeft,
    ClientStayed,
    Heard,
    Listen,
    MoveClient,
    NeighboursChanged,
    Tell,
    Unlisten,
    Woken,
)
from trimtab.policies.padres.messages import life_of
from trimtab.policies.relocation.config import RelocationConfig
from trimtab.policies.relocation.decisions import Placement
from trimtab.policies.relocation.grape_tracing import Headroom
from trimtab.policies.relocation.messages import (
    BrokerHeadroom,
    announced_by,
    relocation_from_values,
    relocation_to_values,
    wanted_from,
)
from trimtab.policies.relocation.subscriber_selection import GroupCounts, count_publication, select_neighbour

TELL_EVERY_S = 10.0
"""Between two tellings of a broker's room: as long as its meters' window usually is."""


class SubscriberAgent:
    """Moves groups of subscribers.

    >>> SubscriberAgent(RelocationConfig(), Random(1)).name
    'grape-subscribers'
    """

    def __init__(self, config: RelocationConfig, rng: Random) -> None:
        self.name = "grape-subscribers"
        self.config = config
        self._rng = rng
        self._host: AgentHost | None = None
        self._ears: dict[str, None] = {}
        self._rooms: dict[str, Headroom] = {}
        self._groups: dict[frozenset[Filter], GroupCounts] = {}
        self._group_of: dict[str, frozenset[Filter]] = {}
        self._seen_count = 0
        self._began_s = 0.0
        self._observes_from_s = 0.0
        self._next_tell_s = 0.0
        self._moving: dict[str, None] = {}
        self._moves: dict[str, tuple[int, float]] = {}
        """How often a client has moved lately, and when it came last."""
        self._life = ""
        self._rounds_count = 0
        self._decision = ""
        self._decided_s: float | None = None

    @property
    def observes(self) -> bool:
        """Whether publications are looked at."""
        return self._host is not None and not self._moving

    def start(self, host: AgentHost, now_s: float) -> list[AgentAction]:
        """Announce what is said to neighbours, and listen to theirs."""
        self._host, self._life = host, life_of(now_s)
        self._next_tell_s = now_s + self._rng.uniform(0.0, TELL_EVERY_S)
        self._rest(now_s)
        return [Announce(announced_by(host.name)), *self._listen(host)]

    def _listen(self, host: AgentHost) -> list[AgentAction]:
        neighbours = host.neighbours()
        new = [name for name in neighbours if name not in self._ears]
        old = [name for name in self._ears if name not in neighbours]
        self._ears = dict.fromkeys(neighbours)
        self._rooms = {name: room for name, room in self._rooms.items() if name in self._ears}
        return [
            *(Unlisten(f"from {name}") for name in old),
            *(Listen(f"from {name}", wanted_from(name, host.name)) for name in new),
        ]

    def wake_at_s(self) -> float:
        """When room is told next."""
        return self._next_tell_s

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        host = self._host
        if host is None:
            return []
        match event:
            case Heard(values=values):
                message = relocation_from_values(values)
                if isinstance(message, BrokerHeadroom):
                    self._rooms[message.sender] = message.room
            case NeighboursChanged():
                return self._listen(host)
            case Woken() if now_s >= self._next_tell_s:
                self._next_tell_s = now_s + TELL_EVERY_S
                told = BrokerHeadroom(sender=host.name, room=self._room(host, now_s))
                return [Tell(relocation_to_values(told, name)) for name in self._ears]
            case ClientCame(client=client):
                count, _ = self._moves.get(client, (0, 0.0))
                self._moves[client] = (count + 1, now_s)
                self._rest(now_s)
            case ClientLeft(client=client) | ClientStayed(client=client):
                self._moving.pop(client, None)
                if isinstance(event, ClientLeft):
                    self._moves.pop(client, None)
                if not self._moving:
                    self._rest(now_s)
            case _:
                pass
        return []

    def matched(
        self, publication: tuple[str, int], values: Mapping[str, Value], hops: Sequence[str], now_s: float
    ) -> list[AgentAction]:
        """A publication was matched: it counts for every group that wants it."""
        host = self._host
        if host is None or now_s < self._observes_from_s:
            return []
        if not self._seen_count:
            self._begin(host, now_s)
        self._seen_count += 1
        wanting = dict.fromkeys(self._group_of[hop] for hop in hops if hop in self._group_of)
        all_hops = dict.fromkeys(hops)
        neighbours = host.neighbours()
        for key in wanting:
            group = self._groups[key]
            count_publication(group, neighbours, host.matched_from(), all_hops, dict.fromkeys(group.clients))
        if self._seen_count < self.config.grape_threshold_count:
            return []
        return self._decide(host, now_s)

    def report(self) -> AgentReport:
        """What it does and why."""
        doing = f"{len(self._moving)} clients are moving" if self._moving else "looks at who wants what from where"
        return AgentReport(
            role="relocation of subscribers",
            status="OK",
            doing=doing,
            decision=self._decision,
            decided_s=self._decided_s,
        )

    # ---- deciding ----

    def _rest(self, now_s: float) -> None:
        self._seen_count = 0
        self._observes_from_s = now_s + self.config.rest_s

    def _begin(self, host: AgentHost, now_s: float) -> None:
        groups: dict[frozenset[Filter], list[str]] = {}
        for client in host.clients():
            groups.setdefault(frozenset(host.filters_of(client)), []).append(client)
        self._groups = {key: GroupCounts(tuple(clients)) for key, clients in groups.items()}
        self._group_of = {client: key for key, clients in groups.items() for client in clients}
        self._began_s = now_s
        oldest_s = now_s - self.config.move_memory_s
        self._moves = {client: each for client, each in self._moves.items() if each[1] > oldest_s}

    def _room(self, host: AgentHost, now_s: float) -> Headroom:
        load, capacity = host.load(now_s), host.capacity()
        return Headroom(
            input_rate_per_s=load.input_rate_per_s,
            matching_delay_s=load.matching_delay_s,
            output_rate_bytes_per_s=load.output_rate_bytes_per_s,
            bandwidth_bytes_per_s=capacity.bandwidth_bytes_per_s,
            publication_bytes=host.publication_bytes(),
        )

    def _decide(self, host: AgentHost, now_s: float) -> list[AgentAction]:
        over_s = max(now_s - self._began_s, 1e-9)
        self._rest(now_s)
        self._rounds_count += 1
        cause = f"{host.name}/{self._life}/subscribers{self._rounds_count}"
        actions: list[AgentAction] = []
        for group in sorted(self._groups.values(), key=lambda each: (-each.wanted_count, each.clients)):
            moves_count = max((self._moves.get(client, (0, 0.0))[0] for client in group.clients), default=0)
            after = {name: self._with(room, group, name, over_s) for name, room in sorted(self._rooms.items())}
            free = [
                name
                for name, room in after.items()
                if max(room.input_ratio, room.output_ratio) < self.config.bearable_ratio
            ]
            found = select_neighbour(group, free, self.config.aim, self.config.gain_wanted_ratio(moves_count))
            if not isinstance(found, Placement):
                continue
            self._rooms[found.to_broker] = after[found.to_broker]
            self._decision, self._decided_s = f"{len(group.clients)} clients to {found.to_broker}: {found.why}", now_s
            for client in group.clients:
                self._moving[client] = None
                actions.append(MoveClient(client, found.to_broker, cause))
        return actions

    def _with(self, room: Headroom, group: GroupCounts, neighbour: str, over_s: float) -> Headroom:
        link = group.links.get(neighbour)
        extra_per_s = 0.0 if link is None else link.extra_count / over_s
        return room.with_more(extra_per_s, group.wanted_count * len(group.clients) / over_s)


def agent_of(config: RelocationConfig, place: AgentPlace) -> SubscriberAgent:
    """The agent of one broker."""
    return SubscriberAgent(config, place.rng("grape-subscribers"))
