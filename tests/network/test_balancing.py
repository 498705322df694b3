"""Broker processes that balance their subscribers: clients move on their own, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from trimtab import Client, Filter, Network, Publication
from trimtab.network.admin.local_network import ask_all, free_ports
from trimtab.network.links.address import Address
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import BrokerEntry, LinkEntry, NetworkOptions, NetworkPlan
from trimtab.operations.load.live_load import LoadRun
from trimtab.operations.load.load_report import LoadOptions, LoadReport
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.registry import PolicyChoice
from trimtab.protocol.records import MoveRecord
from trimtab.records.files import RecordFiles, read_records

Result = TypeVar("Result")

QUICK = PadresConfig(
    local_pie_period_s=0.5,
    global_pie_period_s=1.0,
    local_detection_min_interval_s=0.4,
    local_detection_max_interval_s=0.8,
    global_detection_min_interval_s=0.4,
    global_detection_max_interval_s=0.8,
    stabilize_duration_s=1.0,
    stabilize_interval_s=1.0,
    stabilize_change=0.2,
    inert_patience_s=2.0,
    overload_priority_s=2.0,
    press_sample_count=20,
    press_timeout_s=1.0,
    planning_timeout_s=3.0,
    reply_timeout_s=1.0,
    migration_timeout_max_s=10.0,
)
CPU_MHZ = {"B0": 2_000.0, "B1": 20.0, "B2": 60.0, "B3": 100.0}


def run(work: Coroutine[Any, Any, Result], within_s: float = 50.0) -> Result:
    return run_loop(asyncio.wait_for(work, within_s))


def cluster() -> NetworkPlan:
    """A head and three edge-brokers of which the first is the weakest."""
    ports = free_ports(len(CPU_MHZ))
    brokers = [
        BrokerEntry(name, Address("127.0.0.1", port), cpu_mhz=cpu_mhz, bandwidth_mbps=cpu_mhz / 50)
        for (name, cpu_mhz), port in zip(CPU_MHZ.items(), ports, strict=True)
    ]
    links = [LinkEntry("B0", name) for name in ("B1", "B2", "B3")]
    options = NetworkOptions(enforce_capacities=True, meter_window_s=2.0)
    return NetworkPlan(tuple(brokers), tuple(links), options, PolicyChoice.of("padres", padres=QUICK))


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with Network(cluster(), records=tmp_path) as running:
        yield running


def test_balancing_moves_many_subscribers_while_each_gets_every_matching_publication_once_and_in_order(
    network: Network, tmp_path: Path
) -> None:
    options = LoadOptions(
        subscribers_count=80,
        subscribe_at="B1",
        publishers_count=5,
        publish_at="B0",
        rate_per_s=25.0,
        join_per_s=40.0,
        for_s=14.0,
    )

    async def work() -> LoadReport:
        with RecordFiles(tmp_path, "load") as files:
            report = await LoadRun(network.plan, options, files).run()
        statuses = await ask_all(network.plan)
        weakest, head = statuses["B1"], statuses["B0"]
        assert weakest is not None and head is not None
        assert weakest.moved_out_count >= 30
        assert weakest.agents[0].role == "edge-broker of B0"
        assert weakest.agents[0].decision
        assert head.agents[0].role == "cluster-head"
        assert sum(status.moved_in_count for status in statuses.values() if status) >= report.moves_count
        return report

    report = run(work())
    assert report.subscribers_count == 80
    assert abs(report.published_count - 14 * 25) < 15
    assert (report.lost_count, report.duplicated_count, report.reordered_count) == (0, 0, 0)
    assert report.other_violations == []
    assert report.delivered_count >= report.expected_count > 2_000
    assert report.moves_count >= 30
    assert report.clients["B1"] < 40
    network.stop()
    moves = read_records(tmp_path, "moves").to_pylist()
    sessions = read_records(tmp_path, "sessions").to_pylist()
    assert sum(move["outcome"] == "moved" for move in moves) == report.moves_count
    causes = {move["cause"] for move in moves}
    first = sessions[0]
    assert first["initiator"] == "B1" and first["session"] in causes
    assert first["reason"].startswith(("we are overloaded in", "we exceed it by"))
    deliveries = read_records(tmp_path, "deliveries")
    assert deliveries.num_rows == report.delivered_count


def test_a_subscriber_that_comes_to_the_head_is_sent_to_an_edge_broker(network: Network) -> None:
    async def work() -> None:
        publisher = await Client.connect(network.address("B0"), "publisher")
        await publisher.advertise(Filter.parse("a > 0"))
        subscriber = await Client.connect(network.address("B0"), "subscriber")
        moves: list[MoveRecord] = []
        subscriber.on_move = moves.append
        got: list[int] = []
        await subscriber.subscribe(Filter.parse("a > 0"), callback=lambda delivery: got.append(delivery.sequence))
        for number in range(1, 400):
            await publisher.publish(Publication(a=number))
            await asyncio.sleep(0.01)
            if moves and number >= 50:
                break
        await publisher.drain()
        while len(got) < number:
            await asyncio.sleep(0.01)
        assert got == list(range(1, number + 1))
        assert subscriber.broker in ("B1", "B2", "B3")
        assert [msgspec.structs.replace(move, begin_s=0.0, end_s=0.0) for move in moves] == [
            MoveRecord(0.0, 0.0, "subscriber", "B0", subscriber.broker, "B0/redirect/1", "moved", "")
        ]
        assert publisher.broker == "B0"
        await subscriber.close()
        await publisher.close()

    run(work())
