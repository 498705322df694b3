"""Deliberate mistakes in the core, to show that the fuzzer would find them.

Each replaces a method or two while it is active; the core itself knows nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from trimtab.broker import core
from trimtab.broker.channels import ChannelDesk
from trimtab.broker.core import Broker
from trimtab.broker.flow import input_queues
from trimtab.broker.flow.input_queues import InputQueues
from trimtab.broker.flow.output_queues import OutputQueues
from trimtab.broker.routing.confirmations import Confirmations
from trimtab.broker.routing.forwarding import CoveredSubscriptions
from trimtab.broker.routing.tables import RoutingTables
from trimtab.client.channels import OwnChannels
from trimtab.client.deliveries import Deliveries
from trimtab.client.moves import ClientMoves
from trimtab.matching import CoveringChange
from trimtab.protocol import link, messages
from trimtab.protocol.events import MoveTo
from trimtab.protocol.frames import Payload
from trimtab.protocol.link import Link
from trimtab.protocol.messages import FROM_NOW_ON, Accepted, Publish, Subscribe, SubscribeChannel
from trimtab.simulation.fuzz.bugs.gap_bugs import DROP_BUGS
from trimtab.simulation.fuzz.bugs.move_bugs import MOVE_BUGS, Patch


class Bug(msgspec.Struct, frozen=True):
    """A mistake that can be switched on."""

    name: str
    text: str
    patches: Callable[[], list[Patch]]
    first_seed: int = 1
    """Where to begin to look for it; few runs can show some bugs, one in five hundred."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """The mistake is in force inside the `with` block."""
        patches = self.patches()
        saved = [(target, name, target.__dict__[name]) for target, name, _ in patches]
        try:
            for target, name, replacement in patches:
                setattr(target, name, replacement)
            yield
        finally:
            for target, name, original in saved:
                setattr(target, name, original)


def _forget_uncovering() -> list[Patch]:
    original = RoutingTables.remove_subscription

    def remove_subscription(self: RoutingTables, id: str, hop: str) -> list[Any]:
        return [say for say in original(self, id, hop) if not isinstance(say.message, Subscribe)]

    return [(RoutingTables, "remove_subscription", remove_subscription)]


def _forward_covered_only() -> list[Patch]:
    original = CoveredSubscriptions.__mro__[1].add  # type: ignore[attr-defined]

    def add(self: CoveredSubscriptions, key: Any, filter: Any) -> CoveringChange:
        change: CoveringChange = original(self, key, filter)
        return CoveringChange(left=change.left) if change.left else change

    return [(CoveredSubscriptions.__mro__[1], "add", add)]


def _forget_late_pull() -> list[Patch]:
    original = RoutingTables.add_advertisement

    def add_advertisement(self: RoutingTables, *arguments: Any) -> list[Any]:
        return [say for say in original(self, *arguments) if not isinstance(say.message, Subscribe)]

    return [(RoutingTables, "add_advertisement", add_advertisement)]


def _accept_too_early() -> list[Patch]:
    original = Broker.receive

    def receive(self: Broker, name: str, frame: Any, now_s: float) -> None:
        original(self, name, frame, now_s)
        peer = self.peers.get(name)
        if peer is not None and peer.role == "client" and isinstance(frame, Payload):
            for message in frame.messages:
                if isinstance(message, Publish):
                    peer.link.enqueue(Accepted(publisher=name, sequence=message.sequence), now_s)

    return [(Broker, "receive", receive)]


def _confirm_too_early() -> list[Patch]:
    return [(Confirmations, "begin", lambda self, id: True)]


def _drop_on_reconnect() -> list[Patch]:
    original = Link.connect

    def connect(self: Link, peer_expects: int, now_s: float) -> None:
        original(self, peer_expects, now_s)
        self._unacknowledged.clear()
        self._resend_index = None
        self._next_number = self._oldest_number = max(peer_expects, 1)

    return [(Link, "connect", connect)]


def _claim_too_much() -> list[Patch]:
    def expects(self: Link) -> int:
        return self._expected + (self._expected > 1)

    return [(Link, "expects", property(expects))]


def _reorder_queue() -> list[Patch]:
    original = Link.take

    def take(self: Link, *arguments: Any) -> Any:
        if len(self.data) > 1:
            self.data.insert(1, self.data.popleft())
        return original(self, *arguments)

    return [(Link, "take", take)]


def _skip_duplicate_check() -> list[Patch]:
    original = Link.receive

    def receive(self: Link, frame: Any, now_s: float) -> list[Any]:
        is_repeated = isinstance(frame, Payload) and frame.number < self._expected
        messages = original(self, frame, now_s)
        return frame.messages if is_repeated else messages

    return [(Link, "receive", receive)]


def _skip_session_duplicate_check() -> list[Patch]:
    original = Deliveries.deliver

    def deliver(self: Deliveries, message: Publish, now_s: float) -> Any:
        self._last_delivered.pop(message.publisher, None)
        return original(self, message, now_s)

    return [(Deliveries, "deliver", deliver)]


def _ignore_gap() -> list[Patch]:
    original = Link.receive

    def receive(self: Link, frame: Any, now_s: float) -> list[Any]:
        if isinstance(frame, Payload) and frame.number > self._expected:
            self._expected = frame.number
        return original(self, frame, now_s)

    return [(Link, "receive", receive)]


def _never_resend() -> list[Patch]:
    return [(Link, "wake", lambda self, now_s: setattr(self, "_progress_s", now_s))]


def _lose_control() -> list[Patch]:
    original = Broker.send
    said_count = 0

    def send(self: Broker, name: str, message: Any, now_s: float) -> None:
        nonlocal said_count
        if isinstance(message, Subscribe):
            said_count += 1
            if said_count % 10 == 0:
                return
        original(self, name, message, now_s)

    return [(Broker, "send", send)]


def _class_of_markers(overtaking: str) -> list[Patch]:
    original = messages.is_control

    def is_control(message: Any) -> bool:
        return type(message).__name__ == overtaking or original(message)

    return [(module, "is_control", is_control) for module in (link, core, input_queues)]


def _unadvertise_overtakes() -> list[Patch]:
    return _class_of_markers("Unadvertise")


def _marker_overtakes() -> list[Patch]:
    return _class_of_markers("Handover")


def _answer_overtakes() -> list[Patch]:
    return _class_of_markers("Complete")


def _end_overtakes() -> list[Patch]:
    return _class_of_markers("End")


def _forget_new_stream() -> list[Patch]:
    original = ClientMoves._end_stay

    def end_stay(self: ClientMoves, move: Any, now_s: float) -> list[Any]:
        move.early.clear()
        return original(self, move, now_s)

    return [(ClientMoves, "_end_stay", end_stay)]


def _drop_too_much() -> list[Patch]:
    original = Link.drop_oldest_data

    def drop_oldest_data(self: Link) -> Any:
        dropped = original(self)
        original(self)
        return dropped

    return [(Link, "drop_oldest_data", drop_oldest_data)]


def _reorder_at_drop() -> list[Patch]:
    original = Link.drop_oldest_data

    def drop_oldest_data(self: Link) -> Any:
        dropped = original(self)
        self.data.reverse()
        return dropped

    return [(Link, "drop_oldest_data", drop_oldest_data)]


def _forget_the_limit() -> list[Patch]:
    return [(OutputQueues, "_drop_oldest", lambda self, peer: None)]


def _credit_on_arrival() -> list[Patch]:
    original = Link.data_arrived

    def data_arrived(self: Link, count: int) -> None:
        original(self, count)
        self.did(count)

    return [(Link, "data_arrived", data_arrived)]


def _forget_credit() -> list[Patch]:
    original = Link.did

    def did(self: Link, count: int = 1) -> bool:
        return self._data_received_count % 5 != 0 and original(self, count)

    return [(Link, "did", did)]


def _never_go_on() -> list[Patch]:
    return [(InputQueues, "relieve", lambda self, peer: None)]


def _hold_nobody_back() -> list[Patch]:
    return [(InputQueues, "_must_wait", lambda self, source: False)]


def _answer_the_wrong_broker() -> list[Patch]:
    original = ClientMoves.begin

    def begin(self: ClientMoves, target: MoveTo, asked_over: Link, now_s: float) -> list[Any]:
        return original(self, target, self._session.link, now_s)

    return [(ClientMoves, "begin", begin)]


def _close_streams_at_once() -> list[Patch]:
    original = ChannelDesk.__init__

    def init(self: ChannelDesk, broker: Broker, cache_max_count: int, linger_s: float) -> None:
        original(self, broker, cache_max_count, 0.0)

    return [(ChannelDesk, "__init__", init)]


def _forget_channel_positions() -> list[Patch]:
    original = OwnChannels.request

    def request(self: OwnChannels, id: str) -> SubscribeChannel:
        return msgspec.structs.replace(original(self, id), after=FROM_NOW_ON)

    return [(OwnChannels, "request", request)]


def _never_ask_back_end_again() -> list[Patch]:
    return [(ChannelDesk, "_ask_again", lambda self: [])]


def _feed_from_the_cache_alone() -> list[Patch]:
    original = ChannelDesk._fetched

    def fetched(self: ChannelDesk, stream: Any, after: int, results: Any, now_s: float) -> None:
        original(self, stream, after, results if after == stream.cached_until else (), now_s)

    return [(ChannelDesk, "_fetched", fetched)]


def _feed_twice() -> list[Patch]:
    original = OwnChannels.accept

    def accept(self: OwnChannels, stream: str, position: int) -> str | None:
        if stream in self._positions:
            self._positions[stream] = 0
        return original(self, stream, position)

    return [(OwnChannels, "accept", accept)]


_SHOWN_FROM_SEED: Final = {"close-streams-at-once": 501}

BUGS: Final = tuple(
    Bug(name, text, patches, _SHOWN_FROM_SEED.get(name, 1))
    for name, text, patches in (
        ("forget-uncovering", "what a subscription covered is not told when it leaves", _forget_uncovering),
        (
            "forward-covered-only",
            "a subscription that covers others takes them back but is not told",
            _forward_covered_only,
        ),
        ("forget-late-pull", "a late advertisement pulls no subscriptions", _forget_late_pull),
        (
            "accept-too-early",
            "a publication is acknowledged when it arrives, not when it is taken over",
            _accept_too_early,
        ),
        ("confirm-too-early", "a subscription is confirmed before others have installed it", _confirm_too_early),
        (
            "drop-on-reconnect",
            "what was not acknowledged is forgotten when a connection comes back",
            _drop_on_reconnect,
        ),
        ("claim-too-much", "a greeting says that one frame more was seen", _claim_too_much),
        ("reorder-queue", "a publication overtakes the one before it in an output queue", _reorder_queue),
        ("skip-duplicate-check", "a link takes repeated frames for new ones", _skip_duplicate_check),
        (
            "skip-session-duplicate-check",
            "a subscriber delivers what it delivered before",
            _skip_session_duplicate_check,
        ),
        ("ignore-gap", "a link goes on behind a frame that is missing", _ignore_gap),
        ("never-resend", "a link waits for acknowledgements for ever", _never_resend),
        ("lose-control-message", "every tenth subscription that a broker passes on is lost", _lose_control),
        ("unadvertise-overtakes", "the end of an advertisement overtakes publications", _unadvertise_overtakes),
        ("marker-overtakes", "the marker of a move overtakes publications", _marker_overtakes),
        ("end-overtakes", "the old broker's end of a move overtakes publications", _end_overtakes),
        (
            "answer-overtakes",
            "the answer of a publisher's old broker overtakes publications",
            _answer_overtakes,
        ),
        *MOVE_BUGS,
        *DROP_BUGS,
        ("drop-too-much", "a full queue for a slow client loses two publications and counts one", _drop_too_much),
        ("reorder-at-drop", "a full queue is turned round when its oldest publication is dropped", _reorder_at_drop),
        ("forget-the-limit", "a queue for a slow client that loses the oldest is not bounded", _forget_the_limit),
        ("credit-on-arrival", "a message counts as dealt with when it arrives in the input queue", _credit_on_arrival),
        ("forget-credit", "some messages are never said to be dealt with", _forget_credit),
        ("never-go-on", "what was held back for a congested queue is held back for ever", _never_go_on),
        ("hold-nobody-back", "a congested queue holds nobody back", _hold_nobody_back),
        (
            "answer-the-wrong-broker",
            "a client on its way says to its old broker that it does not do what its new one asks",
            _answer_the_wrong_broker,
        ),
        ("close-streams-at-once", "a stream ends with its last client, also if that moves", _close_streams_at_once),
        ("forget-channel-positions", "a client that moves begins its channels anew", _forget_channel_positions),
        (
            "never-ask-back-end-again",
            "what was asked while the back end was away is forgotten",
            _never_ask_back_end_again,
        ),
        ("feed-from-the-cache-alone", "a client that is behind the cache gets no results", _feed_from_the_cache_alone),
        ("skip-result-duplicate-check", "a client takes results that it has had", _feed_twice),
        ("forget-new-stream", "what the new broker sends during a move is thrown away", _forget_new_stream),
    )
)
"""All of them."""


def bug_named(name: str, bugs: Sequence[Bug] = BUGS) -> Bug:
    """The bug of a name; a ValueError lists the names if there is none.

    >>> bug_named("ignore-gap").text
    'a link goes on behind a frame that is missing'
    """
    for bug in bugs:
        if bug.name == name:
            return bug
    raise ValueError(f"no bug is called {name}; there are {', '.join(bug.name for bug in bugs)}")
