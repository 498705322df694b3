"""Brokers and clients as numbers: what each does when something happens to it is worked out once.

A node is kept as bytes, and a copy of it is made to let something happen to it. Nodes whose futures are the same
(`freezing`) have the same number. A node sees nothing but its own events, so what comes of an event depends on the
node's number, the event and the time alone: of the many orders in which the events of a network can happen, most let
the same happen to each of its nodes.

A broker does all its steps and sends all its frames at once, unless the case says that it steps slowly, or that its
uplink to a peer is slow: then a step, or to send what waits for that peer, is an event of its own. A broker that the
case calls busy does nothing with what has arrived until it does all of it, which is an event of its own as well.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.client.session import ClientSession
from trimtab.language import Filter, Publication
from trimtab.protocol.effects import (
    Append,
    Close,
    Deliver,
    Effect,
    Forget,
    InForce,
    Moved,
    NotMoved,
    Open,
    Rejected,
    Shut,
    Taken,
)
from trimtab.protocol.events import (
    Connected,
    Disconnected,
    Event,
    LinkRemoved,
    MoveTo,
    Received,
    Recovered,
    Stored,
    Wake,
)
from trimtab.protocol.events import Step as StepEvent
from trimtab.protocol.frames import Ack, Hello, Payload
from trimtab.protocol.messages import ClientRecord, Publish
from trimtab.simulation.explore.cases import Act, Case
from trimtab.simulation.explore.freezing import freeze
from trimtab.simulation.explore.incarnations import client_of
from trimtab.simulation.world.broker_host import CheckingObserver

_WAKES_MAX_COUNT: Final = 20
"""A node that wants to be woken again at the same moment more often than that never rests."""

Call: TypeAlias = tuple[str, tuple[Any, ...]]
"""A method of the checker and its arguments."""


class Left(msgspec.Struct, frozen=True):
    """The last that comes over a connection: the client has gone for good."""


Item: TypeAlias = Hello | Payload | Ack | Left
"""What is under way between two nodes."""


class Node(NamedTuple):
    """What others need to know of a node without asking it."""

    image: bytes
    wake_s: float | None
    may_step: bool
    may_send: tuple[str, ...]
    """Peers to whom its slow uplinks have something to send."""
    waits: bool
    """Of a client: whether publications of it are not acknowledged."""
    at: str
    """Of a client: its broker; empty while it moves."""


class Outcome(NamedTuple):
    """What came of an event."""

    node: int
    frames: tuple[tuple[str, tuple[int, ...]], ...]
    """By peer: what is sent to it."""
    calls: int
    """What the checker is told."""
    effects: tuple[Effect, ...]
    """What the world is to do."""


class Notes:
    """Stands where a broker expects the checker, and notes what it is told.

    >>> pickle.loads(pickle.dumps(NOTES)) is NOTES  # noqa: S301 (images that this process has made)
    True
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)

        def note(*arguments: Any) -> None:
            self.calls.append((name, tuple(tuple(each) if isinstance(each, Iterator) else each for each in arguments)))

        return note

    def __reduce__(self) -> str:
        return "NOTES"


NOTES: Final = Notes()


