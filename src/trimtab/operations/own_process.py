"""Commands of ours as processes of their own: told when they are ready, ended with everything that they started."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec

from trimtab.network.admin.local_network import free_ports

ANSWER_WITHIN_S: Final = 120.0
STOP_WITHIN_S: Final = 30.0


class OwnProcessError(RuntimeError):
    """A process did not start, or refused what it was asked; the message says which and why."""


def kill_children() -> None:
    """End every process that this one has started, at once; where the system does not tell them, nobody."""
    for file in Path("/proc/self/task").glob("*/children"):
        for pid in file.read_text(encoding="ascii").split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


class OwnProcess:
    """A command that says `ready`; a session of its own, so that Ctrl-C does not reach what it started before it."""

    def __init__(self, *arguments: str, log: Path | None = None) -> None:
        """What it says beside `ready` goes to the log, or else where this process says such things."""
        self._name = " ".join(arguments[:2])
        self._log = log
        self._is_ready = False
        with contextlib.ExitStack() as stack:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trimtab", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if log is None else stack.enter_context(log.open("wb")),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process, which is also the number of its session."""
        return self._process.pid

    def wait_until_ready(self) -> str:
        """The line that it says when it is ready."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode(errors="replace")
        if not line.startswith("ready"):
            said = [] if self._log is None else self._log.read_text(encoding="utf-8", errors="replace").split("\n")
            reason = next((f": {text}" for text in reversed(said) if text.strip()), "")
            raise OwnProcessError(f"trimtab {self._name} did not start{reason}")
        self._is_ready = True
        return line

    def stop(self) -> None:
        """End it and whatever it started; one that has not become ready has nothing to put in order."""
        if self._is_ready:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_WITHIN_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class ActiveProcess(OwnProcess):
    """The active-data process with its Spark; its address is known before it is ready."""

    def __init__(
        self, directory: Path, spark: str | None = None, *, options: Sequence[str] = (), log: Path | None = None
    ) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        where = ["--dir", str(directory), "--listen", f"127.0.0.1:{port}", *(["--spark", spark] if spark else [])]
        super().__init__("active", "start", *where, "--stop-with", str(os.getpid()), *options, log=log)

    def run(self, statements: str) -> None:
        """Run statements."""
        self.ask("POST", "/statements", {"text": statements})

    def feed(self, name: str, records: Sequence[dict[str, Any]]) -> None:
        """Give records to a feed; each must be accepted."""
        if not records:
            return
        said = self.ask("POST", f"/feeds/{name}", b"\n".join(msgspec.json.encode(each) for each in records))
        if said["rejected"]:
            raise OwnProcessError(f"{said['rejected']} records were rejected by the feed {name}")

    def channels(self) -> list[dict[str, Any]]:
        """How every channel is, as `GET /status` tells it."""
        found: list[dict[str, Any]] = self.ask("GET", "/status")["channels"]
        return found

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Ask the service and wait for its answer."""
        content = body if isinstance(body, bytes) else None if body is None else msgspec.json.encode(body)
        request = Request(f"{self.url}{path}", content, {"Content-Type": "application/json"}, method=method)  # noqa: S310 (of our own process)
        try:
            with urlopen(request, timeout=ANSWER_WITHIN_S) as answer:  # noqa: S310
                said: dict[str, Any] = json.load(answer)
        except HTTPError as error:
            raise OwnProcessError(f"active data refused {method} {path}: {error.read().decode()[:300]}") from None
        except OSError as error:
            raise OwnProcessError(f"no answer of active data to {method} {path}: {error}") from None
        return said


def allow_open_files() -> int:
    """Raise the limit as far as that is allowed, for processes that are started from here, too; what it is then.

    >>> allow_open_files() > 100
    True
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
