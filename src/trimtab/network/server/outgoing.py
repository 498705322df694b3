"""What leaves a broker's process in one turn: one write for each peer, or as much as a configured bandwidth allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from trimtab.broker.core import Broker
from trimtab.broker.flow.uplink import Uplink, UplinkScheduler
from trimtab.network.clock import now_s
from trimtab.network.links.connection import Connection
from trimtab.network.server.capacity import EnforcedCapacity
from trimtab.network.server.process_meters import ProcessMeters
from trimtab.protocol.codec import encode_frame
from trimtab.protocol.frames import Payload

WRITE_PER_TURN_COUNT: Final = 512
"""Messages given to one connection per turn; the rest waits in its queue."""


class Outgoing:
    """Takes frames from the broker and writes them to connections."""

    def __init__(
        self,
        broker: Broker,
        connections: Mapping[str, Connection],
        meters: ProcessMeters,
        capacity: EnforcedCapacity | None,
        *,
        uplink: Uplink,
        schedule: Callable[[], None],
    ) -> None:
        """`schedule` sees to it that there is another turn."""
        self._broker = broker
        self._connections = connections
        self._meters = meters
        self._capacity = capacity
        self._schedule = schedule
        self._uplink = UplinkScheduler(broker.peers, uplink)
        """Peers that wait for a limited bandwidth."""
        self._flush_is_due = False

    def flush(self) -> None:
        """Send what can be sent now."""
        if self._capacity is None:
            self._flush_all()
        else:
            self._flush_paced(self._capacity)

    def _flush_all(self) -> None:
        time_s = now_s()
        broker, meters = self._broker, self._meters
        for name in broker.sendable():
            connection = self._connections.get(name)
            if connection is None or not connection.writable:
                continue
            parts: list[bytes] = []
            count = 0
            while count < WRITE_PER_TURN_COUNT and (frame := broker.take_frame(name, time_s, WRITE_PER_TURN_COUNT)):
                parts.append(encode_frame(frame))
                meters.sent(frame, len(parts[-1]))
                count += len(frame.messages) if type(frame) is Payload else 1
            if count >= WRITE_PER_TURN_COUNT:
                self._schedule()
            if parts:
                connection.write(b"".join(parts))

    def _flush_paced(self, capacity: EnforcedCapacity) -> None:
        """Send as the configured bandwidth allows, a message at a time."""
        time_s = now_s()
        broker, uplink = self._broker, self._uplink
        uplink.add(broker.sendable(), time_s)
        while uplink and capacity.sending_wait_s(time_s) <= 0:
            name = uplink.take(time_s)
            connection = self._connections.get(name)
            if connection is None or not connection.writable:
                continue
            frame, has_more = broker.output.take_in_turn(name, time_s)
            if frame is None:
                continue
            data = encode_frame(frame)
            self._meters.sent(frame, len(data))
            capacity.spend_bytes(len(data), time_s)
            connection.write(data)
            if has_more:
                uplink.goes_on(name, time_s)
        if uplink and not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_later(capacity.sending_wait_s(time_s), self._flush_again)

    def _flush_again(self) -> None:
        self._flush_is_due = False
        self.flush()
