"""Tells coroutines of the service that results were committed, which happens in threads of the engine."""

from __future__ import annotations

import asyncio
import contextlib

from trimtab.activedata.storage.results import Results


class NewsBell:
    """Wakes everybody who waits in the event loop when there is news of results."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rung = asyncio.Event()
        self.is_closing = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to listen for a loop."""
        self._loop = loop
        with self._results.news:
            self._results.listeners.append(self._heard)

    def close(self) -> None:
        """Wake everybody for the last time; from any thread."""
        self.is_closing = True
        with self._results.news:
            if self._heard in self._results.listeners:
                self._results.listeners.remove(self._heard)
        self._heard()

    @property
    def rung(self) -> asyncio.Event:
        """Set when there are results that are not there yet: to be asked for before one looks for results."""
        return self._rung

    async def wait(self, rung: asyncio.Event, wait_s: float) -> None:
        """Wait for the bell, at most so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(rung.wait(), wait_s)

    def _heard(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is over already
                self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._rung.set()
        self._rung = asyncio.Event()
