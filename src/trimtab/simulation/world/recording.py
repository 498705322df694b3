"""Records of a simulated run: the load of every broker from time to time, every delivery and every move.

The world tells what its clients do; load is read at steady times. Nothing that is recorded changes what happens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from trimtab.broker.meters import LoadRecords
from trimtab.client.session import ClientSession
from trimtab.protocol.effects import Deliver, GapNotice
from trimtab.protocol.records import AnyRecord, DeliveryRecord, GapRecord, MoveRecord, Recorder, as_record

if TYPE_CHECKING:
    from trimtab.simulation.world.world import World


class LoadWatch(Protocol):
    """Who sums a run up: it hears all records, and reads the load of all brokers at steady times."""

    def record(self, record: AnyRecord) -> None:
        """Something has happened."""
        ...

    def read(self, world: World) -> None:
        """Read what is wanted."""
        ...


class WorldRecords:
    """Turns what happens in a world into records."""

    def __init__(
        self,
        recorder: Recorder | None,
        watch: LoadWatch | None = None,
        on_delivery: Callable[[Deliver, float], None] | None = None,
        metrics: LoadWatch | None = None,
    ) -> None:
        """Records for those who are given; `metrics` gets the load of brokers as records besides, but no deliveries."""
        self._watches = [each for each in (watch, metrics) if each is not None]
        self._recorders: list[Recorder] = [*([] if recorder is None else [recorder]), *self._watches]
        self._keeps_deliveries = recorder is not None
        self._keeps_load = recorder is not None or metrics is not None
        self._on_delivery = on_delivery
        self._moves: dict[str, tuple[float, str, str]] = {}
        """Of each client on its way: since when, from where, and why."""
        self._load: dict[str, LoadRecords] = {}

    @property
    def wants_deliveries(self) -> bool:
        """Whether anybody wants to be told of deliveries."""
        return self._keeps_deliveries or self._on_delivery is not None

    def delivered(self, client: ClientSession, deliver: Deliver, now_s: float) -> None:
        """A client handed a publication to its application."""
        if self._on_delivery is not None:
            self._on_delivery(deliver, now_s)
        if not self._keeps_deliveries:
            return
        self._record(
            DeliveryRecord(
                now_s,
                client.name,
                client.broker,
                deliver.publisher,
                deliver.sequence,
                deliver.delay_s,
                deliver.hops,
                len(deliver.subscriptions),
                len(deliver.late_for),
            )
        )

    def _record(self, record: AnyRecord) -> None:
        for recorder in self._recorders:
            recorder.record(record)

    def move_began(self, client: ClientSession, cause: str, now_s: float) -> None:
        """A client set out for another broker."""
        self._moves[client.name] = (now_s, client.broker, cause)

    def moved(self, client: ClientSession, publisher_wait_s: float, now_s: float) -> None:
        """A client arrived at another broker."""
        begin_s, from_broker, cause = self._moves.pop(client.name)
        way = (client.name, from_broker, client.broker)
        self._record(MoveRecord(begin_s, now_s, *way, cause, "moved", "", publisher_wait_s))

    def stayed(self, client: ClientSession, broker: str, reason: str, now_s: float) -> None:
        """A client stays where it is: it could not set out, or it came back."""
        begin_s, from_broker, cause = now_s, client.broker, ""
        if not client.is_moving and client.name in self._moves:
            begin_s, from_broker, cause = self._moves.pop(client.name)
        self._record(MoveRecord(begin_s, now_s, client.name, from_broker, broker, cause, "stayed", reason))

    def gap_told(self, client: ClientSession, notice: GapNotice, now_s: float) -> None:
        """A client was told that something may be lost."""
        way = (client.name, client.broker, notice.publisher)
        self._record(GapRecord(now_s, *way, notice.first, notice.last, notice.reason))

    def told(self, record: msgspec.Struct) -> None:
        """A broker has something for the records."""
        self._record(as_record(record))

    def read_load(self, world: World) -> None:
        """Record the load of every broker."""
        for watch in self._watches:
            watch.read(world)
        if not self._keeps_load:
            return
        for name, node in world.brokers.items():
            records = self._load.setdefault(name, LoadRecords(node.broker))
            self._record(records.take(world.now_s, world.load(name)))

    def run(self, world: World, every_s: float, until_s: float) -> None:
        """Let time pass until then, with a record of every broker's load at steady times while anything happens."""
        number = 1
        while number * every_s <= until_s:
            world.run(number * every_s)
            if world.is_at_rest:
                return
            self.read_load(world)
            number += 1
