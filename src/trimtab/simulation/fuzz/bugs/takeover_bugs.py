"""Deliberate mistakes in link epochs, takeovers, records and stays, to show that they would be found; see `bugs`."""

from __future__ import annotations

from typing import Any, Final

from trimtab.broker.core import Broker
from trimtab.broker.moves.streams import Streams
from trimtab.broker.moves.transitions import Moves
from trimtab.broker.peers import Peer
from trimtab.broker.replication.client_records import Records, RetainedRecords
from trimtab.broker.replication.durable import DurableDelivery
from trimtab.broker.replication.retention import Item, Retention
from trimtab.broker.replication.takeover import Takeover
from trimtab.broker.routing.confirmations import Confirmations
from trimtab.broker.routing.interests import Interests
from trimtab.broker.sessions import Sessions
from trimtab.client.move_transitions import Move
from trimtab.protocol.frames import Hello
from trimtab.protocol.messages import AnyMessage, Handover, MoveIn, SubscriptionsTold, Synced, Unadvertise
from trimtab.simulation.fuzz.bugs.move_bugs import Patch

# ---- link epochs ----


def _leave_out_the_union() -> list[Patch]:
    original = Interests.begin_epoch

    def begin_epoch(self: Interests, peer: Peer, now_s: float) -> None:
        peer.told_of.clear()
        original(self, peer, now_s)

    return [(Interests, "begin_epoch", begin_epoch)]


def _reuse_a_link_epoch() -> list[Patch]:
    begin_again_before, begin_link_before = Takeover.begin_again, Sessions._begin_link_again

    def begin_again(self: Takeover, peer: Peer, hello: Hello, now_s: float) -> None:
        peer.epoch -= 1
        begin_again_before(self, peer, hello, now_s)

    def begin_link_again(self: Sessions, peer: Peer, now_s: float) -> None:
        peer.epoch -= 1
        begin_link_before(self, peer, now_s)

    return [(Takeover, "begin_again", begin_again), (Sessions, "_begin_link_again", begin_link_again)]


def _answer_across_epochs() -> list[Patch]:
    original = Broker._step

    def step(self: Broker, now_s: float) -> list[Any]:
        if self.input.control:
            name, message, _ = self.input.control[0]
            if name in self.peers:
                self.input.control[0] = (name, message, self.peers[name].epoch)
        return original(self, now_s)

    return [(Broker, "_step", step)]


def _answer_across_tellings() -> list[Patch]:
    original = Confirmations.confirm

    def confirm(self: Confirmations, neighbour: str, id: str, number: int) -> Any:
        return original(self, neighbour, id, self._told.get(neighbour, {}).get(id, number))

    return [(Confirmations, "confirm", confirm)]


def _stale_end_ends() -> list[Patch]:
    original = Interests.unadvertise

    def unadvertise(self: Interests, peer: Peer, message: Unadvertise, now_s: float, *, is_stale: bool = False) -> None:
        original(self, peer, message, now_s)

    return [(Interests, "unadvertise", unadvertise)]


# ---- takeovers ----


def _process_before_routes() -> list[Patch]:
    original = Takeover.handle

    def handle(self: Takeover, peer: Peer, message: AnyMessage, now_s: float) -> bool:
        if isinstance(message, SubscriptionsTold):
            self._subscriptions_due.clear()
        return original(self, peer, message, now_s)

    return [(Takeover, "handle", handle)]


def _confirm_while_learning() -> list[Patch]:
    return [(Takeover, "must_wait_to_confirm", lambda self, hop: False)]


def _sync_too_early() -> list[Patch]:
    return [(Takeover, "_awaits_besides", lambda self, name: False)]


def sweeping_only(role: str) -> list[Patch]:
    """What others than these have not told again does not end."""
    subscriptions_before, advertisements_before = Interests.sweep_subscriptions, Interests.sweep_advertisements

    def sweep_subscriptions(self: Interests, peer: Peer, now_s: float) -> None:
        if peer.role == role:
            subscriptions_before(self, peer, now_s)

    def sweep_advertisements(self: Interests, peer: Peer, now_s: float) -> None:
        if peer.role == role:
            advertisements_before(self, peer, now_s)

    return [
        (Interests, "sweep_subscriptions", sweep_subscriptions),
        (Interests, "sweep_advertisements", sweep_advertisements),
    ]


def _never_sweep() -> list[Patch]:
    return sweeping_only("client")


def _sweep_at_once() -> list[Patch]:
    original = Takeover.begin_again

    def begin_again(self: Takeover, peer: Peer, hello: Hello, now_s: float) -> None:
        original(self, peer, hello, now_s)
        self._broker.interests.sweep_subscriptions(peer, now_s)
        self._broker.interests.sweep_advertisements(peer, now_s)

    return [(Takeover, "begin_again", begin_again)]


def _forget_passing() -> list[Patch]:
    return [(Streams, "passing", lambda self, neighbour, message: None)]


# ---- records ----


