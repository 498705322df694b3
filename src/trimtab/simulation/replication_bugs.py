"""Deliberate mistakes in the replacement of brokers, to show that the fuzzer would find them."""

from __future__ import annotations

from typing import Any, Final

from trimtab.broker.assistance import Assistance
from trimtab.broker.durable import DurableDelivery
from trimtab.broker.moves import Moves
from trimtab.broker.replacement import Replacement
from trimtab.broker.replica import ReplicaDuties
from trimtab.protocol.link import Link
from trimtab.protocol.messages import Unclaimed
from trimtab.replication.absent import AbsentClients
from trimtab.replication.conversation import Conversation
from trimtab.replication.handed_on import HandedOn, HandedOnOne
from trimtab.replication.kept import KeptPublications
from trimtab.replication.merge import OrderedMerge
from trimtab.replication.safe_link import SafeLink
from trimtab.simulation.bugs import Bug
from trimtab.simulation.move_bugs import Patch


def _forget_what_arrived() -> list[Patch]:
    return [(SafeLink, "undelivered_data", Link.undelivered_data)]


def _answer_too_early() -> list[Patch]:
    return [(HandedOnOne, "has_arrived", lambda self: True)]


def _done_when_processed() -> list[Patch]:
    original = SafeLink.did

    def did(self: SafeLink, count: int = 1) -> bool:
        original(self, count)
        return Link.did(self, count)

    return [(SafeLink, "did", did)]


def _lose_the_place() -> list[Patch]:
    return [(HandedOn, "relink", lambda self, old, new: None)]


def _go_on_at_once() -> list[Patch]:
    return [(Link, "hold_data", lambda self: None)]


def _keep_nothing() -> list[Patch]:
    return [(KeptPublications, "add", lambda self, message, source, sent_to: None)]


def _forget_the_absent() -> list[Patch]:
    return [(AbsentClients, "hand_on", lambda self, message: None)]


def _give_piecemeal() -> list[Patch]:
    return [(ReplicaDuties, "client_came", lambda self, peer, hello: None)]


def _forget_unclaimed() -> list[Patch]:
    return [(ReplicaDuties, "unclaimed", lambda self, peer, message, now_s: None)]


def _end_unclaimed_at_once() -> list[Patch]:
    original = ReplicaDuties.unclaimed

    def unclaimed(self: ReplicaDuties, peer: Any, message: Unclaimed, now_s: float) -> None:
        is_over, self.is_over = self.is_over, True
        original(self, peer, message, now_s)
        self.is_over = is_over

    return [(ReplicaDuties, "unclaimed", unclaimed)]


def _tell_no_subscriptions() -> list[Patch]:
    return [(Replacement, "advertised", lambda self, peer, filter, now_s: None)]


def _confirm_for_absent_clients() -> list[Patch]:
    return [(ReplicaDuties, "holds_back", lambda self, entry: False)]


def _complete_too_early() -> list[Patch]:
    original = Conversation.advertisements_told

    def advertisements_told(self: Conversation, neighbour: str) -> list[Any]:
        self._subscriptions_due.pop(neighbour, None)
        return original(self, neighbour)

    return [(Conversation, "advertisements_told", advertisements_told)]


def _forget_what_is_stored() -> list[Patch]:
    original = DurableDelivery.stored

    def stored(self: DurableDelivery, number: int) -> None:
        before = [(source, sequence) for each, source, sequence in self._unstored if each <= number]
        original(self, number)
        for source, sequence in before:
            self._forget(source, self._sessions[source], sequence)

    return [(DurableDelivery, "stored", stored)]


def _recover_nothing() -> list[Patch]:
    return [(DurableDelivery, "recovered", lambda self, publications, now_s: None)]


def _merge_at_once() -> list[Patch]:
    return [(OrderedMerge, "came", lambda self, way, source, message: self._go_on(source, message))]


def _send_back_to_the_assisted() -> list[Patch]:
    return [(Assistance, "_choose_hops", lambda self, source, hops: hops)]


