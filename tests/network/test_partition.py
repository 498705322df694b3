"""Two hosts that cannot reach each other: one side may replace, the other neither replaces nor acknowledges."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.network.running import wait_for
from tests.network.two_hosts import Host, TwoHosts, two_hosts
from trimtab import Client, Filter
from trimtab.network.admin.status import ask_status
from trimtab.network.client.subscription import Delivery
from trimtab.network.links.address import Address
from trimtab.protocol.frames import BrokerStatus

WITHIN_S = 40.0
PARTITION_S = 6.0

SETTINGS = """
[network]
acknowledges = "{level}"
client_lease_s = 60

[replication]
provisioner = "process"
unreachable = "replace"
look_every_s = 0.1
suspect_after_s = 0.5
crash_after_s = 2
hang_after_s = 2
ask_again_s = 1
"""


class Line:
    """Brokers in a row, the first of them on the left host and the others on the right one."""

    def __init__(self, hosts: TwoHosts, folder: Path, sides: tuple[int, int], settings: str) -> None:
        left, right = sides
        self.hosts = hosts
        self.names = [f"B{number}" for number in range(1, left + right + 1)]
        self.host_of = {name: hosts.left if index < left else hosts.right for index, name in enumerate(self.names)}
        text = settings + "\n[security]\ninsecure = true\n"
        for number, name in enumerate(self.names, 1):
            text += f'[[broker]]\nname = "{name}"\nlisten = "{self.host_of[name].address}:{7000 + number}"\n'
        for one, other in zip(self.names, self.names[1:], strict=False):
            text += f'[[link]]\nbetween = ["{one}", "{other}"]\n'
        self.file = folder / "network.toml"
        self.file.write_text(text, encoding="utf-8")
        self.processes = {
            name: host.start("broker", name, str(self.file), "--quiet") for name, host in self.host_of.items()
        }

    def address(self, name: str) -> str:
        return f"{self.host_of[name].address}:{7000 + self.names.index(name) + 1}"

    def status(self, name: str, host: Host | None = None, address: str = "") -> BrokerStatus | None:
        host = host or self.host_of[name]
        try:
            return host.run(ask_status(Address.parse(address or self.address(name)), 2.0))
        except (OSError, TimeoutError):
            return None

    def is_ready(self) -> bool:
        found = [self.status(name) for name in self.names]
        return all(each is not None and not each.links_missing and not each.fenced for each in found)

    def fenced(self, name: str) -> str:
        status = self.status(name)
        return "" if status is None else status.fenced


class Subscriber:
    """A client that keeps the numbers that it gets, by publisher."""

    def __init__(self, host: Host, address: str, name: str) -> None:
        self.numbers: dict[str, list[int]] = {}
        self.host = host

        async def begin() -> Client:
            client = await Client.connect(address, name)
            await client.subscribe(Filter.parse("a > 0"), callback=self._take)
            return client

        self.client = host.run(begin())

    def _take(self, delivery: Delivery) -> None:
        self.numbers.setdefault(delivery.publisher, []).append(int(str(delivery.publication["a"])))

    def close(self) -> None:
        self.host.run(self.client.close())


class Publisher:
    """A client that publishes numbers."""

    def __init__(self, host: Host, address: str, name: str) -> None:
        self.host, self.name, self.said_count = host, name, 0

        async def begin() -> Client:
            client = await Client.connect(address, name)
            await client.advertise(Filter.parse("a > 0"))
            return client

        self.client = host.run(begin())

    def say(self, count: int) -> None:
        async def work() -> None:
            for _ in range(count):
                self.said_count += 1
                await self.client.publish({"a": self.said_count})

        self.host.run(work())

    def is_acknowledged(self, within_s: float) -> bool:
        """Whether all is acknowledged by then."""
        try:
            self.host.run(self.client.drain(), within_s)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.host.run(self.client.close())


def trimtab(host: Host, *arguments: str) -> int:
    """Run a command on a host; returns its exit code."""
    return host.start(*arguments).wait(WITHIN_S)


def incarnations(hosts: TwoHosts, name: str) -> int:
    """How many processes are a broker."""
    count = 0
    for host in (hosts.left, hosts.right):
        for pid in host.pids():
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            count += words[2:5] == [b"trimtab", b"broker", name.encode()]
    return count


@pytest.mark.parametrize("level", ["safe", "received"])
def test_the_smaller_side_neither_replaces_nor_acknowledges_and_nothing_is_lost(tmp_path: Path, level: str) -> None:
    with two_hosts(tmp_path) as hosts, ExitStack() as stack:
        line = Line(hosts, tmp_path, (3, 2), SETTINGS.format(level=level))
        wait_for(line.is_ready, "ready", 3 * WITHIN_S)
        subscribers = [Subscriber(line.host_of[name], line.address(name), f"S{name}") for name in ("B1", "B5")]
        publishers = [Publisher(line.host_of[name], line.address(name), f"P{name}") for name in ("B1", "B4", "B5")]
        for each in publishers:
            stack.callback(each.close)
        for subscriber in subscribers:
            stack.callback(subscriber.close)
        for publisher in publishers:
            publisher.say(20)
            assert publisher.is_acknowledged(WITHIN_S)

        hosts.cut()
        cut_s = time.monotonic()
        wait_for(lambda: bool(line.fenced("B4") and line.fenced("B5")), "fenced", WITHIN_S)
        assert "it hears 2 of 5 brokers and stand-bys (itself, B5), and needs 3" in line.fenced("B4")
        for publisher in publishers:
            publisher.say(5)
        assert not any(publisher.is_acknowledged(0.5) for publisher in publishers[1:])
        assert publishers[0].is_acknowledged(WITHIN_S)
        time.sleep(max(0.0, cut_s + PARTITION_S - time.monotonic()))
        wait_for(lambda: incarnations(hosts, "B4") == 2, "replaced by the larger side")
        assert incarnations(hosts, "B3") == 1
        assert line.processes["B4"].poll() is None  # nobody could tell it
        assert not any(publisher.is_acknowledged(0.5) for publisher in publishers[1:])

        hosts.heal()
        wait_for(lambda: line.processes["B4"].poll() is not None, "ended")
        assert line.processes["B4"].poll() == 1
        for publisher in publishers:
            publisher.say(5)
            assert publisher.is_acknowledged(WITHIN_S), publisher.name
        if level == "safe":
            wanted = {publisher.name: list(range(1, 31)) for publisher in publishers}
            for subscriber in subscribers:
                wait_for(lambda: sum(map(len, subscriber.numbers.values())) >= 90, "delivered")  # noqa: B023
                assert subscriber.numbers == wanted
        for name in line.names:
            assert incarnations(hosts, name) == 1, name
        wait_for(lambda: not any(line.fenced(name) for name in line.names), "not fenced any more")
    assert "was replaced already by another process" in (tmp_path / "right.log").read_text(encoding="utf-8")


def test_with_wait_nobody_is_fenced_and_the_operators_word_replaces(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as hosts, ExitStack() as stack:
        line = Line(hosts, tmp_path, (1, 1), SETTINGS.format(level="safe").replace('unreachable = "replace"', ""))
        wait_for(line.is_ready, "ready", 3 * WITHIN_S)
        publisher = Publisher(hosts.left, line.address("B1"), "P")
        stack.callback(publisher.close)
        subscriber = Subscriber(hosts.left, line.address("B1"), "S")
        stack.callback(subscriber.close)

        hosts.cut()
        publisher.say(5)
        assert publisher.is_acknowledged(WITHIN_S)  # by a broker that hears nobody

        def outcome() -> str:
            status = line.status("B1")
            return "" if status is None or not status.failures else status.failures[-1].outcome

        wait_for(lambda: outcome().startswith("nobody can say whether B2 runs"), "noticed")
        assert not line.fenced("B1")
        assert not line.fenced("B2")
        assert incarnations(hosts, "B2") == 1
        assert trimtab(hosts.left, "replace", "B2", str(line.file)) == 0
        assert incarnations(hosts, "B2") == 2

        hosts.heal()
        publisher.say(5)
        assert publisher.is_acknowledged(WITHIN_S)
        wait_for(lambda: subscriber.numbers == {"P": list(range(1, 11))}, "delivered")


def test_a_process_that_stands_by_votes_and_takes_over(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as hosts, ExitStack() as stack:
        standby = f"{hosts.left.address}:7100"
        settings = SETTINGS.format(level="safe").replace('"process"', '"standby"')
        line = Line(hosts, tmp_path, (1, 1), f'{settings}[[standby]]\nlisten = "{standby}"\n')
        hosts.left.start("standby", str(line.file), "--listen", standby, "--quiet")
        wait_for(line.is_ready, "ready", 3 * WITHIN_S)
        publisher = Publisher(hosts.left, line.address("B1"), "P")
        stack.callback(publisher.close)
        subscriber = Subscriber(hosts.right, line.address("B2"), "S")
        stack.callback(subscriber.close)
        publisher.say(5)
        assert publisher.is_acknowledged(WITHIN_S)

        hosts.cut()
        wait_for(lambda: bool(line.fenced("B2")), "fenced")
        wait_for(lambda: (found := line.status("B2", hosts.left, standby)) is not None and found.epoch == 2, "replaced")
        publisher.say(5)

        hosts.heal()
        wait_for(lambda: line.processes["B2"].poll() == 1, "ended")
        publisher.say(5)
        assert publisher.is_acknowledged(WITHIN_S)
        wait_for(lambda: subscriber.numbers == {"P": list(range(1, 16))}, "delivered")