def _forget_records() -> list[Patch]:
    original = RetainedRecords.keep

    def keep(self: RetainedRecords, guard: Any) -> None:
        if guard.is_over:
            original(self, guard)

    return [(RetainedRecords, "keep", keep)]


def _effects_before_records() -> list[Patch]:
    return [(Records, "is_kept", property(lambda self: True))]


def _record_a_move_in_pieces() -> list[Patch]:
    original = Moves.move_in

    def move_in(self: Moves, peer: Peer, message: MoveIn, now_s: float) -> None:
        peer.old_broker, peer.publishes = message.old_broker, message.publishes
        original(self, peer, message, now_s)

    return [(Moves, "move_in", move_in)]


def _push_nothing() -> list[Patch]:
    def push_all(self: Records, now_s: float) -> None:
        self._kept_version = self._last_version

    return [(Records, "_push_all", push_all)]


def _forget_the_departed() -> list[Patch]:
    return [(DurableDelivery, "_owe", lambda self, peer, advertisements, now_s: None)]


# ---- stays ----


def _markers_wait_for_their_ends() -> list[Patch]:
    original = Retention.begin

    def begin(self: Retention, source: str, index: int, sequence: int, *, is_marker: bool = False) -> Item:
        return original(self, source, index, sequence)

    return [(Retention, "begin", begin)]


def _say_the_marker_once() -> list[Patch]:
    def wake(self: Moves, now_s: float) -> None:
        self._again_s.clear()

    return [(Moves, "wake", wake)]


def _answer_once() -> list[Patch]:
    original = Moves._hand_over

    def hand_over(self: Moves, source: Peer, message: Handover, now_s: float) -> None:
        client = self._broker.peers.get(message.client)
        if client is not None and client.session == message.session and client.stay < message.stay:
            if not client.is_leaving:
                original(self, source, message, now_s)

    return [(Moves, "_hand_over", hand_over)]


def _overtake_the_tails() -> list[Patch]:
    original = Takeover.handle

    def handle(self: Takeover, peer: Peer, message: AnyMessage, now_s: float) -> bool:
        return original(self, peer, Synced() if isinstance(message, Synced) else message, now_s)

    return [(Takeover, "handle", handle)]


def _end_while_learning() -> list[Patch]:
    return [(Interests, "_may_have_forgotten", lambda self, peer: False)]


def _deliver_as_it_came() -> list[Patch]:
    return [(Move, "in_order", lambda self: [*self.late, *self.early])]


TAKEOVER_BUGS: Final = (
    (
        "leave-out-the-union",
        "a replica is not told of advertisements whose ends are on their way to it",
        _leave_out_the_union,
    ),
    ("reuse-a-link-epoch", "a link that begins anew has the number that it had before", _reuse_a_link_epoch),
    ("answer-across-epochs", "what was said in an earlier epoch of a link counts in this one", _answer_across_epochs),
    (
        "answer-across-tellings",
        "a confirmation of what was told counts for what was told again since",
        _answer_across_tellings,
    ),
    ("stale-end-ends", "an end from an earlier epoch ends what was told again since", _stale_end_ends),
    ("process-before-routes", "a replica goes on when one neighbour has told it all", _process_before_routes),
    ("confirm-while-learning", "a broker confirms what it cannot know to be in force yet", _confirm_while_learning),
    ("sync-too-early", "a broker says that it has told all before its neighbours have", _sync_too_early),
    ("never-sweep", "what a neighbour has not told again stays for ever", _never_sweep),
    ("sweep-at-once", "what a neighbour has told ends before it can tell it again", _sweep_at_once),
    (
        "forget-passing",
        "a publisher's new stream does not wait for the end of its old one behind a takeover",
        _forget_passing,
    ),
    ("overtake-the-tails", "a handover does not wait for what died with the broker before", _overtake_the_tails),
    ("end-while-learning", "what a neighbour that is learning ends, ends at once", _end_while_learning),
    ("deliver-as-it-came", "what two brokers have sent is delivered in the order of its arrival", _deliver_as_it_came),
    ("forget-records", "a guardian or a disk keeps no records of clients", _forget_records),
    ("effects-before-records", "what changes for a client counts before it is recorded", _effects_before_records),
    (
        "record-a-move-in-pieces",
        "the record of a client that comes names its old broker before it has all its filters",
        _record_a_move_in_pieces,
    ),
    ("push-nothing", "a guardian that takes over from another is not told what there is", _push_nothing),
    (
        "forget-the-departed",
        "an advertisement ends with all its routes, although something that it announced is on the disk",
        _forget_the_departed,
    ),
    (
        "markers-wait-for-their-ends",
        "a marker is done when what came of it has reached its end",
        _markers_wait_for_their_ends,
    ),
    ("say-the-marker-once", "a marker that was lost with a broker is not said again", _say_the_marker_once),
    ("answer-once", "a marker that is said again is not answered again", _answer_once),
)
"""Their names, what they do, and what they replace."""
