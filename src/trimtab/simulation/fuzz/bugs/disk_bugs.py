"""Deliberate mistakes in what is on disks and in what is left for a return, to show that they would be found; see
`bugs`."""

from __future__ import annotations

from typing import Any, Final

from trimtab.broker.core import Broker
from trimtab.broker.log import log_format
from trimtab.broker.replication.durable import DurableDelivery
from trimtab.broker.replication.retention import Item
from trimtab.protocol.events import LeftBehind
from trimtab.protocol.messages import AnyMessage, Publish
from trimtab.simulation.fuzz.bugs.move_bugs import Patch


def _acknowledge_before_fsync() -> list[Patch]:
    original = DurableDelivery.end

    def end(self: DurableDelivery, source: str, message: AnyMessage, item: Item | None) -> None:
        original(self, source, message, item)
        self.stored(self._number, self._broker.now_s)

    return [(DurableDelivery, "end", end)]


def _ignore_a_checksum() -> list[Patch]:
    return [(log_format, "is_whole", lambda head, content, checksum: True)]


def _forget_on_no_route() -> list[Patch]:
    original = DurableDelivery.recovered

    def recovered(self: DurableDelivery, publications: Any, records: Any, now_s: float) -> None:
        original(self, publications, records, now_s)
        tables, peers = self._broker.tables, self._broker.peers

        def has_route(message: Publish) -> bool:
            return any(tables.matching_from(name, message.values) for name in peers)

        self._recovered = tuple(filter(has_route, self._recovered))

    return [(DurableDelivery, "recovered", recovered)]


def _leave_nothing_behind() -> list[Patch]:
    return [(Broker, "left_behind", lambda self: LeftBehind())]


DISK_BUGS: Final = (
    (
        "acknowledge-before-fsync",
        "a publication is acknowledged when it is about to be stored",
        _acknowledge_before_fsync,
    ),
    ("ignore-a-checksum", "a record is taken as it is, whatever its checksum says", _ignore_a_checksum),
    (
        "forget-on-no-route",
        "what a start finds on the disk is over if nobody is known to want it yet",
        _forget_on_no_route,
    ),
    ("leave-nothing-behind", "a broker that is asked to end leaves nothing for its return", _leave_nothing_behind),
)
"""Their names, what they do, and what they replace."""
