"""Which process a broker's session is: its host, its number and when it began, so that it can be ended for sure.

A broker's session differs after each start and is known to its neighbours. Here it also says which process it is. Who
replaces a broker on the same host can therefore make sure that the process before is over, whatever it hangs in. It
ends with a number drawn by lot, which decides between two replicas of one broker that have the same epoch.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import time
from pathlib import Path
from typing import Final

import msgspec

OVER_WITHIN_S: Final = 2.0
LOOK_AGAIN_AFTER_S: Final = 0.01
"""A process that is killed is gone within so long, and is looked for so often."""


class Life(msgspec.Struct, frozen=True):
    """One process that is, or was, a broker.

    >>> life = Life.of_session("018d2f-4711-99-ab12@node3")
    >>> life.pid, life.host, life.began_ms
    (4711, 'node3', 101679)
    >>> Life.of_session("1") is None
    True
    """

    began_ms: int
    pid: int
    started_ticks: int
    """When the process began as its host counts it, lest another one that got its number is taken for it; 0 if that is
    not known."""
    host: str

    @staticmethod
    def of_session(session: str) -> Life | None:
        """The life that a session names, None if it is a session of another kind."""
        text, _, host = session.partition("@")
        parts = text.split("-")
        if len(parts) != 4 or not host:
            return None
        try:
            return Life(int(parts[0], 16), int(parts[1]), int(parts[2]), host)
        except ValueError:
            return None

    @staticmethod
    def of_process(pid: int) -> Life:
        """The life of any process of this host that runs now, broker or not.

        >>> Life.of_process(os.getpid()).is_running()
        True
        """
        found = _state(pid)
        return Life(0, pid, found[1] if found is not None else 0, socket.gethostname())

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this host."""
        return self.host == socket.gethostname()

    def is_running(self) -> bool:
        """Whether this process of this host has not ended; one that nobody has waited for has."""
        found = _state(self.pid)
        return found is not None and found[0] != "Z" and self.started_ticks in (0, found[1])

    def stop(self) -> None:
        """Ask this process of this host to end, if it has not."""
        if self.is_running():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGTERM)

    def end(self) -> bool:
        """Kill this process of this host, if it has not ended; whether it is over."""
        if self.is_running():
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return True
            except PermissionError:
                return False
            ends_s = time.monotonic() + OVER_WITHIN_S
            while self.is_running() and time.monotonic() < ends_s:
                time.sleep(LOOK_AGAIN_AFTER_S)
        return not self.is_running()


def new_session(began_s: float) -> str:
    """The session of a broker that begins in this process.

    >>> life = Life.of_session(new_session(1.5))
    >>> life.began_ms, life.pid == os.getpid(), life.is_here, life.is_running()
    (1500, True, True, True)
    """
    found = _state(os.getpid())
    ticks = found[1] if found is not None else 0
    return f"{int(began_s * 1000):x}-{os.getpid()}-{ticks}-{secrets.token_hex(4)}@{socket.gethostname()}"


def yields_to(session: str, other: str) -> bool:
    """Whether one of two incarnations of a broker with the same epoch makes way for the other; drawn by lot.

    >>> yields_to("02-1-0-aa@h", "01-9-0-bb@h"), yields_to("01-9-0-bb@h", "02-1-0-aa@h")
    (True, False)
    """
    return _lot(session) < _lot(other)


def _lot(session: str) -> tuple[str, str]:
    return session.rpartition("-")[2], session


def _state(pid: int) -> tuple[str, int] | None:
    """A process's state and when it began, from the kernel's table; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        if Path("/proc/self").exists():
            return None
        return _state_without_table(pid)
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _state_without_table(pid: int) -> tuple[str, int] | None:
    """The same where the kernel shows no table: only whether the number is in use."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "?", 0
