"""A network of broker processes on this machine, for tests, notebooks and `trimtab up`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from trimtab.network.admin.status import ask_status
from trimtab.network.failover.process_identity import ProcessIdentity
from trimtab.network.failover.process_proof import proved
from trimtab.network.failover.replication_settings import ReplicationSettings
from trimtab.network.links.address import Address
from trimtab.network.loops import run_aside
from trimtab.network.network_file import BrokerEntry, LinkEntry, NetworkOptions, NetworkPlan, read_network_file
from trimtab.network.security.caller import commander
from trimtab.network.security.errors import NotPermittedError
from trimtab.network.security.settings import LimitSettings, SecuritySettings
from trimtab.policies.registry import PolicyChoice
from trimtab.protocol.frames import BrokerStatus

READY_WITHIN_S: Final = 60.0
STOP_WITHIN_S: Final = 10.0
LOOK_AGAIN_AFTER_S: Final = 0.03
BROKERS_SHOWN_COUNT: Final = 4


class NetworkError(RuntimeError):
    """A broker did not start or has died; the message names it."""


class Network:
    """Broker processes of one network.

        with Network.from_file("examples/seven.toml") as network:
            print(network.address("B1"))

    Or without a file, with free ports of this machine: `Network.of(["B1", "B2"], [("B1", "B2")])`.
    """

    def __init__(
        self,
        plan: NetworkPlan,
        file: str | Path | None = None,
        *,
        log: IO[bytes] | None = None,
        quiet: bool = True,
        records: str | Path | None = None,
    ) -> None:
        """With `records` each broker writes its load records to that folder."""
        self.plan = plan
        self._file = file
        self._log = log
        self._options = ["--stop-with", str(os.getpid()), *(["--quiet"] if quiet else [])]
        self._records = records
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._replicas: dict[str, ProcessIdentity] = {}
        """Processes that have taken the place of those that were started here."""
        self._standbys: dict[Address, subprocess.Popen[bytes]] = {}
        self._former: list[subprocess.Popen[bytes]] = []
        """Those that were started here and whose place others have by now."""
        self._has_begun = False
        """Whether all brokers were seen to be those that were started here."""

    @classmethod
    def from_file(cls, path: str | Path) -> Network:
        """The network that a file describes."""
        return cls(read_network_file(path), path)

    @classmethod
    def of(
        cls,
        brokers: Sequence[str],
        links: Iterable[tuple[str, str]] = (),
        options: NetworkOptions | None = None,
        *,
        policy: str = "none",
        replication: ReplicationSettings | None = None,
        standbys_count: int = 0,
        log: IO[bytes] | None = None,
    ) -> Network:
        """Brokers on free ports of this machine, under a policy by its name, and processes that stand by."""
        addresses = [Address("127.0.0.1", port) for port in free_ports(len(brokers) + standbys_count)]
        plan = NetworkPlan(
            tuple(BrokerEntry(name, address) for name, address in zip(brokers, addresses, strict=False)),
            tuple(LinkEntry(first, second) for first, second in links),
            options or NetworkOptions(),
            PolicyChoice(policy).check(),
            replication=replication,
            standbys=tuple(addresses[len(brokers) :]),
        )
        return cls(plan, log=log)

    def address(self, broker: str) -> str:
        """Where a broker is reached."""
        return str(self.plan.broker(broker).address)

    def pid(self, broker: str) -> int:
        """The process of a broker, as far as is known here."""
        replica = self._replicas.get(broker)
        return self._processes[broker].pid if replica is None else replica.pid

    def start(self, until: Callable[[], bool] | None = None) -> None:
        """Start every broker and wait until all links are up, or until there is no more need.

        Nothing is started if somebody listens already where a broker is to be.
        """
        self._check_free()
        try:
            for entry in self.plan.brokers:
                self.start_broker(entry.name)
            self.refill_standbys()
            self.wait_until_ready(until=until)
        except BaseException:
            self.stop()
            raise

    def _check_free(self) -> None:
        """Raise an error if somebody listens at an address of the plan."""
        named = [(f"broker {entry.name}", entry.listen) for entry in self.plan.brokers]
        named += [("a process that stands by", address) for address in self.plan.standbys]
        for wanted, address in named:
            if _listens(address):
                raise NetworkError(
                    f"{wanted} cannot listen at {address}: {run_aside(_who_listens(address))} does. "
                    "Does this network run already? Nothing was started or ended."
                )

    def start_broker(self, name: str) -> None:
        """Start one broker, without waiting for it."""
        before = self._processes.get(name)
        if before is not None and before.poll() is None:
            self._former.append(before)
        records = [] if self._records is None else ["--records", str(self._records)]
        self._processes[name] = self._start("broker", name, str(self._plan_file()), *records)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "trimtab", *arguments, *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            start_new_session=True,
        )

    def refill_standbys(self) -> None:
        """Start a process at each address of the plan where none stands by; one that became a broker has left it."""
        for address in self.plan.standbys:
            process = self._standbys.get(address)
            has_left = process is not None and (process.poll() is not None or self._is_replica(process.pid))
            if process is None or has_left:
                if process is not None:
                    self._former.append(process)
                self._standbys[address] = self._start("standby", str(self._plan_file()), "--listen", str(address))

    def all_stand_by(self) -> bool:
        """Whether a process waits at each address of the plan that has one."""
        return all(_listens(address) for address in self.plan.standbys)

    def _is_replica(self, pid: int) -> bool:
        return any(replica.pid == pid for replica in self._replicas.values())

    def stop_broker(self, name: str) -> int:
        """End one broker, as SIGTERM does; returns its exit code."""
        process = self._processes.pop(name)
        process.terminate()
        return _wait(process)

    def end_replica(self, name: str) -> None:
        """End a process that has taken the place of one that was started here, as SIGTERM does."""
        replica = self._replicas.pop(name)
        replica.stop()
        _wait_for_replica(replica)

    def wait_for_end(self, name: str) -> int:
        """Wait until a broker has ended by itself; returns its exit code."""
        return self._processes[name].wait(STOP_WITHIN_S)

    def wait_until_ready(self, within_s: float = READY_WITHIN_S, until: Callable[[], bool] | None = None) -> None:
        """Wait until every broker listens and all links are up, and all who stand by are there."""
        ends_s = time.monotonic() + within_s
        self._wait_for_standbys(ends_s, until)
        waiting = [entry.name for entry in self.plan.brokers]
        while waiting and not (until is not None and until()):
            self.check_alive()
            waiting = [name for name in waiting if not self._is_ready(name)]
            if waiting and time.monotonic() > ends_s:
                raise NetworkError(f"not ready after {within_s:g} s: {', '.join(waiting)}")
            if waiting:
                time.sleep(LOOK_AGAIN_AFTER_S)
        self._has_begun |= not waiting

    def kill_broker(self, name: str) -> None:
        """End one broker without a word, as kill -9 does, whichever process it is by now."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        if pid == self._processes[name].pid:
            self._processes[name].wait(STOP_WITHIN_S)

    def look_for_replicas(self, statuses: Mapping[str, BrokerStatus | None]) -> list[tuple[str, int]]:
        """Brokers that other processes than before are by now, with their numbers.

        They are ended with this network, so only those count that prove to be its brokers (`process_proof.py`), and
        only once it has begun: whoever was there before is somebody else's, and so is a broker that replaces nobody.
        """
        found: list[tuple[str, int]] = []
        if not self._has_begun:
            return found
        for name, status in statuses.items():
            if status is None or name not in self._processes or status.pid == self.pid(name):
                continue
            if not status.replica and status.epoch == 1:
                continue
            replica = proved(name, str(self.plan.broker(name).listen), status.session)
            if replica is not None:
                self._replicas[name] = replica
                found.append((name, replica.pid))
        return found

    def _wait_for_standbys(self, ends_s: float, until: Callable[[], bool] | None) -> None:
        for address in self._standbys:
            while not (until is not None and until()) and not _listens(address):
                if time.monotonic() > ends_s:
                    raise NetworkError(f"nobody stands by at {address}")
                time.sleep(LOOK_AGAIN_AFTER_S)

    def has_replica(self, name: str) -> bool:
        """Whether another process than the first is a broker, and runs."""
        return name in self._replicas and self._replicas[name].is_running()

    def dead(self) -> list[tuple[str, int]]:
        """Brokers whose first process has ended, with its exit code."""
        return [(name, code) for name, process in self._processes.items() if (code := process.poll()) is not None]

    def check_alive(self) -> None:
        """Raise an error if a broker has died."""
        for name, code in self.dead():
            raise NetworkError(f"broker {name} has ended with exit code {code}")

    def status(self) -> dict[str, BrokerStatus | None]:
        """How every broker is, None for those that do not answer."""
        return run_aside(ask_all(self.plan))

    def stop(self) -> None:
        """End all brokers."""
        if any(process.poll() is not None for process in self._processes.values()):
            self.look_for_replicas(self.status())
        processes = [*self._processes.values(), *self._standbys.values(), *self._former]
        for process in processes:
            process.terminate()
        for replica in self._replicas.values():
            replica.stop()
        for process in processes:
            _wait(process)
        for replica in self._replicas.values():
            _wait_for_replica(replica)
        self._processes.clear()
        self._replicas.clear()
        self._standbys.clear()
        self._former.clear()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def __enter__(self) -> Network:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        brokers = ", ".join(f"{entry.name} at {entry.listen}" for entry in self.plan.brokers[:BROKERS_SHOWN_COUNT])
        more_count = len(self.plan.brokers) - BROKERS_SHOWN_COUNT
        more = f" and {more_count:,} more" if more_count > 0 else ""
        return f"<Network {'running' if self._processes else 'not running'}: {brokers}{more}>"

    def _is_ready(self, name: str) -> bool:
        try:
            who = commander(self.plan.security.operator)
            status = run_aside(ask_status(self.plan.broker(name).listen, caller=who))
        except NotPermittedError:
            raise
        except (OSError, TimeoutError):
            return False
        if not self._has_begun and name in self._processes and status.pid != self._processes[name].pid:
            raise NetworkError(f"broker {name} is another process than the one that was started, {status.pid}")
        return not status.links_missing

    def _plan_file(self) -> str | Path:
        if self._file is not None:
            return self._file
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="trimtab-")
            Path(self._temporary.name, "network.toml").write_text(plan_text(self.plan), encoding="utf-8")
        return Path(self._temporary.name, "network.toml")


