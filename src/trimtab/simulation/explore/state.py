"""A state of a small network, what may happen next in it, and what comes of that.

What is explored. Every order in which links deliver, every moment of death and of what follows it (a replica starts,
clients find it, a disk has written), and every moment at which applications do the next thing of their scripts. What is
not: time passes only when nothing else can happen, so that a timeout never overtakes a message; only who is away may
stay away while it passes.

Two reductions, both without loss. (1) A direction of a link delivers all that is under way at once. To deliver less
means to deliver a prefix; that prefix could have been delivered before the rest was sent, because a delivery changes
the receiver alone and sending changes the sender alone, so that both orders lead to the same state; and that order is
explored. (2) A node's outcome is looked up (`nodes`), which changes nothing.

One simplification with loss: peers of a broker that dies notice it at once. Frames that they would send meanwhile would
be lost with it, and what is not acknowledged they keep either way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from trimtab.broker.config import Acknowledges, BrokerConfig
from trimtab.broker.core import Broker
from trimtab.broker.replication.client_records import RetainedRecords
from trimtab.client.session import ClientSession
from trimtab.language import Publication
from trimtab.protocol.effects import Append, Close, Effect, Forget, Open, Shut
from trimtab.protocol.messages import ClientRecord, Guard, Publish
from trimtab.simulation.checkers.deliveries import DeliveryChecker, Violation
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.explore.cases import Act, Case
from trimtab.simulation.explore.checking import Checkers
from trimtab.simulation.explore.incarnations import first_incarnation, next_incarnation
from trimtab.simulation.explore.nodes import Call, Nodes, Outcome

GONE: Final = -1
"""The number of a node that is dead, or has left."""

ABSENT: Final = 0
"""A connection that nobody wants."""
DOWN: Final = 1
"""A connection that is wanted, and waits for the other end."""
UP: Final = 2
CLOSING: Final = 3
"""A connection that its client has closed; what is under way to the broker still arrives."""

REST_WITHIN_S: Final = 1_000.0
"""Something that is not over by then never is."""


class Disk(NamedTuple):
    """What a broker has stored, and what is being stored."""

    stored: tuple[Publish, ...] = ()
    records: tuple[ClientRecord, ...] = ()
    pending: tuple[tuple[int, Publish | Guard], ...] = ()

    def written(self) -> Disk:
        """What there is when all that is being stored is."""
        records = RetainedRecords()
        for record in self.records:
            records.keep(Guard(version=0, record=record))
        stored = list(self.stored)
        for _, entry in self.pending:
            if isinstance(entry, Publish):
                stored.append(entry)
            else:
                records.keep(entry)
        return Disk(tuple(stored), records.all())


class State(NamedTuple):
    """Everything, as numbers."""

    now_s: float
    nodes: tuple[int, ...]
    connections: tuple[int, ...]
    queues: tuple[tuple[int, ...], ...]
    """For each connection what is under way from its first end to its second, and back."""
    disks: tuple[Disk, ...]
    scripts: tuple[int, ...]
    deaths: tuple[int, ...]
    """How often each broker has died."""
    checker: int


What: TypeAlias = Literal["deliver", "store", "step", "reconnect", "start", "act", "send", "pass", "kill"]

Choice: TypeAlias = tuple[What, int, int]
"""What happens, and where: the numbers of a connection, node, peer or script; of a death, how much was written."""


class World:
    """The nodes and connections of a case at a level, and the step from a state to the next."""

    def __init__(self, case: Case, level: Acknowledges) -> None:
        self.case = case
        self.level: Acknowledges = level
        self.nodes = Nodes(case)
        self.checkers = Checkers()
        self.brokers = case.brokers
        self.names = (*self.brokers, *(name for name, _ in case.clients))
        self.place = {name: place for place, name in enumerate(self.names)}
        self.pairs = (
            *case.links,
            *((client, broker) for client, _ in case.clients for broker in self.brokers),
        )
        self.pair = {pair: number for number, pair in enumerate(self.pairs)}
        self.left_item = self.nodes.left()
        self._configs: dict[tuple[str, int], BrokerConfig] = {}
        self.violations: list[Violation] = []
        """What is wrong with the state that the last step has led to."""
        self.told: list[Call] = []
        """What the checker was told of the last step."""
        self.seen: list[Effect] = []
        """What the nodes wanted from the world in the last step."""

    # ---- beginnings ----

    def begin(self) -> State:
        """All are there and at rest, and have said what they advertise and want."""
        count = len(self.brokers)
        state = State(
            0.0,
            (GONE,) * len(self.names),
            (ABSENT,) * len(self.pairs),
            ((),) * (2 * len(self.pairs)),
            (Disk(),) * count,
            (0,) * len(self.case.scripts),
            (0,) * count,
            self.checkers.first,
        )
        change = Change(self, state)
        for place, name in enumerate(self.brokers):
            change.take(place, self.nodes.begin_broker(self.config(name, 0), (), (), 0.0))
        for number, _ in enumerate(self.case.links):
            change.bring_up(number)
        state = self._settle(change.done())
        for name, broker in self.case.clients:
            change = Change(self, state)
            change.take(self.place[name], self.nodes.begin_client(name))
            change.bring_up(self.pair[name, broker])
            state = self._settle(change.done())
        for act in self.case.setup:
            change = Change(self, state)
            change.take_act(act, self.nodes.act(self.nodes.copy(state.nodes[self.place[act.client]]), act, 0.0))
            state = self._settle(change.done())
        return state

    def config(self, broker: str, deaths_count: int) -> BrokerConfig:
        known = self._configs.get((broker, deaths_count))
        if known is None:
            if deaths_count:
                known = next_incarnation(self.config(broker, deaths_count - 1), self.case.taken_by)
            else:
                neighbours = [b if a == broker else a for a, b in self.case.links if broker in (a, b)]
                known = first_incarnation(broker, neighbours, self.level, self.case.data_window_count)
            self._configs[broker, deaths_count] = known
        return known

    def _settle(self, state: State) -> State:
        """Let happen what happens by itself before anything else does."""
        while actions := [each for each in self.actions(state) if each[0] in ("deliver", "store", "step", "send")]:
            state = self.step(state, actions[0])
        if self.violations:
            raise AssertionError(f"{self.case.name} does not begin well: {self.violations}")
        return state

    # ---- what may happen ----

    def actions(self, state: State) -> list[Choice]:
        """What may happen next, the usual first; nothing if the network is at rest for good."""
        found: list[Choice] = []
        nodes, known = state.nodes, self.nodes
        for queue, items in enumerate(state.queues):
            if items:
                found.append(("deliver", queue, 0))
        for place, disk in enumerate(state.disks):
            if disk.pending and nodes[place] != GONE:
                found.append(("store", place, 0))
        for number, status in enumerate(state.connections):
            if status == DOWN and number >= len(self.case.links) and self._may_reconnect(state, number):
                found.append(("reconnect", number, 0))
        for place in range(len(self.brokers)):
            if nodes[place] == GONE:
                found.append(("start", place, 0))
        for script, place in enumerate(state.scripts):
            if place < len(self.case.scripts[script]) and self._may(state, self.case.scripts[script][place]):
                found.append(("act", script, 0))
        for place in range(len(self.brokers)):
            if nodes[place] != GONE:
                if known[nodes[place]].may_step:
                    found.append(("step", place, 0))
                found += (("send", place, self.place[peer]) for peer in known[nodes[place]].may_send)
        if all(self._can_wait(state, action) for action in found) and self.next_time_s(state) is not None:
            found.append(("pass", 0, 0))
        for name in self.case.dies:
            place = self.place[name]
            if nodes[place] != GONE and not state.deaths[place]:
                found += (("kill", place, kept_count) for kept_count in range(len(state.disks[place].pending) + 1))
        return found

    def _may_reconnect(self, state: State, number: int) -> bool:
        client, broker = self.pairs[number]
        return state.nodes[self.place[broker]] != GONE and not self._is_away(state, client)

    def _is_away(self, state: State, client: str) -> bool:
        """Whether a client has gone away and has not come back."""
        done = [
            act.what
            for script, done_count in zip(self.case.scripts, state.scripts, strict=True)
            for act in script[:done_count]
            if act.client == client and act.what in ("away", "back")
        ]
        return done[-1:] == ["away"]

    def _can_wait(self, state: State, action: Choice) -> bool:
        """Whether time may pass before something happens: who is away may be away for long."""
        what, number, _ = action
        return what == "act" and self.case.scripts[number][state.scripts[number]].what == "back"

    def is_at_rest(self, actions: Sequence[Choice]) -> bool:
        """Whether nothing happens by itself any more: nobody need die."""
        return all(what == "kill" for what, _, _ in actions)

    def _may(self, state: State, act: Act) -> bool:
        """Whether an application can do something now: who leaves or moves has nothing that waits, or is settled."""
        number = state.nodes[self.place[act.client]]
        if number == GONE:
            return False
        node = self.nodes[number]
        if act.what == "leave":
            return not node.waits
        if act.what == "away":
            return bool(node.at) and state.connections[self.pair[act.client, node.at]] == UP
        if act.what == "move":
            wanted = [
                self.pairs[each][1]
                for each, status in enumerate(state.connections)
                if status in (DOWN, UP) and self.pairs[each][0] == act.client
            ]
            return wanted == [node.at] and node.at != act.broker
        return not (act.waits_for_acceptance and node.waits)

    def next_time_s(self, state: State) -> float | None:
        times_s = [self.nodes[number].wake_s for number in state.nodes if number != GONE]
        wake_s = min((time_s for time_s in times_s if time_s is not None), default=None)
        return None if wake_s is None or wake_s > REST_WITHIN_S else wake_s

    # ---- what comes of it ----

    def step(self, state: State, action: Choice) -> State:
        """The next state; `violations` tells what is wrong with it."""
        change = Change(self, state)
        what, number, other = action
        match what:
            case "deliver":
                change.deliver(number)
            case "store":
                change.store(number)
            case "step":
                change.let(number, "step")
            case "reconnect":
                change.bring_up(number)
            case "start":
                change.start(number)
            case "act":
                change.act(number)
            case "send":
                change.let(number, "send", self.names[other])
            case "pass":
                wake_s = self.next_time_s(state)
                assert wake_s is not None
                change.pass_until(wake_s)
            case "kill":
                change.kill(number, other)
        self.violations, self.told, self.seen = change.violations, change.told, change.seen
        return change.done()

    def check_at_rest(self, state: State) -> list[Violation]:
        """What is wrong with a state in which nothing happens by itself any more."""
        resting = _Resting(self, state)
        check_rest(resting, self.case.links)
        found = list(resting.checker.violations)
        for script, place in enumerate(state.scripts):
            if place < len(self.case.scripts[script]):
                act = self.case.scripts[script][place]
                found.append(Violation("stalled", f"{act.client} can never {act.what}"))
        return found


class Change:
    """The way from one state to the next: a state that can be written to."""

    def __init__(self, world: World, state: State) -> None:
        self._world = world
        self._now_s = state.now_s
        self._nodes = list(state.nodes)
        self._connections = list(state.connections)
        self._queues = list(state.queues)
        self._disks = list(state.disks)
        self._scripts = list(state.scripts)
        self._deaths = list(state.deaths)
        self._checker = state.checker
        self.violations: list[Violation] = []
        self.told: list[Call] = []
        self.seen: list[Effect] = []

    def done(self) -> State:
        """The state that has come of it."""
        return State(
            self._now_s,
            tuple(self._nodes),
            tuple(self._connections),
            tuple(self._queues),
            tuple(self._disks),
            tuple(self._scripts),
            tuple(self._deaths),
            self._checker,
        )

    # ---- nodes ----

    def let(self, place: int, what: str, *arguments: object) -> None:
        """Let something happen to a node."""
        self.take(place, self._world.nodes.let(self._nodes[place], self._now_s, what, *arguments))

    def take(self, place: int, outcome: Outcome) -> None:
        """A node is another one now, says something and wants something."""
        world, name = self._world, self._world.names[place]
        self._nodes[place] = outcome.node
        calls = world.nodes.calls[outcome.calls]
        if calls:
            self._checker, violations = world.checkers.tell(self._checker, outcome.calls, calls)
            self.violations += violations
            self.told += calls
        self.seen += outcome.effects
        for effect in outcome.effects:
            self._carry_out(place, name, effect)
        for peer, frames in outcome.frames:
            queue = self._queue(name, peer)
            if self._connections[queue // 2] == UP:
                self._queues[queue] += frames

    def take_act(self, act: Act, outcome: Outcome) -> None:
        """An application has done something."""
        place = self._world.place[act.client]
        self.take(place, outcome)
        if act.what == "leave":
            self._nodes[place] = GONE
            for broker in self._world.brokers:
                self._shut(act.client, broker)
        elif act.what == "away":
            for broker in self._world.brokers:
                self._break(self._world.pair[act.client, broker])

    def _carry_out(self, place: int, name: str, effect: Effect) -> None:
        match effect:
            case Append(number=number, entry=entry):
                disk = self._disks[place]
                self._disks[place] = disk._replace(pending=(*disk.pending, (number, entry)))
            case Forget(publisher=publisher, session=session, sequence=sequence):
                disk = self._disks[place]
                stays = (
                    each
                    for each in disk.stored
                    if (each.publisher, each.session) != (publisher, session) or each.sequence > sequence
                )
                self._disks[place] = disk._replace(stored=tuple(stays))
            case Open(broker=broker):
                number = self._world.pair[name, broker]
                self._connections[number] = DOWN
                if self._nodes[self._world.place[broker]] != GONE:
                    self.bring_up(number)
            case Shut(broker=broker):
                self._shut(name, broker)
            case Close(peer=peer, reason=reason):
                self.violations.append(Violation("closed", f"{name} closes the connection to {peer}: {reason}"))
            case _:
                pass

    # ---- connections ----

    def _queue(self, sender: str, receiver: str) -> int:
        number = self._world.pair.get((sender, receiver))
        return 2 * self._world.pair[receiver, sender] + 1 if number is None else 2 * number

    def bring_up(self, number: int) -> None:
        """Both ends of a connection greet each other."""
        first, second = self._world.pairs[number]
        self._connections[number] = UP
        for queue, sender, receiver in ((2 * number, first, second), (2 * number + 1, second, first)):
            self._queues[queue] = (self._world.nodes.greeting(self._nodes[self._world.place[sender]], receiver),)

    def _shut(self, client: str, broker: str) -> None:
        """A client closes its connection to a broker, which learns it behind all that is under way, if it can."""
        number = self._world.pair[client, broker]
        status = self._connections[number]
        self._queues[2 * number + 1] = ()
        if status == UP:
            self._connections[number] = CLOSING
            self._queues[2 * number] += (self._world.left_item,)
        elif status == DOWN:
            self._connections[number] = ABSENT

    def _break(self, number: int) -> None:
        """A connection breaks, and what is under way in it is lost; both ends notice it, if they are there."""
        first, second = self._world.pairs[number]
        status = self._connections[number]
        self._queues[2 * number] = self._queues[2 * number + 1] = ()
        if status == CLOSING:
            self._connections[number] = ABSENT
        elif status == UP:
            self._connections[number] = DOWN
            for name, peer in ((first, second), (second, first)):
                if self._nodes[self._world.place[name]] != GONE:
                    self.let(self._world.place[name], "disconnect", peer)

    def deliver(self, queue: int) -> None:
        """All that is under way in a direction arrives."""
        number = queue // 2
        ends = self._world.pairs[number]
        sender, receiver = ends if queue % 2 == 0 else ends[::-1]
        items, self._queues[queue] = self._queues[queue], ()
        if self._connections[number] == CLOSING:
            self._connections[number] = ABSENT
        self.let(self._world.place[receiver], "arrive", sender, items)

    # ---- what happens to brokers ----

    def store(self, place: int) -> None:
        """A disk has written what was to be stored."""
        disk = self._disks[place]
        self._disks[place] = disk.written()
        self.let(place, "store", disk.pending[-1][0])

    def kill(self, place: int, kept_count: int) -> None:
        """A broker dies, and all that is under way to it and from it is lost.

        Of what its disk was writing, so many entries are there, the first: a torn write counts up to a gap.
        """
        world, name = self._world, self._world.names[place]
        broker = world.nodes.copy(self._nodes[place])
        clients = [
            client
            for client, _ in world.case.clients
            if client in broker.peers
            and self._nodes[world.place[client]] != GONE
            and world.nodes.copy(self._nodes[world.place[client]]).broker == name
        ]
        checker = world.checkers.copy(self._checker)
        checker.died(broker, clients)
        self._checker = world.checkers.intern(checker)
        self._nodes[place] = GONE
        self._deaths[place] += 1
        disk = self._disks[place]
        self._disks[place] = disk._replace(pending=disk.pending[:kept_count]).written()
        for number, ends in enumerate(world.pairs):
            if name in ends:
                self._break(number)

    def start(self, place: int) -> None:
        """Another incarnation of a broker begins; its neighbours connect to it at once, its clients some time later."""
        world, name = self._world, self._world.names[place]
        config, disk = world.config(name, self._deaths[place]), self._disks[place]
        self.take(place, world.nodes.begin_broker(config, disk.stored, disk.records, self._now_s))
        for number, ends in enumerate(world.case.links):
            if name in ends and all(self._nodes[world.place[end]] != GONE for end in ends):
                self.bring_up(number)

    # ---- applications and time ----

    def act(self, script: int) -> None:
        """An application does the next thing of its script."""
        place = self._scripts[script]
        act = self._world.case.scripts[script][place]
        self._scripts[script] += 1
        number = self._nodes[self._world.place[act.client]]
        self.take_act(act, self._world.nodes.let(number, self._now_s, "do", script, place))

    def pass_until(self, now_s: float) -> None:
        """Time passes; who wants to be woken is."""
        self._now_s = max(now_s, self._now_s)
        for place, number in enumerate(self._nodes):
            if number != GONE:
                wake_s = self._world.nodes[number].wake_s
                if wake_s is not None and wake_s <= self._now_s:
                    self.let(place, "wake")


class _RestingNode:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False


class _RestingBroker(_RestingNode):
    def __init__(self, name: str, broker: Broker) -> None:
        super().__init__(name)
        self.broker = broker


class _RestingClient(_RestingNode):
    def __init__(self, name: str, session: ClientSession) -> None:
        super().__init__(name)
        self.session = session
        self.dismissed_because = ""
        self.held_back: deque[Publication] = deque()


class _Resting:
    """A state at rest, as the simulator's own check looks at worlds."""

    def __init__(self, world: World, state: State) -> None:
        self.now_s = state.now_s
        times_s = [world.nodes[number].wake_s for number in state.nodes if number != GONE]
        self.is_at_rest = all(time_s is None for time_s in times_s)
        self.checker: DeliveryChecker = world.checkers.copy(state.checker)
        self.closed: list[Close] = []
        there = [
            (name, world.nodes.copy(number))
            for name, number in zip(world.names, state.nodes, strict=True)
            if number != GONE
        ]
        self.brokers: Mapping[str, _RestingBroker] = {
            name: _RestingBroker(name, node) for name, node in there if isinstance(node, Broker)
        }
        self.clients: Mapping[str, _RestingClient] = {
            name: _RestingClient(name, node) for name, node in there if not isinstance(node, Broker)
        }
