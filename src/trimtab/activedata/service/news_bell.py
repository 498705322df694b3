"""Tells coroutines of the service that results were committed, which happens in threads of the engine."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Final

from trimtab.activedata.storage.results import Results

LOOK_UP_EVERY_S: Final = 0.5


class NewsBell:
    """A thread that waits for results and wakes everybody who waits in the event loop."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rung = asyncio.Event()
        self._thread = threading.Thread(target=self._listen, name="service-news", daemon=True)
        self.is_closing = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to listen for a loop."""
        self._loop = loop
        self._thread.start()

    def close(self) -> None:
        """Wake everybody for the last time; from any thread."""
        self.is_closing = True
        with self._results.news:
            self._results.news.notify_all()
        if self._loop is not None:
            self._thread.join()
            with contextlib.suppress(RuntimeError):  # the loop is over already
                self._loop.call_soon_threadsafe(self._ring)

    @property
    def rung(self) -> asyncio.Event:
        """Set when there are results that are not there yet: to be asked for before one looks for results."""
        return self._rung

    async def wait(self, rung: asyncio.Event, wait_s: float) -> None:
        """Wait for the bell, at most so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(rung.wait(), wait_s)

    def _listen(self) -> None:
        seen = self._results.last_position
        while not self.is_closing:
            with self._results.news:
                if self._results.last_position == seen:
                    self._results.news.wait(LOOK_UP_EVERY_S)
                newest = self._results.last_position
            if newest != seen and self._loop is not None:
                seen = newest
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._rung.set()
        self._rung = asyncio.Event()
