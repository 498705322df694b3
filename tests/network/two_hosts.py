"""Hosts of a network on one machine, each with its own name and network, between which the way can be cut.

Each host is a pair of Linux namespaces (network and host name), kept by a process that sleeps. Tests that use them need
the right to make namespaces and are skipped without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")

_CLONE_NEWNET = 0x4000_0000
_WITHIN_S = 60.0


class Host:
    """One host, with an address of its own and a thread that is in its network."""

    def __init__(self, name: str, number: int, log: Path) -> None:
        self.name = name
        self.address = f"10.77.0.{number}"
        self._log = log.open("ab")
        self._keeper = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c", f"hostname {name} && echo ready && exec sleep 3600"],
            stdout=subprocess.PIPE,
        )
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == b"ready\n"
        self.pid = self._keeper.pid
        self._processes: list[subprocess.Popen[bytes]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        with Path(f"/proc/{self.pid}/ns/net").open("rb") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        self._loop.run_forever()

    def run(self, work: Coroutine[object, object, T], within_s: float = _WITHIN_S) -> T:
        """Let something happen in this host's network, and wait for it."""
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, within_s), self._loop).result(within_s + 5)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a process of Trimtab on this host."""
        process = subprocess.Popen(
            [*self._inside, sys.executable, "-m", "trimtab", *arguments], stdout=subprocess.DEVNULL, stderr=self._log
        )
        self._processes.append(process)
        return process

    def command(self, *arguments: str) -> None:
        """Run a command on this host, as its administrator."""
        subprocess.run([*self._inside, *arguments], check=True, capture_output=True)

    @property
    def _inside(self) -> Sequence[str]:
        return ("nsenter", "--target", str(self.pid), "--net", "--uts")

    def close(self) -> None:
        """End all processes of this host, also those that others of it have started."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        for pid in self.pids():
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self._keeper.kill()
        self._keeper.wait(10)
        assert self._keeper.stdout is not None
        self._keeper.stdout.close()
        self._log.close()

    def pids(self) -> list[int]:
        """Processes that are in this host's network; no other process of the machine is."""
        ours = Path(f"/proc/{self.pid}/ns/net").stat().st_ino
        found: list[int] = []
        for each in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if each.name.isdigit() and (each / "ns" / "net").stat().st_ino == ours and int(each.name) != self.pid:
                    found.append(int(each.name))
        return [pid for pid in found if pid != os.getpid()]


class TwoHosts:
    """Two hosts with one way between them."""

    def __init__(self, folder: Path) -> None:
        self.left = Host("left", 1, folder / "left.log")
        self.right = Host("right", 2, folder / "right.log")
        for host in (self.left, self.right):
            host.command("ip", "link", "set", "lo", "up")
        one, other = f"tt{self.left.pid}", f"tt{self.right.pid}"
        self.left.command("ip", "link", "add", one, "type", "veth", "peer", "name", other, "netns", str(self.right.pid))
        self._ways = ((self.left, one), (self.right, other))
        for host, way in self._ways:
            host.command("ip", "address", "add", f"{host.address}/24", "dev", way)
            host.command("ip", "link", "set", way, "up")

    def cut(self) -> None:
        """Let nothing pass; no connection ends, and nobody is told: all goes to a host that does not exist."""
        for host, way in self._ways:
            nobody = ("lladdr", "02:00:00:00:00:99", "nud", "permanent")
            host.command("ip", "neigh", "replace", self._other(host).address, *nobody, "dev", way)

    def heal(self) -> None:
        """Let everything pass again."""
        for host, way in self._ways:
            host.command("ip", "neigh", "del", self._other(host).address, "dev", way)

    def _other(self, host: Host) -> Host:
        return self.right if host is self.left else self.left

    def close(self) -> None:
        """End everything."""
        self.left.close()
        self.right.close()


@contextlib.contextmanager
def two_hosts(folder: Path) -> Iterator[TwoHosts]:
    """Two hosts, where this machine lets us have them."""
    needed = ("unshare", "nsenter", "ip")
    if sys.platform != "linux" or not all(map(shutil.which, needed)):
        pytest.skip(f"needs Linux with {', '.join(needed)}")
    if subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to make namespaces")
    hosts = TwoHosts(folder)
    try:
        yield hosts
    finally:
        hosts.close()
