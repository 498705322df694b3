"""The disk of one broker's process: its publication log, what was found in it, and a disk that is full or fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trimtab.network.clock import now_s
from trimtab.network.network_plan import BYTES_PER_MEGABYTE, NetworkPlan
from trimtab.network.server.publication_log import PublicationLog
from trimtab.protocol.events import DiskSpaceChanged, Event, Recovered, Stored

if TYPE_CHECKING:
    from trimtab.network.failover.replication_settings import ReplicaOrder

ROOM_TOLD_EVERY_S: Final = 60.0
"""A disk without room is logged so often at most: under load it may have room and none many times a second."""

log = logging.getLogger("trimtab.broker")


class Disk(PublicationLog):
    """The publication log of one broker's process, which tells the broker what becomes of it."""

    def __init__(
        self, plan: NetworkPlan, name: str, epoch: int, happened: Callable[[Event], None], stop: Callable[[], None]
    ) -> None:
        """Open it for an incarnation, whose epoch may turn out to be higher; `happened` tells the broker."""
        super().__init__(
            Path(plan.options.disk) / name,
            lambda number: happened(Stored(number)),
            self._failed,
            self._room_changed,
            max_bytes=plan.options.disk_max_mb * BYTES_PER_MEGABYTE,
        )
        self._broker_name = name
        self._happened = happened
        self._stop = stop
        self._room_told_s = -ROOM_TOLD_EVERY_S
        self.failure = ""
        """Why nothing can be stored any more, if so."""
        found, places_count = self.open(epoch), len(self.damage)
        damage = f"{places_count} damaged places on the disk of {name}" if places_count else ""
        self._recovered = Recovered(*found, damage)
        for text in self.damage:
            log.error("%s: %s", name, text)
        for text in self.torn:
            log.warning("%s: %s, as after a crash", name, text)

    def tell_found(self) -> None:
        """Tell the broker once what was found."""
        recovered, self._recovered = self._recovered, Recovered(())
        self._happened(recovered)

    def _room_changed(self, problem: str) -> None:
        """The disk has no room for more publications, or, if there is no problem, has room again."""
        time_s = now_s()
        if problem and time_s >= self._room_told_s + ROOM_TOLD_EVERY_S:
            self._room_told_s = time_s
            log.error("%s: %s", self._broker_name, problem)
        self._happened(DiskSpaceChanged(not problem))

    def _failed(self, problem: str) -> None:
        """What is not stored is not acknowledged: a broker that cannot store ends, and another may take its place."""
        log.error("%s stops: %s", self._broker_name, problem)
        self.failure = problem
        self._stop()


def disk_of(
    plan: NetworkPlan,
    name: str,
    order: ReplicaOrder | None,
    happened: Callable[[Event], None],
    stop: Callable[[], None],
) -> Disk | None:
    """The disk of a broker, if the plan has disks; an assistant keeps nothing."""
    if not plan.options.disk or (order is not None and order.assists):
        return None
    return Disk(plan, name, order.epoch if order is not None else 1, happened, stop)
