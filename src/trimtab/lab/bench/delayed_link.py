"""A TCP line that takes its time: what goes in at one end comes out at the other after a fixed delay."""

from __future__ import annotations

import asyncio
from typing import Final

READ_MAX_BYTES: Final = 65_536


class DelayedLink:
    """Listens at a free port of this machine and passes bytes on to another port, both ways, later."""

    def __init__(self, port: int, target_port: int, delay_s: float) -> None:
        self._port = port
        self._target_port = target_port
        self._delay_s = delay_s
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)

    async def close(self) -> None:
        """Listen no more, and break what is open."""
        if self._server is not None:
            self._server.close()
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        for source, target in ((reader, back), (there, writer)):
            task = asyncio.get_running_loop().create_task(self._pass(source, target))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await source.read(READ_MAX_BYTES):
                loop.call_later(self._delay_s, target.write, data)
        except ConnectionError:
            pass  # the other end has gone: so does this one
        finally:
            loop.call_later(self._delay_s, target.close)
