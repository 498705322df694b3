"""The command plan: what it shows of a running network, and what it says about wrong arguments and silent brokers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab import Network
from trimtab.cli.main import app
from trimtab.language import Filter, Publication
from trimtab.network.admin.local_network import plan_text
from trimtab.network.client.client import Client

WITHIN_S = 120.0
HOTSPOT = Path(__file__).parents[3] / "examples" / "hotspot.toml"


def trimtab(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


@contextmanager
def traffic(address: str) -> Iterator[None]:
    """A publisher and a subscriber at a broker, at work in a thread of their own."""
    stop, begun = threading.Event(), threading.Event()

    async def work() -> None:
        async with asyncio.timeout(WITHIN_S):
            publisher = await Client.connect(address, "P")
            subscriber = await Client.connect(address, "S")
            await publisher.advertise(Filter.parse("[class,eq,'STOCK'],[number,isPresent,0]"))
            await subscriber.subscribe(Filter.parse("class = 'STOCK'"), callback=lambda delivery: begun.set())
            number = 0
            while not stop.is_set():
                await publisher.publish(Publication({"class": "STOCK", "number": number}))
                number += 1
                await asyncio.sleep(0.02)
            await publisher.close()
            await subscriber.close()

    working = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    working.start()
    try:
        assert begun.wait(WITHIN_S)
        yield
    finally:
        stop.set()
        working.join(WITHIN_S)


def test_a_running_network_is_planned_kept_and_compared(tmp_path: Path) -> None:
    kept = tmp_path / "plan"
    with Network.of(["B1", "B2"], [("B1", "B2")]) as network, traffic(network.address("B1")):
        file = str(written(tmp_path, network))
        options = ("--minutes", "0.5", "--sample-s", "1", "--out", str(kept))
        code, output = trimtab("plan", file, "--policy", "padres", "--set", "traffic=2", *options, "--json")
        plan = json.loads(output)
        shown = trimtab("plan", file, "--minutes", "0.5", "--sample-s", "1", "--set", "broker.B1=gone")
        again = trimtab("plan", file, "--from", str(kept), "--minutes", "0.5", "--runs", "2")
        comparison = trimtab("plan", file, "--against", str(kept), "--sample-s", "0.5")
        compared = trimtab("plan", file, "--against", str(kept), "--sample-s", "0.5", "--json")
    assert code == 0
    assert (plan["policy"], plan["policy_now"], plan["clients_count"]) == ("padres", "none", 2)
    assert plan["changes"] == ["traffic of all publishers times 2"]
    assert plan["planned"]["deliveries_count"] == pytest.approx(2 * plan["as_it_is"]["deliveries_count"], abs=5)
    assert {"plan.json", "snapshot.json", "load", "deliveries"} <= {each.name for each in kept.iterdir()}
    assert shown[0] == 0
    for text in (
        "2 clients with 1 subscriptions",
        "B1 is gone; its 2 clients join B2",
        "as planned",
        "Risk: ",
        "Not known: ",
    ):
        assert text in shown[1]
    assert again[0] == 0 and "over 2 seeds: lowest to highest" in again[1]
    assert comparison[0] == 0 and "mean error" in comparison[1] and "Moves: 0 predicted, 0 observed" in comparison[1]
    assert compared[0] == 0 and set(json.loads(compared[1])["brokers"]) == {"B1", "B2"}


def test_a_network_that_does_not_run_is_told_broker_by_broker(tmp_path: Path) -> None:
    file = written(tmp_path, Network.of(["B1", "B2"], [("B1", "B2")]))  # never started
    code, output = trimtab("plan", str(file), "--sample-s", "0.2")
    assert code == 1
    assert output.startswith("does not answer: B1 at 127.0.0.1:") and "; B2 at 127.0.0.1:" in output


def test_one_broker_that_is_down_is_named_and_may_be_said_to_be_gone(tmp_path: Path) -> None:
    with Network.of(["B1", "B2"], [("B1", "B2")]) as network, traffic(network.address("B1")):
        file = written(tmp_path, network)
        network.stop_broker("B2")
        refused = trimtab("plan", str(file), "--sample-s", "0.2")
        shown = trimtab("plan", str(file), "--sample-s", "1", "--minutes", "0.5", "--set", "broker.B2=gone")
    assert refused[0] == 1
    assert refused[1].startswith("does not answer: B2 at ") and "B1 at" not in refused[1]
    assert shown[0] == 0
    assert "Not known: broker B2 does not answer: its clients are not in the plan." in shown[1]


def test_a_network_without_traffic_is_not_planned(tmp_path: Path) -> None:
    with Network.of(["B1"]) as network:
        code, output = trimtab("plan", str(written(tmp_path, network)), "--sample-s", "0.1")
    assert code == 1
    assert output == "nobody published anything during the sample of 0.1 s: there is no traffic to continue\n"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--policy", "magic"], "--policy: no policy is called magic; expected one of none, naive"),
        (["--set", "broker.B9=gone"], "--set broker.B9=gone: no broker is named B9; there are B0, B1, B2, B3, B4"),
        (["--set", "traffic"], "--set traffic: expected broker.NAME=gone, "),
        (["--minutes", "0"], "--minutes: expected a number above 0"),
        (["--sample-s", "-1"], "--sample-s: expected a number above 0"),
        (["--sample-s", "301"], "--sample-s: brokers note what is published for 300 s at most"),
        (["--against", "/nowhere"], "/nowhere/plan.json: cannot be read: No such file or directory"),
        (["--from", "/nowhere"], "/nowhere/snapshot.json: cannot be read: No such file or directory"),
        (["--against", "/nowhere", "--set", "traffic=2"], "--against compares a plan that was made"),
    ],
)
def test_wrong_options_are_refused_before_anybody_is_asked(options: list[str], reason: str) -> None:
    code, output = trimtab("plan", str(HOTSPOT), *options)
    assert code == 2
    assert output.startswith(reason)


def written(folder: Path, network: Network) -> Path:
    file = folder / "net.toml"
    file.write_text(plan_text(network.plan), encoding="utf-8")
    return file
