"""Seven brokers in a tree, started with `trimtab up`; publishers and subscribers are processes of their own.

One link is cut and healed while publications flow. The subscribers count: all once, and in publisher order.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.link_proxy import LinkProxy
from trimtab.network.admin.local_network import free_ports, plan_text
from trimtab.network.links.address import Address
from trimtab.network.network_file import BrokerEntry, LinkEntry, NetworkPlan

PUBLICATIONS_COUNT = int(os.environ.get("TRIMTAB_SEVEN_PUBLICATIONS", "4000"))
"""Of two publishers together; the full experiment has 50,000."""

TREE = (("B1", "B2"), ("B1", "B3"), ("B2", "B4"), ("B2", "B5"), ("B3", "B6"), ("B3", "B7"))
WITHIN_S = 30 + PUBLICATIONS_COUNT / 500


def trimtab(
    *arguments: str, stdin: int | None = None, stdout: int | None = None, stderr: int | None = None
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trimtab", *arguments]
    return subprocess.Popen(command, text=True, stdin=stdin, stdout=stdout, stderr=stderr)


class Seven:
    """A running network and the proxy in its middle."""

    def __init__(self, plan: NetworkPlan, file: Path, proxy: LinkProxy) -> None:
        self.plan, self.file, self.proxy = plan, file, proxy

    def address(self, broker: str) -> str:
        return str(self.plan.broker(broker).listen)


@pytest.fixture
def seven(tmp_path: Path) -> Iterator[Seven]:
    ports = dict(zip([f"B{n}" for n in range(1, 8)], free_ports(7), strict=True))
    proxy = LinkProxy(ports["B2"])
    links = [LinkEntry(*ends, via=Address("127.0.0.1", proxy.port) if ends == ("B1", "B2") else None) for ends in TREE]
    plan = NetworkPlan(
        tuple(BrokerEntry(name, Address("127.0.0.1", port)) for name, port in ports.items()), tuple(links)
    )
    file = tmp_path / "seven.toml"
    file.write_text(plan_text(plan), encoding="utf-8")
    network = trimtab("up", str(file), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert network.stdout is not None
    assert network.stdout.readline() == "ready\n"
    yield Seven(plan, file, proxy)
    network.send_signal(signal.SIGINT)
    assert network.wait(15) == 0
    network.stdout.close()
    proxy.close()


def subscriber(address: str, filter: str, count: int) -> subprocess.Popen[str]:
    process = trimtab(
        "sub", "--broker", address, filter, "--count", str(count), "--for", str(WITHIN_S), "--json",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    return process


def test_all_is_delivered_once_and_in_order_while_a_link_is_cut_and_healed(seven: Seven) -> None:
    each_count = PUBLICATIONS_COUNT // 2
    subscribers = {
        "all at B6": subscriber(seven.address("B6"), "n >= 0", 2 * each_count),
        "half at B7": subscriber(seven.address("B7"), f"n >= {each_count // 2}", each_count),
        "all at B4": subscriber(seven.address("B4"), "class = 'LEFT' OR class = 'RIGHT'", 2 * each_count),
    }
    for process in subscribers.values():
        assert process.stderr is not None
        assert process.stderr.readline() == "subscribed\n"
    publishers = [
        trimtab("pub", "--broker", seven.address(broker), "-", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for broker in ("B5", "B7")
    ]
    for process, name in zip(publishers, ("LEFT", "RIGHT"), strict=True):
        threading.Thread(target=_feed, args=(process, name, each_count), daemon=True).start()
    cuts = threading.Thread(target=_cut_and_heal, args=(seven.proxy, publishers))
    cuts.start()
    received = {name: process.communicate(timeout=WITHIN_S)[0] for name, process in subscribers.items()}
    cuts.join()
    assert [process.wait(10) for process in (*publishers, *subscribers.values())] == [0] * 5
    for process in publishers:
        assert process.stderr is not None
        process.stderr.close()
    assert seven.proxy.cut_count >= 2
    everything, half = list(range(each_count)), list(range(each_count // 2, each_count))
    for name, text in received.items():
        numbers: dict[str, list[int]] = {"LEFT": [], "RIGHT": []}
        for line in text.splitlines():
            publication = json.loads(line)["publication"]
            numbers[publication["class"]].append(publication["n"])
        expected = half if name == "half at B7" else everything
        assert numbers == {"LEFT": expected, "RIGHT": expected}, name


def _feed(process: subprocess.Popen[str], name: str, count: int) -> None:
    assert process.stdin is not None
    for number in range(count):
        process.stdin.write(f"[class,'{name}'],[n,{number}]\n")
        if number % 50 == 0:
            process.stdin.flush()
            time.sleep(0.02)
    process.stdin.close()


def _cut_and_heal(proxy: LinkProxy, publishers: list[subprocess.Popen[str]]) -> None:
    while any(process.poll() is None for process in publishers):
        time.sleep(0.4)
        proxy.cut()
        time.sleep(0.3)
        proxy.heal()
