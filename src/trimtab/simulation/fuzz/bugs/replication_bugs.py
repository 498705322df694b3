"""Deliberate mistakes in the replacement of brokers, to show that the fuzzer would find them; see `bugs`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from trimtab.broker.flow.input_queues import InputQueues
from trimtab.broker.moves.transitions import Moves
from trimtab.broker.peers import Peer
from trimtab.broker.replication.assistance import Assistance
from trimtab.broker.replication.divisions import Divisions
from trimtab.broker.replication.durable import DurableDelivery
from trimtab.broker.replication.late_subscriptions import LateRoutes
from trimtab.broker.replication.merge import OrderedMerge
from trimtab.broker.replication.publication_store import PublicationStore
from trimtab.broker.replication.retention import Item, RetainingLink, Retention
from trimtab.broker.replication.takeover import Takeover
from trimtab.broker.routing.tables import Route, RoutingTables
from trimtab.broker.sessions import Sessions
from trimtab.protocol.effects import Forget
from trimtab.protocol.frames import Hello
from trimtab.protocol.link import Link
from trimtab.protocol.messages import AnyMessage, ClientRecord, Complete, OneWay, Synced
from trimtab.simulation.fuzz.bugs.core_bugs import Bug
from trimtab.simulation.fuzz.bugs.disk_bugs import DISK_BUGS
from trimtab.simulation.fuzz.bugs.fencing_bugs import FENCING_BUGS
from trimtab.simulation.fuzz.bugs.gap_bugs import GAP_BUGS
from trimtab.simulation.fuzz.bugs.move_bugs import Patch
from trimtab.simulation.fuzz.bugs.takeover_bugs import TAKEOVER_BUGS, sweeping_only

# ---- what is retained ----


def _forget_what_arrived() -> list[Patch]:
    return [(RetainingLink, "undelivered_data", Link.undelivered_data)]


def _answer_too_early() -> list[Patch]:
    return [(Item, "has_arrived", lambda self: True)]


def _done_when_processed() -> list[Patch]:
    original = RetainingLink.did

    def did(self: RetainingLink, count: int = 1) -> bool:
        is_due = original(self, count)
        return self.tell_done(self.stepped_count) or is_due

    return [(RetainingLink, "did", did)]


def _lose_the_place() -> list[Patch]:
    return [(Retention, "relink", lambda self, old, new: None)]


def _forget_the_absent() -> list[Patch]:
    original = Retention.note

    def note(self: Retention, link: Link) -> None:
        if link.connected:
            original(self, link)

    return [(Retention, "note", note)]


def _forget_what_is_stored() -> list[Patch]:
    original = DurableDelivery.stored

    def stored(self: DurableDelivery, number: int, now_s: float) -> None:
        before = [(source, sequence) for each, source, sequence in self._unstored if each <= number]
        original(self, number, now_s)
        for source, sequence in before:
            if source in self._logged:
                self._broker.later.append(Forget(source, self._logged[source][0], sequence))

    return [(DurableDelivery, "stored", stored)]


def _recover_nothing() -> list[Patch]:
    original = DurableDelivery.recovered

    def recovered(self: DurableDelivery, publications: Any, records: Any, now_s: float) -> None:
        original(self, (), records, now_s)

    return [(DurableDelivery, "recovered", recovered)]


# ---- replicas ----


def _go_on_at_once() -> list[Patch]:
    return [(InputQueues, "gate", lambda self, *, is_closed: None)]


def _keep_nothing() -> list[Patch]:
    return [(PublicationStore, "add", lambda self, message, source, sent_to: None)]


def _forget_unclaimed() -> list[Patch]:
    return sweeping_only("broker")


def _end_unclaimed_at_once() -> list[Patch]:
    original = Takeover._complete

    def complete(self: Takeover, now_s: float) -> None:
        original(self, now_s)
        for peer in list(self._broker.peers.values()):
            if peer.role == "client" and not peer.link.connected:
                self._broker.interests.end_all_of(peer, now_s)

    return [(Takeover, "_complete", complete)]


def _tell_no_subscriptions() -> list[Patch]:
    original = RoutingTables._pull

    def pull(self: RoutingTables, route: Route, hop: str) -> list[Any]:
        return original(self, route, hop) if self.neighbours.get(hop) == 1 else []

    return [(RoutingTables, "_pull", pull)]


def _complete_too_early() -> list[Patch]:
    original = Takeover.handle

    def handle(self: Takeover, peer: Peer, message: AnyMessage, now_s: float) -> bool:
        if isinstance(message, Synced):
            self._subscriptions_due.pop(peer.name, None)
        return original(self, peer, message, now_s)

    return [(Takeover, "handle", handle)]


def _pass_on_what_is_known() -> list[Patch]:
    return [(LateRoutes, "choose_hops", lambda self, source, hops: hops)]


def _hand_over_from_another_life() -> list[Patch]:
    adopt_before, connected_before = Sessions.adopt, Sessions.connected

    def adopt(self: Sessions, record: ClientRecord, now_s: float) -> Peer | None:
        return adopt_before(self, msgspec.structs.replace(record, burned=0), now_s)

    def connected(self: Sessions, name: str, hello: Hello, now_s: float) -> list[Any]:
        return connected_before(self, name, msgspec.structs.replace(hello, burned=0), now_s)

    return [(Sessions, "adopt", adopt), (Sessions, "connected", connected)]


# ---- assistants ----


def _merge_at_once() -> list[Patch]:
    return [(OrderedMerge, "came", lambda self, way, waiting: self._released.append(waiting))]


def _end_assistance_without_marker() -> list[Patch]:
    original = Divisions.one_way

    def one_way(self: Divisions, source: str, marker: OneWay) -> None:
        division = self.by_source.get(source)
        if division is not None and source == division.assistant:
            division.awaited = {source: 0}
        original(self, source, marker)

    return [(Divisions, "one_way", one_way)]


def _count_on_the_assistant() -> list[Patch]:
    original = Assistance.came

    def came(self: Assistance, peer: Peer, hello: Hello, now_s: float) -> None:
        original(self, peer, hello, now_s)
        if isinstance(peer.link, RetainingLink):
            peer.link.counts_done = False

    return [(Assistance, "came", came)]


def _give_nothing_back() -> list[Patch]:
    original = Divisions.leaves

    def leaves(self: Divisions, peer: Peer) -> None:
        if peer.assists:
            peer.link = self._broker.output.new_link()
        original(self, peer)

    return [(Divisions, "leaves", leaves)]


def _go_on_in_any_order() -> list[Patch]:
    return [(Divisions, "_tell", lambda self, name: None)]


def _say_one_way_at_once() -> list[Patch]:
    def settle(self: Divisions) -> None:
        owed, self._owed = self._owed, {}
        for name in owed:
            self._say_one_way(name)

    return [(Divisions, "settle", settle)]


def _send_back_to_the_assisted() -> list[Patch]:
    return [(Assistance, "choose_hops", lambda self, source, hops: hops)]


def _lead_to_lost_moves() -> list[Patch]:
    original = Moves.complete

    def complete(self: Moves, source: Peer, message: Complete, now_s: float) -> list[Any]:
        return original(self, source, msgspec.structs.replace(message, is_lost=False), now_s)

    return [(Moves, "complete", complete)]


def _hand_over_on_two_ways() -> list[Patch]:
    return [(Moves, "_may_be_overtaken", lambda self, neighbour: False)]


_FIRST_SEEDS: Final[dict[str, int]] = {
    "acknowledge-before-fsync": 100,
    "ignore-a-checksum": 200,
    "forget-on-no-route": 50_000,
    "forget-passing": 200,
    "confirm-while-learning": 1020,
    "hand-over-on-two-ways": 90_000,
    "end-assistance-without-marker": 61_200,
    "merge-at-once": 60_010,
    "count-on-the-assistant": 330_935,
    "give-nothing-back": 70_060,
    "go-on-in-any-order": 70_060,
    "say-one-way-at-once": 330_935,
    "lead-to-lost-moves": 710,
    "say-the-marker-once": 610,
    "forget-the-departed": 670,
    "leave-out-the-union": 710,
    "sync-too-early": 790,
    "effects-before-records": 8870,
    "answer-across-epochs": 1570,
    "stale-end-ends": 3120,
    "answer-across-tellings": 4670,
    "deliver-as-it-came": 7_100_390,
    "end-while-learning": 7_203_370,
    "overtake-the-tails": 7_207_580,
    "markers-wait-for-their-ends": 40_400,
    "record-a-move-in-pieces": 12_705_700,
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
        ("forget-the-absent", "a broker has done what it alone has for clients that are away", _forget_the_absent),
        ("forget-what-is-stored", "a disk forgets what has not been delivered yet", _forget_what_is_stored),
        ("recover-nothing", "a replica does not go on with what is on the disk", _recover_nothing),
        ("go-on-at-once", "publications do not wait for the routes of a replica", _go_on_at_once),
        ("keep-nothing", "a replica keeps nothing for those who come late", _keep_nothing),
        ("forget-unclaimed", "what no client has told again stays in tables for ever", _forget_unclaimed),
        ("end-unclaimed-at-once", "routes of absent clients end before they can return", _end_unclaimed_at_once),
        ("tell-no-subscriptions", "a replica is not told what the broker before it was", _tell_no_subscriptions),
        ("complete-too-early", "a replica does not wait for subscriptions", _complete_too_early),
        (
            "pass-on-what-is-known",
            "a replica passes nothing on to neighbours that have yet to say what they want",
            _pass_on_what_is_known,
        ),
        (
            "hand-over-from-another-life",
            "a replica hands over a client that has given up its stay in another incarnation of its broker",
            _hand_over_from_another_life,
        ),
        ("merge-at-once", "publications that took two ways are not put in order", _merge_at_once),
        (
            "end-assistance-without-marker",
            "what waits for its order goes on when an assistant has left, whatever is under way on the other way",
            _end_assistance_without_marker,
        ),
        ("count-on-the-assistant", "what only an assistant has counts as handed on", _count_on_the_assistant),
        ("give-nothing-back", "what an assistant that is gone had not done is not said again", _give_nothing_back),
        ("go-on-in-any-order", "nobody waits for the word that all is in order", _go_on_in_any_order),
        ("say-one-way-at-once", "a broker says that all is in order before it is", _say_one_way_at_once),
        (
            "send-back-to-the-assisted",
            "what comes from an assistant goes to the broker that it assists as well",
            _send_back_to_the_assisted,
        ),
        ("lead-to-lost-moves", "a move whose marker could not pass goes on", _lead_to_lost_moves),
        (
            "hand-over-on-two-ways",
            "a marker passes a broker that has an assistant, although publications may come behind it",
            _hand_over_on_two_ways,
        ),
        *TAKEOVER_BUGS,
        *FENCING_BUGS,
        *DISK_BUGS,
        *GAP_BUGS,
    )
)
"""All of them; they show in runs in which brokers die."""