def _pass_on_what_is_known() -> list[Patch]:
    return [(ReplicaDuties, "_add_those_who_may_want_it", lambda self, source, hops: hops)]


def _lead_to_lost_moves() -> list[Patch]:
    return [(Moves, "after_loss", lambda self, message: message)]


def _hand_over_from_another_life() -> list[Patch]:
    return [(Moves, "_is_of_this_life", lambda self, message: True)]


def _begin_during_moves() -> list[Patch]:
    return [(Moves, "is_publisher_under_way", False)]


def _hand_over_on_two_ways() -> list[Patch]:
    return [(Moves, "_may_be_overtaken", lambda self, neighbour: False)]


_FIRST_SEEDS: Final = {
    "begin-during-moves": 2_870,
    "confirm-for-absent-clients": 560,
    "forget-the-absent": 9_360,
    "forget-what-is-stored": 200,
    "hand-over-on-two-ways": 800,
    "lead-to-lost-moves": 100,
    "recover-nothing": 200,
}
"""Where to begin to look for those that few runs show."""

REPLICATION_BUGS: Final = tuple(
    Bug(name, text, patches, _FIRST_SEEDS.get(name, 1))
    for name, text, patches in (
        (
            "forget-what-arrived",
            "a broker keeps what has not arrived, but not what was not handed on",
            _forget_what_arrived,
        ),
        ("answer-too-early", "a publication is acknowledged before others have it", _answer_too_early),
        ("done-when-processed", "a broker says that it has handed on what stands in its queues", _done_when_processed),
        ("lose-the-place", "what waits to arrive at a dead broker does not wait for its replica", _lose_the_place),
        ("go-on-at-once", "publications do not wait for the routes of a replica", _go_on_at_once),
        ("keep-nothing", "a replica keeps nothing for clients that return", _keep_nothing),
        (
            "forget-the-absent",
            "a replica answers for what it alone keeps for clients that have yet to return",
            _forget_the_absent,
        ),
        ("give-piecemeal", "a client that returns gets publications before it has said all it wants", _give_piecemeal),
        ("forget-unclaimed", "what no neighbour has told again stays in tables for ever", _forget_unclaimed),
        ("end-unclaimed-at-once", "routes of absent clients end before they can return", _end_unclaimed_at_once),
        ("tell-no-subscriptions", "a replica is not told what the broker before it was", _tell_no_subscriptions),
        (
            "confirm-for-absent-clients",
            "a new advertisement is confirmed while clients are absent that may want what it announces",
            _confirm_for_absent_clients,
        ),
        ("complete-too-early", "a replica does not wait for subscriptions", _complete_too_early),
        ("forget-what-is-stored", "a disk forgets what has not been delivered yet", _forget_what_is_stored),
        ("recover-nothing", "a replica does not go on with what is on the disk", _recover_nothing),
        ("merge-at-once", "publications that took two ways are not put in order", _merge_at_once),
        (
            "send-back-to-the-assisted",
            "what comes from an assistant goes to the broker that it assists as well",
            _send_back_to_the_assisted,
        ),
        (
            "pass-on-what-is-known",
            "a replica passes nothing on to neighbours that have yet to say what they want",
            _pass_on_what_is_known,
        ),
        ("lead-to-lost-moves", "a move that is lost with a broker goes on through its replica", _lead_to_lost_moves),
        (
            "hand-over-from-another-life",
            "a replica hands over a client that has undone its move in another life of its broker",
            _hand_over_from_another_life,
        ),
        (
            "begin-during-moves",
            "an assistant takes part while a publisher's stream turns at the broker that it assists",
            _begin_during_moves,
        ),
        (
            "hand-over-on-two-ways",
            "a marker passes a broker that has an assistant, although publications may come behind it",
            _hand_over_on_two_ways,
        ),
    )
)
"""All of them; they show in runs in which brokers die."""
