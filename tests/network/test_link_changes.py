"""Links of a running network are added and removed, and routes follow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trimtab import Client, Filter, Network
from trimtab.cli.main import app
from trimtab.network.admin.local_network import free_ports, plan_text
from trimtab.network.loops import run as run_loop

WITHIN_S = 20.0


def link(change: str, first: str, second: str, file: Path) -> Result:
    return CliRunner().invoke(app, ["link", change, first, second, str(file)])


async def received(network: Network, near: str, far: str, value: int) -> bool:
    """Whether a publication at one broker reaches a subscriber at another."""
    async with (
        await Client.connect(network.address(near)) as publisher,
        await Client.connect(network.address(far)) as subscriber,
    ):
        await publisher.advertise(Filter.parse("a > 0"))
        subscription = await subscriber.subscribe(Filter.parse("a > 0"))
        await publisher.publish({"a": value})
        try:
            async with asyncio.timeout(2.0):
                return (await anext(subscription)).publication["a"] == value
        except TimeoutError:
            return False


def reaches(network: Network, near: str, far: str, value: int) -> bool:
    return run_loop(asyncio.wait_for(received(network, near, far, value), WITHIN_S))


def test_links_come_and_go_while_the_network_runs(tmp_path: Path) -> None:
    with Network.of(["B1", "B2", "B3"], [("B1", "B2")]) as network:
        file = tmp_path / "network.toml"
        file.write_text(plan_text(network.plan), encoding="utf-8")
        assert not reaches(network, "B1", "B3", 1)

        assert link("add", "B3", "B2", file).exit_code == 0
        assert reaches(network, "B1", "B3", 2)

        closing = link("add", "B1", "B3", file)
        assert closing.exit_code == 1
        assert closing.stderr == "a link between B1 and B3 would close a cycle: B3 is reached through B2\n"
        again = link("add", "B1", "B2", file)
        assert (again.exit_code, again.stderr) == (1, "B1 has a link to B2 already\n")

        assert link("remove", "B2", "B1", file).exit_code == 0
        assert not reaches(network, "B1", "B3", 3)
        assert network.status()["B1"].links_missing == ()  # type: ignore[union-attr]

        assert link("add", "B3", "B1", file).exit_code == 0
        assert reaches(network, "B1", "B2", 4)
        gone = link("remove", "B1", "B2", file)
        assert (gone.exit_code, gone.stderr) == (1, "B1 has no link to B2\n")


def test_a_broker_that_does_not_run_cannot_be_linked(tmp_path: Path) -> None:
    with Network.of(["B1"]) as network:
        file = tmp_path / "network.toml"
        port = free_ports(1)[0]
        other = f'\n[[broker]]\nname = "B9"\nlisten = "127.0.0.1:{port}"\n'
        file.write_text(plan_text(network.plan) + other, encoding="utf-8")
        result = link("add", "B1", "B9", file)
        assert (result.exit_code, result.stderr) == (1, f"B9 cannot be reached at 127.0.0.1:{port}\n")
        assert network.status()["B1"].links_missing == ()  # type: ignore[union-attr]
        result = link("add", "B9", "B1", file)
        assert (result.exit_code, result.stderr) == (1, f"broker B9 does not answer at 127.0.0.1:{port}\n")


@pytest.mark.parametrize("change", ["add", "remove"])
def test_an_unknown_broker_is_named(tmp_path: Path, change: str) -> None:
    file = tmp_path / "network.toml"
    file.write_text('[[broker]]\nname = "B1"\nlisten = "127.0.0.1:7001"\n', encoding="utf-8")
    result = link(change, "B1", "B7", file)
    assert (result.exit_code, result.stderr) == (2, f"{file}: no broker is named B7; there are B1\n")
