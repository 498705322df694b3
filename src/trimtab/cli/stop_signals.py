"""Ctrl-C and SIGTERM as a wish that is looked at, so that everything can be ended in order."""

from __future__ import annotations

import signal
import time
from typing import Final

STOP_WITHIN_S: Final = 0.05


class StopSignals:
    """Set by a signal handler, which may interrupt `wait` anywhere; the lock of a threading event could block."""

    def __init__(self) -> None:
        self._is_set = False
        self.number: int | None = None
        """The signal that came."""

    @classmethod
    def installed(cls) -> StopSignals:
        """For this process, from now on."""
        stop = cls()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda got, _: stop.set(got))
        return stop

    def uninstall(self) -> None:
        """From now on the signals do what they usually do."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def set(self, number: int | None = None) -> None:
        """Ask for the end."""
        self.number = number if self.number is None else self.number
        self._is_set = True

    def is_set(self) -> bool:
        """Whether the end was asked for."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait for so long or until the end is asked for; whether it was."""
        ends_s = time.monotonic() + seconds
        while not self._is_set and time.monotonic() < ends_s:
            time.sleep(min(STOP_WITHIN_S, seconds))
        return self._is_set
