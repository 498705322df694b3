"""Who starts replicas: a process on this host, a process that stands by, or the operator's command.

A provisioner is told what the replica is to be (`ReplicaOrder`) and returns why it could not even begin. Whether the
replica has come is seen when it greets.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from trimtab.network.admin.status import ask_replica
from trimtab.network.failover.replication_settings import ReplicaOrder, ReplicationSettings, neighbours_text
from trimtab.network.links.address import Address
from trimtab.protocol.frames import ReplicaRequest

log = logging.getLogger("trimtab.broker")


class Provisioner(Protocol):
    """Who starts replicas."""

    async def start(self, order: ReplicaOrder) -> str:
        """Begin to start one; returns why that cannot be, empty if it is under way."""
        ...

    def problem(self) -> str:
        """Why what was started last will not become a replica, empty as long as it may."""
        ...

    def look(self) -> None:
        """From time to time: take note of processes that have ended."""
        ...


def provisioner_of(
    settings: ReplicationSettings, standbys: Sequence[Address], host: str, file: str | Path | None, options: list[str]
) -> Provisioner | None:
    """The provisioner that a network file names; None if it names none.

    Processes are started with this network file and these further options, and listen at this host where the broker
    before was elsewhere.
    """
    match settings.provisioner:
        case "process":
            return None if file is None else StartedHere(file, host, options)
        case "standby":
            return StandBys(standbys)
        case "command":
            return OperatorsCommand(settings.command)
        case _:
            return None


class _Children:
    """Processes that were started and must be waited for when they end."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[bytes]] = []
        self.last: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str]) -> str:
        try:
            self.last = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            return f"{command[0]} cannot be run: {error.strerror}"
        self._children.append(self.last)
        return ""

    def look(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]


class StartedHere:
    """A replica is a process on the host of the broker that asks."""

    def __init__(self, file: str | Path, host: str, options: list[str]) -> None:
        self._file = file
        self._host = host
        self._options = options
        self._children = _Children()

    async def start(self, order: ReplicaOrder) -> str:
        """Start a process."""
        return self._children.start(
            [
                *(sys.executable, "-m", "trimtab", "broker", order.broker, str(self._file)),
                *("--replica", order.protocol, "--neighbours", neighbours_text(order.neighbours)),
                *("--listen", order.listen, "--or-at", self._host, "--epoch", str(order.epoch)),
                *order.options,
                *self._options,
            ]
        )

    def problem(self) -> str:
        """A process that ends at once is no replica."""
        code = None if self._children.last is None else self._children.last.poll()
        return "" if code is None else f"the replica's process ended with exit code {code}"

    def look(self) -> None:
        """Let processes that have ended go."""
        self._children.look()


class StandBys:
    """Processes that wait at addresses; the first that is free becomes the replica."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = tuple(addresses)

    async def start(self, order: ReplicaOrder) -> str:
        """Ask one after the other."""
        request = ReplicaRequest(
            order.broker, order.protocol, order.neighbours, order.listen, order.assists, order.reorders, order.epoch
        )
        reasons: list[str] = []
        for address in self._addresses:
            try:
                reply = await ask_replica(address, request)
            except (OSError, TimeoutError):
                reasons.append(f"nobody at {address}")
                continue
            if reply.done:
                log.info("%s: the process that stood by at %s takes over", order.broker, address)
                return ""
            reasons.append(f"{address}: {reply.reason}")
        return f"nobody stands by ({'; '.join(reasons)})"

    def problem(self) -> str:
        """Nothing is known until it greets."""
        return ""

    def look(self) -> None:
        """Nothing to do: they are not this process's children."""


class OperatorsCommand:
    """The operator's own way to start a broker: a container, a machine, a job."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)
        self._children = _Children()

    async def start(self, order: ReplicaOrder) -> str:
        """Run the command; it may go on or end, but not with an error."""
        command = [*(order.filled_in(word) for word in self._words), *order.options]
        problem = self._children.start(command)
        await asyncio.sleep(0)
        return problem

    def problem(self) -> str:
        """A command that ends with an error has started nothing."""
        code = None if self._children.last is None else self._children.last.poll()
        return "" if not code else f"the operator's command ended with exit code {code}"

    def look(self) -> None:
        """Let commands that have ended go."""
        self._children.look()
