"""Asking a broker how it is."""

from __future__ import annotations

import asyncio

from trimtab.network.address import Address
from trimtab.network.connection import Connection
from trimtab.protocol.frames import BrokerStatus, Frame, StatusReply, StatusRequest


async def ask_status(address: Address, within_s: float = 2.0) -> BrokerStatus:
    """Ask the broker at an address how it is; raises OSError or TimeoutError if it does not say."""
    loop = asyncio.get_running_loop()
    asker = _StatusAsker(loop.create_future())
    async with asyncio.timeout(within_s):
        _, connection = await loop.create_connection(lambda: Connection(asker), address.host, address.port)
        try:
            return (await asker.answer).status
        finally:
            connection.close()


class _StatusAsker:
    def __init__(self, answer: asyncio.Future[StatusReply]) -> None:
        self.answer = answer

    def connection_opened(self, connection: Connection) -> None:
        connection.send(StatusRequest())

    def frame_received(self, connection: Connection, frame: Frame) -> None:
        if isinstance(frame, StatusReply) and not self.answer.done():
            self.answer.set_result(frame)

    def bytes_handled(self, connection: Connection) -> None:
        pass

    def connection_broken(self, connection: Connection, reason: str) -> None:
        self._fail(f"not a broker: {reason}")
        connection.close()

    def connection_writable(self, connection: Connection) -> None:
        pass

    def connection_closed(self, connection: Connection) -> None:
        self._fail("the connection was closed")

    def _fail(self, reason: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(ConnectionError(reason))