async def ask_all(plan: NetworkPlan) -> dict[str, BrokerStatus | None]:
    """How every broker of a network is, None for those that do not answer; raises `NotPermittedError`."""

    who = commander(plan.security.operator)

    async def ask(entry: BrokerEntry) -> BrokerStatus | None:
        """A broker of this host may be reached where it listens and not where others reach it."""
        for address in dict.fromkeys((entry.address, entry.listen)):
            try:
                return await ask_status(address, caller=who)
            except NotPermittedError:
                raise
            except (OSError, TimeoutError):
                continue
        return None

    answers = await asyncio.gather(*(ask(entry) for entry in plan.brokers))
    return {entry.name: answer for entry, answer in zip(plan.brokers, answers, strict=True)}


def plan_text(plan: NetworkPlan) -> str:
    """A network as the text of a network file.

    >>> from trimtab.network.network_file import parse_network
    >>> plan = Network.of(["B1", "B2"], [("B1", "B2")]).plan
    >>> parse_network(plan_text(plan)) == plan
    True
    """
    lines = ["[network]"]
    for key in plan.options.__struct_fields__:
        value = getattr(plan.options, key)
        if key.endswith("covering"):
            value = "on" if value else "off"
        lines.append(f"{key} = {_toml(value)}")
    lines += ["", "[policy]", f"name = {_toml(plan.policy.name)}"]
    for table, settings in plan.policy.settings.items():
        lines += ["", f"[policy.{json.dumps(table)}]", *(f"{key} = {_toml(value)}" for key, value in settings.items())]
    if plan.replication is not None:
        settings = {key: value for key, value in msgspec.to_builtins(plan.replication).items() if value != ()}
        lines += ["", "[replication]", *(f"{key} = {_toml(value)}" for key, value in settings.items())]
    for address in plan.standbys:
        lines += ["", "[[standby]]", f'listen = "{address}"']
    if plan.protection is not None:
        limits = msgspec.to_builtins(plan.protection)
        lines += ["", "[protection]", *(f"{key} = {_toml(value)}" for key, value in limits.items())]
    for name, chosen, usual in (
        ("security", plan.security, SecuritySettings()),
        ("limits", plan.limits, LimitSettings()),
    ):
        if chosen != usual:
            found = {key: value for key, value in msgspec.to_builtins(chosen).items() if value != ()}
            lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in found.items())]
    for entry in plan.brokers:
        lines += ["", "[[broker]]"]
        for key in entry.__struct_fields__:
            value = getattr(entry, key)
            if value is not None:
                lines.append(f"{key} = {_toml(str(value) if isinstance(value, Address) else value)}")
    for link in plan.links:
        lines += ["", "[[link]]", f'between = ["{link.first}", "{link.second}"]']
        if link.via is not None:
            lines.append(f'via = "{link.via}"')
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {_toml(each)}' for key, each in value.items())} }}"
    return json.dumps(value) if isinstance(value, str) else str(value)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _wait(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _wait_for_replica(replica: ProcessIdentity) -> None:
    ends_s = time.monotonic() + STOP_WITHIN_S
    while replica.is_running():
        if time.monotonic() > ends_s:
            replica.end()
            return
        time.sleep(LOOK_AGAIN_AFTER_S)


async def _who_listens(address: Address) -> str:
    """Who has an address, in words."""
    try:
        status = await ask_status(address)
    except (OSError, TimeoutError, ValueError):
        return "another program"
    return f"broker {status.name} (process {status.pid})"


def _listens(address: Address) -> bool:
    try:
        socket.create_connection((address.host, address.port), timeout=1.0).close()
    except OSError:
        return False
    return True
