"""Disks of broker processes: a damaged log, and one that has reached its quota."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from typer.testing import CliRunner

from tests.network.running import numbers_from
from trimtab import Client, Filter, GapNotice, Network
from trimtab.broker.log.log_format import scan
from trimtab.cli.main import app
from trimtab.network.admin.local_network import plan_text
from trimtab.network.admin.status import ask_status
from trimtab.network.links.address import Address
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import NetworkOptions
from trimtab.network.server.publication_log import log_files

WITHIN_S = 60.0


def damage_a_publication(folder: Path, place: int) -> None:
    """Flip one bit in the middle of one of the publications in a log."""
    [path] = log_files(folder)
    data = bytearray(path.read_bytes())
    offset, record = [each for each in scan(bytes(data)).records if each[1][:1] == b"P"][place]
    data[offset + 16 + len(record) // 2] ^= 4
    path.write_bytes(data)


def test_a_flipped_bit_in_the_log_costs_one_publication_and_is_in_the_status(tmp_path: Path) -> None:
    options = NetworkOptions(acknowledges="durable", disk=str(tmp_path))
    with Network.of(["B1", "B2"], [("B1", "B2")], options) as network:
        notices: list[GapNotice] = []

        async def work() -> list[int]:
            async with numbers_from(network, "B1", "B2") as numbers:
                os.kill(network.pid("B2"), signal.SIGSTOP)  # from here on nothing reaches the subscriber
                await numbers.publish(range(200))
                await numbers.publisher.drain()
                assert numbers.got == []
                numbers.subscriber.on_gap = notices.append
                for broker in ("B1", "B2"):
                    network.kill_broker(broker)
                damage_a_publication(tmp_path / "B1", 77)
                assert CliRunner().invoke(app, ["log", "verify", str(tmp_path)]).exit_code == 1
                for broker in ("B1", "B2"):
                    network.start_broker(broker)
                await numbers.publish([200])
                await numbers.arrived(200)
                await asyncio.sleep(0.3)  # what comes twice would come now
            return numbers.got

        assert run_loop(asyncio.wait_for(work(), WITHIN_S)) == [*range(77), *range(78, 201)]
        named = [(each.publisher, each.first, each.last) for each in notices if each.publisher]
        assert named == [("P", 78, 78)]  # the first publication, of n = 0, has the number 1
        assert {each.reason for each in notices} == {"1 damaged places on the disk of B1"}
        status = network.status()["B1"]
        assert status is not None
        [text] = status.disk_damage
        [kept] = (tmp_path / "B1").glob("*.damaged")
        assert text.startswith(str(tmp_path / "B1" / kept.name.removesuffix(".damaged")) + ": damage at byte ")
        assert text.endswith(f"the file is kept as {kept.name}")
        assert status.disk_problem == ""
        file = tmp_path / "network.toml"
        file.write_text(plan_text(network.plan), encoding="utf-8")
        shown = CliRunner().invoke(app, ["status", str(file)])
        shown_text = "".join(each for each in shown.output if each.isalnum())  # lines may end anywhere in a word
        assert (shown.exit_code, "damageatbyte" in shown_text) == (0, True)
        assert CliRunner().invoke(app, ["log", "verify", str(tmp_path)]).exit_code == 0


def test_publishers_wait_at_the_quota_until_something_is_forgotten(tmp_path: Path) -> None:
    options = NetworkOptions(acknowledges="durable", disk=str(tmp_path), disk_max_mb=1)
    count = 3000
    with Network.of(["B1", "B2"], [("B1", "B2")], options) as network:
        address = Address.parse(network.address("B1"))

        async def work() -> list[int]:
            numbers: list[int] = []
            publisher = await Client.connect(network.address("B1"), "P")
            subscriber = await Client.connect(network.address("B2"), "S")
            await publisher.advertise(Filter.parse("n >= 0 AND text IS NOT NULL"))
            await subscriber.subscribe(
                Filter.parse("n >= 0"), callback=lambda each: numbers.append(int(str(each.publication["n"])))
            )
            os.kill(network.pid("B2"), signal.SIGSTOP)

            async def publish_all() -> None:
                for number in range(count):
                    await publisher.publish({"n": number, "text": "x" * 1000})
                await publisher.drain()

            publishing = asyncio.create_task(publish_all())
            while not (await ask_status(address)).disk_problem:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)
            assert not publishing.done()
            size_bytes = sum(path.stat().st_size for path in log_files(tmp_path / "B1"))
            assert 1_000_000 <= size_bytes < 2_000_000
            os.kill(network.pid("B2"), signal.SIGCONT)
            await publishing
            while len(numbers) < count:
                await asyncio.sleep(0.02)
            while (await ask_status(address)).disk_problem:
                await asyncio.sleep(0.05)
            for client in (publisher, subscriber):
                await client.close()
            return numbers

        try:
            assert run_loop(asyncio.wait_for(work(), WITHIN_S)) == list(range(count))
        finally:
            os.kill(network.pid("B2"), signal.SIGCONT)
