"""What one broker's process tells of itself: its load to the broker, load records, and its status."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from trimtab.broker.core import Broker
from trimtab.broker.flow.rate_limits import Store
from trimtab.broker.meters import LoadRecords
from trimtab.broker.observer import BrokerObserver
from trimtab.load.indices import LoadIndices
from trimtab.network.clock import now_s
from trimtab.network.server.broker_status import status_of
from trimtab.network.server.process_meters import ProcessMeters
from trimtab.protocol.effects import Effect
from trimtab.protocol.frames import BrokerStatus
from trimtab.protocol.records import AnyRecord, ArrivalRecord, Recorder, RecordsError

if TYPE_CHECKING:
    from trimtab.network.server.broker_process import BrokerServer

RECORD_EVERY_S: Final = 1.0
"""How often a load record is written, where records are wanted."""

RATE_OVER_TICKS_COUNT: Final = 8
"""Rates are means over so many ticks of the process: the last two seconds."""

STATUSES_BURST_COUNT: Final = 50
"""So many are made at once after a pause."""

log = logging.getLogger("trimtab.broker")


class Telemetry(BrokerObserver):
    """Measures one broker's process, and records it and the clients that come to it."""

    def __init__(
        self,
        broker: Broker,
        meters: ProcessMeters,
        recorder: Recorder | None,
        carry_out: Callable[[list[Effect]], None],
    ) -> None:
        self._broker = broker
        self._carry_out = carry_out
        self._meters = meters
        self._recorder = recorder
        self._load_records = LoadRecords(broker)
        self._recorded_s = 0.0
        self._began_s = now_s()
        if recorder is not None:
            broker.watched_by(self)
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=RATE_OVER_TICKS_COUNT + 1)
        self._status: BrokerStatus | None = None
        self._status_allowance = Store(STATUSES_BURST_COUNT, now_s())

    def tick(self, time_s: float) -> None:
        """Look at rates, queues and memory, at steady times."""
        counters = self._broker.counters
        self._samples.append((time_s, counters.publications_in_count, counters.publications_out_count))
        self._meters.look(time_s)
        self._tell_load(time_s)
        if time_s >= self._recorded_s + RECORD_EVERY_S:
            self.record_load(time_s)

    def _tell_load(self, time_s: float) -> LoadIndices:
        self._carry_out(self._broker.handle(self._meters.measured(), time_s))
        return self._broker.read_load(time_s)

    def record_load(self, time_s: float) -> None:
        """Keep a load record."""
        if self._recorder is not None:
            self._recorded_s = time_s
            self.record(self._load_records.take(time_s, self._tell_load(time_s)))

    def record(self, record: AnyRecord) -> None:
        """Keep a record; a recorder that fails is told of once and asked no more."""
        if self._recorder is None:
            return
        try:
            self._recorder.record(record)
        except RecordsError as error:
            log.error("%s: nothing more is recorded: %s", self._broker.name, error)
            self._recorder = None

    def latest_status(self, server: BrokerServer, rate_per_s: float) -> BrokerStatus:
        """How the broker is; where many ask, how it was a moment ago."""
        wait_s = self._status_allowance.wait_s(rate_per_s, STATUSES_BURST_COUNT, now_s())
        if self._status is None or wait_s <= 0:
            self._status_allowance.spend(1)
            self._status = self.status(server)
        return self._status

    def came(self, client: str, old_broker: str, cause: str, now_s: float) -> None:
        """Record a client that has come from another broker."""
        self.record(ArrivalRecord(now_s, client, old_broker, self._broker.name, cause))

    def status(self, server: BrokerServer) -> BrokerStatus:
        """How the broker is."""
        time_s = now_s()
        return status_of(
            self._broker,
            self._tell_load(time_s),
            list(self._samples),
            time_s,
            uptime_s=time_s - self._began_s,
            links_missing=server.links.missing(),
            policy=server.policy,
            is_back_end_reached=server.is_back_end_reached,
            failures=server.failures(),
            assistances=server.assistances(),
            disk=server.disk,
        )