class Nodes:
    """All that nodes, frames and checkers of one case have been."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._nodes: list[Node] = []
        self._number_by_image: dict[bytes, int] = {}
        self._number_by_hash: dict[bytes, int] = {}
        self._outcomes: dict[tuple[Any, ...], Outcome] = {}
        self.items: list[Item] = []
        self._item_by_hash: dict[bytes, int] = {}
        self.calls: list[tuple[Call, ...]] = []
        self._calls_by_hash: dict[bytes, int] = {}
        self.worked_out_count = 0
        """Events that had not happened before to the same node."""

    def __getitem__(self, number: int) -> Node:
        return self._nodes[number]

    def copy(self, number: int) -> Any:
        """A node as an object."""
        return pickle.loads(self._nodes[number].image)  # noqa: S301 (images that this process has made)

    # ---- beginnings ----

    def begin_broker(
        self, config: BrokerConfig, stored: Sequence[Publish], records: Sequence[ClientRecord], now_s: float
    ) -> Outcome:
        """A broker that nobody watches starts; it finds what an earlier incarnation has stored."""
        broker = Broker(config, now_s=now_s, observer=CheckingObserver(config, NOTES))  # type: ignore[arg-type]
        broker.retire_agents()
        events: list[Event] = [Recovered(tuple(stored), tuple(records))] if config.acknowledges == "durable" else []
        return self._finish_broker(broker, events, now_s)

    def begin_client(self, name: str) -> Outcome:
        """A client starts."""
        return self._finish_client(ClientSession(client_of(name)), [], [], 0.0)

    # ---- events ----

    def greeting(self, number: int, peer: str) -> int:
        """What a node greets a peer with."""
        key = (number, "greeting", peer)
        outcome = self._outcomes.get(key)
        if outcome is None:
            hello = self._intern_item(self.copy(number).greeting(peer))
            outcome = self._outcomes[key] = Outcome(number, ((peer, (hello,)),), 0, ())
        return outcome.frames[0][1][0]

    def let(self, number: int, now_s: float, what: str, *arguments: Any) -> Outcome:
        """Let something happen to a node: `what` is a method below."""
        key = (number, now_s, what, *arguments)
        outcome = self._outcomes.get(key)
        if outcome is None:
            self.worked_out_count += 1
            node = self.copy(number)
            outcome = self._outcomes[key] = getattr(self, f"_{what}")(node, now_s, *arguments)
        return outcome

    def _arrive(self, node: Any, now_s: float, sender: str, items: tuple[int, ...]) -> Outcome:
        events: list[Event] = []
        for number in items:
            match self.items[number]:
                case Hello() as hello:
                    events.append(Connected(sender, hello))
                case Left():
                    events.append(LinkRemoved(sender))
                case frame:
                    events.append(Received(sender, frame))
        return self._finish(node, events, now_s)

    def _disconnect(self, node: Any, now_s: float, peer: str) -> Outcome:
        return self._finish(node, [Disconnected(peer)], now_s)

    def _wake(self, node: Any, now_s: float) -> Outcome:
        return self._finish(node, [Wake()], now_s)

    def _store(self, node: Broker, now_s: float, number: int) -> Outcome:
        return self._finish_broker(node, [Stored(number)], now_s)

    def _step(self, node: Broker, now_s: float) -> Outcome:
        count = node.input_count if node.name in self._case.busy_brokers else 1
        return self._finish_broker(node, [StepEvent(count)], now_s)

    def _send(self, node: Broker, now_s: float, peer: str) -> Outcome:
        return self._finish_broker(node, [], now_s, [(peer, frame) for frame in node.output.take_frames(peer, now_s)])

    def _do(self, node: ClientSession, now_s: float, script: int, place: int) -> Outcome:
        """The application does the next step of its script."""
        return self.act(node, self._case.scripts[script][place], now_s)

    def act(self, session: ClientSession, act: Act, now_s: float) -> Outcome:
        """The application does something."""
        effects: list[Effect] = []
        calls: list[Call] = []
        name = session.name
        match act.what:
            case "advertise":
                filter = Filter.parse(act.filter)
                calls.append(("advertised", (session.advertise(filter, now_s), name, filter)))
            case "subscribe":
                filter = Filter.parse(act.filter)
                calls.append(("subscribed", (session.subscribe(filter, now_s), name, filter)))
            case "publish":
                for value in act.values:
                    calls.append(("published", (name, session.publish(Publication(a=value), now_s))))
            case "unadvertise":
                calls.append(("unadvertised", (act.id,)))
                session.unadvertise(act.id, now_s)
            case "unsubscribe":
                calls.append(("unsubscribed", (act.id,)))
                session.unsubscribe(act.id, now_s)
            case "move":
                effects += session.handle(MoveTo(act.broker), now_s)
            case "leave":
                calls.append(("left", (name,)))
            case "away" | "back":
                pass
        return self._finish_client(session, effects, calls, now_s)

    # ---- after an event ----

    def _finish(self, node: Any, events: list[Event], now_s: float) -> Outcome:
        if isinstance(node, Broker):
            return self._finish_broker(node, events, now_s)
        effects: list[Effect] = []
        for event in events:
            effects += node.handle(event, now_s)
        node.consumed()
        return self._finish_client(node, effects, [], now_s)

    def _finish_client(self, session: ClientSession, effects: list[Effect], calls: list[Call], now_s: float) -> Outcome:
        frames: list[tuple[str, Payload | Ack]] = []
        for _ in range(_WAKES_MAX_COUNT):
            for broker in self._case.brokers:
                while (frame := session.take_frame(now_s, broker)) is not None:
                    frames.append((broker, frame))
            wake_s = session.wake_at_s()
            if wake_s is None or wake_s > now_s:
                break
            effects += session.handle(Wake(), now_s)
        for effect in effects:
            match effect:
                case Deliver():
                    calls.append(("delivered", (session.name, effect, now_s)))
                case InForce(id=id):
                    calls.append(("in_force", (id, now_s)))
                case Taken(sequence=sequence):
                    calls.append(("taken", (session.name, sequence)))
                case Rejected(about=about, reason=reason):
                    calls.append(("rejected", (session.name, about, reason, now_s)))
                case _:
                    pass
        at = "" if session.is_moving else session.broker
        number = self._intern(session, waits=session.waiting_count > 0, at=at)
        wanted = tuple(each for each in effects if isinstance(each, Open | Shut | Close | Moved | NotMoved))
        return Outcome(number, self._intern_frames(frames), self._intern_calls(calls), wanted)

    def _finish_broker(
        self,
        broker: Broker,
        events: list[Event],
        now_s: float,
        frames: Sequence[tuple[str, Payload | Ack]] = (),
    ) -> Outcome:
        case, sent = self._case, list(frames)
        NOTES.calls.clear()
        effects: list[Effect] = []
        slow = [peer for name, peer in case.slow_uplinks if name == broker.name]
        for event in events:
            effects += broker.handle(event, now_s)
            self._work(broker, effects, sent, slow, now_s)
        for _ in range(_WAKES_MAX_COUNT):
            self._work(broker, effects, sent, slow, now_s)
            wake_s = broker.wake_at_s()
            if wake_s is None or wake_s > now_s:
                break
            effects += broker.handle(Wake(), now_s)
        may_send = tuple(sorted(peer for peer in broker.sendable() if peer in slow))
        may_step = bool(broker.input_count)
        number = self._intern(broker, may_step=may_step, may_send=may_send)
        calls = [(name, arguments) for name, arguments in NOTES.calls]
        wanted = tuple(each for each in effects if isinstance(each, Append | Forget | Close))
        return Outcome(number, self._intern_frames(sent), self._intern_calls(calls), wanted)

    def _work(
        self,
        broker: Broker,
        effects: list[Effect],
        sent: list[tuple[str, Payload | Ack]],
        slow: list[str],
        now_s: float,
    ) -> None:
        """Let a broker do all that it does at once."""
        is_busy, steps_slowly = broker.name in self._case.busy_brokers, broker.name in self._case.slow_brokers
        while True:
            while broker.input_count and not is_busy and not (steps_slowly and broker.next_is_publication):
                effects += broker.handle(StepEvent(), now_s)
            for peer in broker.sendable():
                if peer not in slow:
                    sent += ((peer, frame) for frame in broker.output.take_frames(peer, now_s))
            if not broker.input_count or is_busy or (steps_slowly and broker.next_is_publication):
                return  # otherwise sending has made room for what was held back

    # ---- numbers ----

    def _intern(
        self,
        node: Any,
        *,
        may_step: bool = False,
        may_send: tuple[str, ...] = (),
        waits: bool = False,
        at: str = "",
    ) -> int:
        image = pickle.dumps(node, 5)
        number = self._number_by_image.get(image)
        if number is None:
            hash = freeze(node)
            number = self._number_by_hash.get(hash)
            if number is None:
                number = self._number_by_hash[hash] = len(self._nodes)
                self._nodes.append(Node(image, node.wake_at_s(), may_step, may_send, waits, at))
            self._number_by_image[image] = number
        return number

    def _intern_frames(self, frames: Sequence[tuple[str, Payload | Ack]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
        by_peer: dict[str, list[int]] = {}
        for peer, frame in frames:
            by_peer.setdefault(peer, []).append(self._intern_item(frame))
        return tuple((peer, tuple(numbers)) for peer, numbers in by_peer.items())

    def _intern_item(self, item: Item) -> int:
        hash = freeze(item)
        number = self._item_by_hash.get(hash)
        if number is None:
            number = self._item_by_hash[hash] = len(self.items)
            self.items.append(item)
        return number

    def left(self) -> int:
        """The item that says that a client has gone."""
        return self._intern_item(Left())

    def _intern_calls(self, calls: Sequence[Call]) -> int:
        hash = freeze(tuple(calls))
        number = self._calls_by_hash.get(hash)
        if number is None:
            number = self._calls_by_hash[hash] = len(self.calls)
            self.calls.append(tuple(calls))
        return number
