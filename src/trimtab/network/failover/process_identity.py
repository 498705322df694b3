"""Which process a broker's session is: its host, its number and when it began, so that it can be ended for sure.

A broker's session differs after each start and is known to its neighbours. Here it also says which process it is. Who
replaces a broker on the same host can therefore make sure that the process before is over, whatever it hangs in. But a
session comes over the wire, and anybody can make one up: what it says of a process is believed only if that process
proves it (`process_proof.py`).

A session holds a nonce, which decides between two replicas of one broker that have the same epoch. It holds no time of
day: clocks are set back.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import time
from pathlib import Path
from typing import Final

import msgspec

_SESSION: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,20})-([0-9a-f]{1,64})@([A-Za-z0-9_][A-Za-z0-9_.-]{0,252})")
"""Process, ticks, nonce and host; no other text of a peer gets into logs and commands as a session."""

OVER_WITHIN_S: Final = 2.0
LOOK_AGAIN_AFTER_S: Final = 0.01
"""A process that is killed is gone within so long, and is looked for so often."""


class ProcessIdentity(msgspec.Struct, frozen=True):
    """One process that is, or was, a broker.

    >>> life = ProcessIdentity.of_session("4711-99-ab12@node3")
    >>> life.pid, life.host, life.nonce
    (4711, 'node3', 'ab12')
    >>> ProcessIdentity.of_session("1") is ProcessIdentity.of_session("4711-99-ab12@$(reboot)") is None
    True
    """

    pid: int
    started_ticks: int
    """When the process began as its host counts it, lest another one that got its number is taken for it; 0 if that is
    not known."""
    host: str
    nonce: str = ""

    @staticmethod
    def of_session(session: str) -> ProcessIdentity | None:
        """The life that a session names, None if it is a session of another kind."""
        found = _SESSION.fullmatch(session)
        return None if found is None else ProcessIdentity(int(found[1]), int(found[2]), found[4], found[3])

    @staticmethod
    def of_process(pid: int) -> ProcessIdentity:
        """The life of any process of this host that runs now, broker or not.

        >>> ProcessIdentity.of_process(os.getpid()).is_running()
        True
        """
        found = _state(pid)
        return ProcessIdentity(pid, found[1] if found is not None else 0, this_host())

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this host."""
        return self.host == this_host()

    def is_running(self) -> bool:
        """Whether this process of this host has not ended; one that nobody has waited for has."""
        found = _state(self.pid)
        return found is not None and found[0] != "Z" and self.started_ticks in (0, found[1])

    def stop(self) -> None:
        """Ask this process of this host to end, if it has not."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            self._send(signal.SIGTERM)

    def end(self) -> bool:
        """Kill this process of this host, if it has not ended; whether it is over."""
        try:
            self._send(signal.SIGKILL)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        ends_s = time.monotonic() + OVER_WITHIN_S
        while self.is_running() and time.monotonic() < ends_s:
            time.sleep(LOOK_AGAIN_AFTER_S)
        return not self.is_running()

    def _send(self, number: signal.Signals) -> None:
        """Signal this process and no other, also if its number is given to another one meanwhile."""
        if not hasattr(os, "pidfd_open"):
            if self.is_running():
                os.kill(self.pid, number)
            return
        handle = os.pidfd_open(self.pid)
        try:
            if self.is_running():
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def this_host() -> str:
    """The name of this host as sessions say it.

    >>> ProcessIdentity.of_session(f"1-2-ab@{this_host()}").is_here
    True
    """
    return re.sub(r"[^A-Za-z0-9_.-]|^[^A-Za-z0-9_]", "_", socket.gethostname())[:253] or "_"


def new_session() -> str:
    """The session of a broker that begins in this process.

    >>> life = ProcessIdentity.of_session(new_session())
    >>> life.pid == os.getpid(), life.is_here, life.is_running()
    (True, True, True)
    """
    found = _state(os.getpid())
    ticks = found[1] if found is not None else 0
    return f"{os.getpid()}-{ticks}-{secrets.token_hex(8)}@{this_host()}"


def yields_to(session: str, other: str) -> bool:
    """Whether one of two incarnations of a broker with the same epoch makes way for the other: the lower nonce does.

    >>> yields_to("1-2-aa@node-3", "9-1-bb@node-1"), yields_to("9-1-bb@node-1", "1-2-aa@node-3")
    (True, False)
    """
    return _nonce(session) < _nonce(other)


def _nonce(session: str) -> str:
    life = ProcessIdentity.of_session(session)
    return session if life is None else life.nonce


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
