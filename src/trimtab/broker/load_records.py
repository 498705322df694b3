"""Load records of one broker: its load indices, its tables, and what it has done since the last record."""

from __future__ import annotations

import msgspec

from trimtab.broker.core import Broker
from trimtab.broker.peers import Counters
from trimtab.load.indices import LoadIndices
from trimtab.protocol.records import LoadRecord


class LoadRecords:
    """Makes the records of one broker, in either world."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._counted = Counters()

    def take(self, now_s: float, load: LoadIndices) -> LoadRecord:
        """The record of this moment."""
        broker, counters = self._broker, msgspec.structs.asdict(self._broker.counters)
        before = msgspec.structs.asdict(self._counted)
        self._counted = Counters(**counters)
        return LoadRecord(
            time_s=now_s,
            broker=broker.name,
            **msgspec.structs.asdict(load),
            advertisements_count=len(broker.tables.advertisements),
            subscriptions_count=len(broker.tables.subscriptions),
            clients_count=sum(peer.role == "client" for peer in broker.peers.values()),
            **{name: count - before[name] for name, count in counters.items()},
        )
