"""A network of broker processes on this machine, for tests, notebooks and `trimtab up`."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from trimtab.balancing.delay.config import DelayConfig
from trimtab.balancing.padres.config import PadresConfig
from trimtab.network.address import Address
from trimtab.network.network_file import BrokerEntry, LinkEntry, NetworkOptions, NetworkPlan, read_network_file
from trimtab.network.status import ask_status
from trimtab.protocol.frames import BrokerStatus
from trimtab.relocation.config import RelocationConfig

READY_WITHIN_S: Final = 20.0
STOP_WITHIN_S: Final = 10.0
LOOK_AGAIN_AFTER_S: Final = 0.03


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
        self._options = ["--stop-with-parent", *(["--quiet"] if quiet else [])]
        if records is not None:
            self._options += ["--records", str(records)]
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @classmethod
    def from_file(cls, path: str | Path) -> Network:
        """The network that a file describes."""
        return cls(read_network_file(path), path)

    @classmethod
    def of(
        cls, brokers: Sequence[str], links: Iterable[tuple[str, str]] = (), options: NetworkOptions | None = None
    ) -> Network:
        """Brokers on free ports of this machine."""
        entries = zip(brokers, free_ports(len(brokers)), strict=True)
        plan = NetworkPlan(
            tuple(BrokerEntry(name, Address("127.0.0.1", port)) for name, port in entries),
            tuple(LinkEntry(first, second) for first, second in links),
            options or NetworkOptions(),
        )
        return cls(plan)

    def address(self, broker: str) -> str:
        """Where a broker listens."""
        return str(self.plan.broker(broker).listen)

    def pid(self, broker: str) -> int:
        """The process of a broker."""
        return self._processes[broker].pid

    def start(self, until: Callable[[], bool] | None = None) -> None:
        """Start every broker and wait until all links are up, or until there is no more need."""
        try:
            for entry in self.plan.brokers:
                self.start_broker(entry.name)
            self.wait_until_ready(until=until)
        except BaseException:
            self.stop()
            raise

    def start_broker(self, name: str) -> None:
        """Start one broker, without waiting for it."""
        command = [sys.executable, "-m", "trimtab", "broker", name, str(self._plan_file()), *self._options]
        self._processes[name] = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            start_new_session=True,
        )

    def stop_broker(self, name: str) -> int:
        """End one broker, as SIGTERM does; returns its exit code."""
        process = self._processes.pop(name)
        process.terminate()
        return _wait(process)

    def wait_until_ready(self, within_s: float = READY_WITHIN_S, until: Callable[[], bool] | None = None) -> None:
        """Wait until every broker listens and all links are up."""
        ends_s = time.monotonic() + within_s
        waiting = [entry.name for entry in self.plan.brokers]
        while waiting and not (until is not None and until()):
            self.check_alive()
            waiting = [name for name in waiting if not self._is_ready(name)]
            if waiting and time.monotonic() > ends_s:
                raise NetworkError(f"not ready after {within_s:g} s: {', '.join(waiting)}")
            if waiting:
                time.sleep(LOOK_AGAIN_AFTER_S)

    def dead(self) -> list[tuple[str, int]]:
        """Brokers whose process has ended, with its exit code."""
        return [(name, code) for name, process in self._processes.items() if (code := process.poll()) is not None]

    def check_alive(self) -> None:
        """Raise an error if a broker has died."""
        for name, code in self.dead():
            raise NetworkError(f"broker {name} has ended with exit code {code}")

    def status(self) -> dict[str, BrokerStatus | None]:
        """How every broker is, None for those that do not answer."""
        return asyncio.run(ask_all(self.plan))

    def stop(self) -> None:
        """End all brokers."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            _wait(process)
        self._processes.clear()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def __enter__(self) -> Network:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _is_ready(self, name: str) -> bool:
        try:
            return not asyncio.run(ask_status(self.plan.broker(name).listen)).links_missing
        except (OSError, TimeoutError):
            return False

    def _plan_file(self) -> str | Path:
        if self._file is not None:
            return self._file
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="trimtab-")
            Path(self._temporary.name, "network.toml").write_text(plan_text(self.plan), encoding="utf-8")
        return Path(self._temporary.name, "network.toml")


async def ask_all(plan: NetworkPlan) -> dict[str, BrokerStatus | None]:
    """How every broker of a network is, None for those that do not answer."""

    async def ask(entry: BrokerEntry) -> BrokerStatus | None:
        try:
            return await ask_status(entry.listen)
        except (OSError, TimeoutError):
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
    if plan.padres != PadresConfig():
        lines += ["", "[padres]", *(f"{key} = {value}" for key, value in msgspec.structs.asdict(plan.padres).items())]
    if plan.delay != DelayConfig():
        chosen = msgspec.to_builtins(plan.delay)
        lines += ["", "[delay]", *(f"{key} = {_toml(value)}" for key, value in chosen.items())]
    if plan.relocation != RelocationConfig():
        settings = msgspec.to_builtins(plan.relocation)
        lines += ["", "[relocation]", *(f"{key} = {_toml(value)}" for key, value in settings.items())]
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
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {_toml(each)}' for key, each in value.items())} }}"
    return f'"{value}"' if isinstance(value, str) else str(value)


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
