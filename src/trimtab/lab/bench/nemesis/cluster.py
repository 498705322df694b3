"""The seven brokers as processes, with a proxy on each link and before each broker's clients, and what is done to them.

A broker may be another process from one moment to the next, started here, by a neighbour or by itself. Whoever is
killed or stopped has proved which broker it is (`trimtab.network.failover.process_proof`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path
from typing import IO, Final

from trimtab.lab.bench.nemesis.proxy import LinkProxy
from trimtab.lab.bench.nemesis.schedule import BROKERS, TREE, Level
from trimtab.network.admin.local_network import Network, NetworkError, ask_all, plan_text
from trimtab.network.admin.status import ask_status
from trimtab.network.failover.process_identity import ProcessIdentity
from trimtab.network.failover.process_proof import proved
from trimtab.network.failover.replication_settings import ReplicationSettings
from trimtab.network.links.address import Address
from trimtab.network.network_plan import BrokerEntry, LinkEntry, NetworkOptions, NetworkPlan
from trimtab.protocol.frames import BrokerStatus

REPLICATION: Final = ReplicationSettings(
    provisioner="process",
    look_every_s=0.25,
    suspect_after_s=1.5,
    crash_after_s=3.0,
    hang_after_s=12.0,
)
"""Who is killed and started again at once is back before its neighbours have it replaced, mostly."""

PORTS: Final = range(12_000, 32_000)
"""Below those that systems give to calls: the port of a broker that is dead for a while must stay free."""

STATUS_WITHIN_S: Final = 5.0
STOP_WITHIN_S: Final = 30.0
LOOK_AGAIN_AFTER_S: Final = 0.1


class Cluster:
    """Brokers, links, and their files in a folder."""

    def __init__(
        self,
        folder: Path,
        level: Level,
        *,
        lease_s: float,
        has_replicas: bool = True,
        faketime: Path | None = None,
    ) -> None:
        """With the library of faketime the brokers' clocks can be set."""
        self.folder = folder
        self.level = level
        self.has_replicas = has_replicas
        ports = iter(_free_ports(2 * len(BROKERS) + len(TREE)))
        at = {name: Address("127.0.0.1", next(ports)) for name in BROKERS}
        self.link_proxies = {(first, second): LinkProxy(at[second].port, next(ports)) for first, second in TREE}
        self.client_proxies = {name: LinkProxy(at[name].port, next(ports)) for name in BROKERS}
        options = NetworkOptions(
            acknowledges=level,
            disk=str(folder / "disks") if level == "durable" else "",
            state=str(folder / "states"),
            client_lease_s=lease_s,
        )
        self.plan = NetworkPlan(
            tuple(BrokerEntry(name, address) for name, address in at.items()),
            tuple(
                LinkEntry(first, second, Address("127.0.0.1", proxy.port))
                for (first, second), proxy in self.link_proxies.items()
            ),
            options,
            replication=REPLICATION if has_replicas else None,
        )
        self.file = folder / "network.toml"
        self.file.write_text(plan_text(self.plan), encoding="utf-8")
        self._faketime = faketime
        self._log: IO[bytes] = (folder / "brokers.log").open("ab")
        self._network = Network(self.plan, self.file, log=self._log, quiet=False)
        self._lives: dict[str, ProcessIdentity] = {}
        """The process of each broker when it was last asked."""
        self._stopped: dict[int, ProcessIdentity] = {}
        """Processes that do not run at present."""

    def address(self, broker: str, *, through_proxy: bool = True) -> str:
        """Where clients call a broker."""
        if through_proxy:
            return f"127.0.0.1:{self.client_proxies[broker].port}"
        return str(self.plan.broker(broker).listen)

    # ---- how it is ----

    def start(self) -> None:
        """Start all, and wait until all links are up."""
        for name in BROKERS:
            self._start(name)
        self._network.wait_until_ready()

    def _start(self, broker: str) -> None:
        """Start a process, with a wall clock of its own if clocks can be set."""
        before = dict(os.environ)
        if self._faketime is not None:
            clock = self.folder / "clocks" / broker
            clock.parent.mkdir(exist_ok=True)
            if not clock.exists():
                clock.write_text("+0\n", encoding="utf-8")
            os.environ |= {
                "LD_PRELOAD": str(self._faketime),
                "FAKETIME_TIMESTAMP_FILE": str(clock),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        try:
            self._network.start_broker(broker)
        finally:
            for name in set(os.environ) - set(before):
                del os.environ[name]
            os.environ |= before

    async def statuses(self) -> dict[str, BrokerStatus | None]:
        """How every broker is, None for those that do not answer."""
        found = await ask_all(self.plan)
        self._network.look_for_replicas(found)
        for name, status in found.items():
            if status is not None:
                self._remember(name, status)
        self._network.dead()  # waits for those that have ended
        return found

    def _remember(self, name: str, status: BrokerStatus) -> None:
        life = proved(name, str(self.plan.broker(name).listen), status.session)
        if life is not None:
            self._lives[name] = life

    async def problems(self) -> list[str]:
        """What is not well; none if all brokers answer, are linked and know all routes."""
        found: list[str] = []
        for name, status in (await self.statuses()).items():
            if status is None:
                found.append(f"{name} does not answer")
                continue
            if status.links_missing:
                found.append(f"{name} has no link to {', '.join(status.links_missing)}")
            if status.is_learning:
                found.append(f"{name} is learning")
            if status.disk_problem:
                found.append(f"{name}: {status.disk_problem}")
        return found

    async def is_answering(self, broker: str) -> bool:
        """Whether some process is the broker."""
        try:
            self._remember(broker, await ask_status(self.plan.broker(broker).listen, STATUS_WITHIN_S))
        except (OSError, TimeoutError):
            return False
        return True

    # ---- what is done to processes ----

    async def life(self, broker: str) -> ProcessIdentity | None:
        """The process of a broker, None if none is known to run."""
        await self.is_answering(broker)
        life = self._lives.get(broker)
        return life if life is not None and life.is_running() else None

    async def kill(self, broker: str) -> str:
        """SIGKILL; says what was done."""
        life = await self.life(broker)
        if life is None:
            return f"{broker} is dead already"
        self._stopped.pop(life.pid, None)
        is_over = await asyncio.to_thread(life.end)
        self._network.dead()
        return f"process {life.pid} killed{'' if is_over else ', and it is still there'}"

    async def start_broker(self, broker: str) -> str:
        """Start it again by its file, unless somebody else is the broker by now; says what was done."""
        if await self.is_answering(broker):
            return f"{broker} is there already"
        self._start(broker)
        return f"{broker} started"

    async def terminate(self, broker: str) -> str:
        """SIGTERM, and wait for the end; says what was done."""
        life = await self.life(broker)
        if life is None:
            return f"{broker} is dead already"
        self._continue(life)
        life.stop()
        ends_s = time.monotonic() + STOP_WITHIN_S
        while life.is_running():
            if time.monotonic() > ends_s:
                return f"process {life.pid} has not ended {STOP_WITHIN_S:g} s after SIGTERM"
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        self._network.dead()
        return f"process {life.pid} has ended"

    def has_ended(self, broker: str) -> bool:
        """Whether the process that was started here last as this broker has ended."""
        return any(name == broker for name, _ in self._network.dead())

    async def restart(self, broker: str) -> str:
        """`trimtab restart`; a replica, which that refuses, is ended and started by its file."""
        said = await self.run("restart", str(self.file), broker)
        if "is a replica" not in said:
            return said
        return f"it is a replica: {await self.terminate(broker)}"

    async def run(self, *arguments: str) -> str:
        """A command of `trimtab`; says what it said."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "trimtab", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        text = "; ".join(said.decode(errors="replace").split("\n")).strip("; ")
        return f"trimtab {arguments[0]}: {text} (exit code {process.returncode})"

    async def pause(self, broker: str) -> tuple[ProcessIdentity | None, str]:
        """SIGSTOP; returns the process that was stopped, and what was done."""
        life = await self.life(broker)
        if life is None:
            return None, f"{broker} is dead already"
        self._stopped[life.pid] = life
        os.kill(life.pid, signal.SIGSTOP)
        return life, f"process {life.pid} stopped"

    def go_on(self, life: ProcessIdentity) -> str:
        """SIGCONT to a process that was stopped; says what was done."""
        if not life.is_running():
            self._stopped.pop(life.pid, None)
            return f"process {life.pid} was ended meanwhile"
        self._continue(life)
        return f"process {life.pid} goes on"

    def _continue(self, life: ProcessIdentity) -> None:
        if self._stopped.pop(life.pid, None) is not None and life.is_running():
            os.kill(life.pid, signal.SIGCONT)

    def set_clock(self, broker: str, by_s: float) -> str:
        """Set the wall clock of a broker; says what was done. There is no root clock here to be set."""
        (self.folder / "clocks" / broker).write_text(f"{by_s:+.0f}\n", encoding="utf-8")
        return f"its wall clock is off by {by_s:+,.0f} s"

    def damage(self, broker: str, ratio: float) -> str:
        """Flip a bit of the latest file of a broker's log, so far into it; says what was done."""
        files = sorted((self.folder / "disks" / broker).glob("*.log"))
        data = bytearray(files[-1].read_bytes()) if files else bytearray()
        if not data:
            return f"{broker} has nothing on its disk"
        place = min(int(ratio * len(data)), len(data) - 1)
        data[place] ^= 1
        files[-1].write_bytes(data)
        return f"a bit of {files[-1].name} flipped at {place:,} of {len(data):,} bytes"

    # ---- the end ----

    def heal(self) -> None:
        """No fault on any link, and nobody is stopped."""
        for proxy in (*self.link_proxies.values(), *self.client_proxies.values()):
            proxy.heal()
        for life in list(self._stopped.values()):
            self._continue(life)

    def stop(self) -> list[str]:
        """End all processes; says which had to be looked for."""
        for proxy in (*self.link_proxies.values(), *self.client_proxies.values()):
            proxy.close()
        for life in list(self._stopped.values()):
            self._continue(life)
        self._network.stop()
        left = self._left_over()
        for life in left:
            life.end()
        self._log.close()
        return [f"process {life.pid} had not ended" for life in left]

    def _left_over(self) -> list[ProcessIdentity]:
        """Processes that run with the network file of this cluster, which nobody else has."""
        found: list[ProcessIdentity] = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if os.fsencode(self.file) in words and b"broker" in words:
                found.append(ProcessIdentity.of_process(int(entry.name)))
        return found


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens at now."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
        if len(found) == count:
            return found
    raise NetworkError("there are no free ports")
