"""A thread that works until it is told to stop: what it fails on is told, and it begins again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from trimtab.activedata.errors import ActiveDataError

logger = logging.getLogger(__name__)

RETRY_MIN_S: Final = 0.5
RETRY_MAX_S: Final = 30.0
CALM_S: Final = 30.0
"""Work that went on for so long counts as a success: the next failure is retried soon again."""


class SupervisedThread:
    """Runs `work` in a thread; whatever ends it before it is told to stop is a failure, and it is started again.

    `failed` is told the reason of each failure; what it raises itself (a full disk, for example) does no harm.
    """

    def __init__(self, name: str, work: Callable[[threading.Event], None], failed: Callable[[str], None]) -> None:
        self.name = name
        self._work = work
        self._failed = failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.restarts_count = 0
        self.error: str | None = None
        """Why the work ended last, until it has gone on for a while."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Tell the work to stop and wait until it has."""
        self._stop.set()
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Whether the thread is there."""
        return self._thread.is_alive()

    def worked(self) -> None:
        """The work got on: what it failed on before is over."""
        self.error = None

    def _run(self) -> None:
        failures_count = 0
        while not self._stop.is_set():
            began_s = time.monotonic()
            reason = "it ended"
            try:
                self._work(self._stop)
            except (OSError, ActiveDataError) as error:
                reason = str(error)
                logger.warning("%s: %s", self.name, error)
            except BaseException as error:
                reason = f"{type(error).__name__}: {error}"
                logger.exception("%s ended and is started again", self.name)
            if self._stop.is_set():
                return
            failures_count = 0 if time.monotonic() - began_s > CALM_S else failures_count + 1
            self.restarts_count += 1
            self.error = reason
            self._tell(reason)
            self._stop.wait(min(RETRY_MAX_S, RETRY_MIN_S * 2.0 ** min(failures_count, 10)))

    def _tell(self, reason: str) -> None:
        try:
            self._failed(reason)
        except (OSError, ActiveDataError) as error:
            logger.warning("%s: the failure could not be written down: %s", self.name, error)
