"""Brokers that listen at one address and are reached at another, as behind address translation or in a container."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from tests.network.link_proxy import LinkProxy
from trimtab import Client, Network
from trimtab.cli.main import app
from trimtab.network.admin.local_network import plan_text
from trimtab.network.links.address import Address
from trimtab.network.loops import run
from trimtab.network.network_file import NetworkFileError, parse_network

WITHIN_S = 30.0


def test_brokers_call_each_other_and_send_clients_to_where_they_are_reached(tmp_path: Path) -> None:
    plan = Network.of(["B1", "B2"], [("B1", "B2")]).plan
    proxies = {entry.name: LinkProxy(entry.listen.port) for entry in plan.brokers}
    brokers = tuple(replace(entry, advertise=Address("127.0.0.1", proxies[entry.name].port)) for entry in plan.brokers)
    plan = replace(plan, brokers=brokers)
    assert parse_network(plan_text(plan)) == plan
    file = tmp_path / "network.toml"
    file.write_text(plan_text(plan), encoding="utf-8")

    async def work(network: Network) -> None:
        async with (
            asyncio.timeout(WITHIN_S),
            await Client.connect(network.address("B1"), "alice") as client,
            await Client.connect(network.address("B2")) as publisher,
        ):
            subscription = await client.subscribe("class = 'STOCK'")
            moved = await asyncio.to_thread(CliRunner().invoke, app, ["move", "alice", "B2", str(file)])
            assert (moved.exit_code, moved.output) == (0, "alice has moved from B1 to B2\n")
            assert str(client._line.address) == network.address("B2")
            await publisher.publish({"class": "STOCK", "volume": 5})
            assert (await anext(subscription)).publication["volume"] == 5

    with Network(plan) as network:
        assert network.address("B2") == f"127.0.0.1:{proxies['B2'].port}"
        assert proxies["B2"].passed_bytes > 0  # B1 has called it there
        run(work(network))
    for proxy in proxies.values():
        proxy.close()


def test_two_hosts_may_listen_alike_and_nobody_is_reached_at_the_same_address() -> None:
    def network(first: str, second: str) -> str:
        brokers = [
            f'[[broker]]\nname = "{name}"\nlisten = "0.0.0.0:7001"\nadvertise = "{address}"'
            for name, address in (("B1", first), ("B2", second))
        ]
        return "\n".join([*brokers, "[security]", "insecure = true"])

    parse_network(network("b1.example.org:7001", "b2.example.org:7001"))
    with pytest.raises(NetworkFileError, match=r"8: B1 is reached at b1.example.org:7001 already"):
        parse_network(network("b1.example.org:7001", "b1.example.org:7001"))
    with pytest.raises(NetworkFileError, match=r"advertise: 'here' is not an address"):
        parse_network(network("here", "b2.example.org:7001"))
