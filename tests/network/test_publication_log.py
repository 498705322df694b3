"""What is durable: the log of a broker's publications, and a network of which all brokers die at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from trimtab import Client, Filter, Network
from trimtab.network import publication_log
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import NetworkOptions
from trimtab.network.publication_log import PublicationLog, PublicationLogError
from trimtab.network.replication_settings import ReplicationSettings
from trimtab.protocol.effects import Append, Forget
from trimtab.protocol.messages import Publish

WITHIN_S = 60.0


def publication(sequence: int, publisher: str = "p") -> Publish:
    return Publish(publisher=publisher, sequence=sequence, values={"n": sequence}, origin_s=1.5, session="s1")


def with_log(folder: Path, work: Callable[[PublicationLog, list[int]], Awaitable[None]]) -> list[Publish]:
    """Let a log do something; what it held at its beginning."""

    async def run() -> list[Publish]:
        told: list[int] = []
        log = PublicationLog(folder, told.append, pytest.fail)
        left = log.open()
        await work(log, told)
        log.close()
        return list(left)

    return run_loop(asyncio.wait_for(run(), WITHIN_S))


async def nothing(log: PublicationLog, told: list[int]) -> None:
    pass


async def until_told(told: list[int], number: int) -> None:
    while not told or told[-1] < number:
        await asyncio.sleep(0.001)


def test_what_is_stored_is_found_again_until_it_has_ended(tmp_path: Path) -> None:
    async def store(log: PublicationLog, told: list[int]) -> None:
        for number in range(1, 6):
            log.append(Append(number, publication(number)))
        log.append(Append(6, publication(1, "q")))
        await until_told(told, 6)

    async def end_some(log: PublicationLog, told: list[int]) -> None:
        log.forget(Forget("p", "s1", 3))

    assert with_log(tmp_path, store) == []
    found = with_log(tmp_path, end_some)
    assert [(each.publisher, each.sequence, each.values) for each in found] == [
        *(("p", number, {"n": number}) for number in range(1, 6)),
        ("q", 1, {"n": 1}),
    ]
    assert [(each.publisher, each.sequence) for each in with_log(tmp_path, nothing)] == [("p", 4), ("p", 5), ("q", 1)]


def test_a_record_that_was_not_written_to_its_end_is_left_out(tmp_path: Path) -> None:
    async def store(log: PublicationLog, told: list[int]) -> None:
        for number in (1, 2):
            log.append(Append(number, publication(number)))
        await until_told(told, 2)

    with_log(tmp_path, store)
    [file] = tmp_path.glob("*.log")
    file.write_bytes(file.read_bytes()[:-3])
    assert [each.sequence for each in with_log(tmp_path, nothing)] == [1]


def test_files_whose_publications_have_ended_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication_log, "FILE_MAX_BYTES", 200)

    async def store(log: PublicationLog, told: list[int]) -> None:
        for number in range(1, 41):
            log.append(Append(number, publication(number)))
            await until_told(told, number)
            if number >= 10:
                log.forget(Forget("p", "s1", number - 5))
        assert len(list(tmp_path.glob("*.log"))) <= 5

    with_log(tmp_path, store)
    assert [each.sequence for each in with_log(tmp_path, nothing)] == [36, 37, 38, 39, 40]


def test_publications_that_come_during_a_write_share_the_next(tmp_path: Path) -> None:
    async def store(log: PublicationLog, told: list[int]) -> None:
        before_count = log.writes_count
        for number in range(1, 101):
            log.append(Append(number, publication(number)))
        await until_told(told, 100)
        assert log.writes_count - before_count == 2

    with_log(tmp_path, store)
    assert len(with_log(tmp_path, nothing)) == 100


def test_two_processes_cannot_share_a_log(tmp_path: Path) -> None:
    async def open_again(log: PublicationLog, told: list[int]) -> None:
        with pytest.raises(PublicationLogError, match="is in use by another process"):
            PublicationLog(tmp_path, told.append, pytest.fail).open()

    with_log(tmp_path, open_again)


def test_what_was_acknowledged_is_delivered_once_when_all_brokers_have_died_at_once(tmp_path: Path) -> None:
    options = NetworkOptions(acknowledges="durable", disk=str(tmp_path), recovers_after_s=3.0)
    with Network.of(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")], options) as network:

        async def work() -> list[int]:
            numbers: list[int] = []
            publisher = await Client.connect(network.address("B1"), "P")
            subscriber = await Client.connect(network.address("B3"), "S")
            await publisher.advertise(Filter.parse("n >= 0"))
            await subscriber.subscribe(
                Filter.parse("n >= 0"), callback=lambda each: numbers.append(int(str(each.publication["n"])))
            )
            for number in range(100):
                await publisher.publish({"n": number})
            while len(numbers) < 100:
                await asyncio.sleep(0.02)
            os.kill(network.pid("B2"), signal.SIGSTOP)  # from here on nothing reaches the subscriber
            for number in range(100, 300):
                await publisher.publish({"n": number})
            await publisher.drain()
            assert len(numbers) == 100
            for broker in ("B1", "B2", "B3"):
                network.kill_broker(broker)
            for broker in ("B1", "B2", "B3"):
                network.start_broker(broker)
            await publisher.publish({"n": 300})
            while len(numbers) < 301:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)  # what comes twice would come now
            for client in (publisher, subscriber):
                await client.close()
            return numbers

        assert run_loop(asyncio.wait_for(work(), WITHIN_S)) == list(range(301))


def test_a_replica_goes_on_with_the_disk_of_the_broker_before_it(tmp_path: Path) -> None:
    options = NetworkOptions(acknowledges="durable", disk=str(tmp_path), recovers_after_s=3.0)
    quick = ReplicationSettings(
        look_every_s=0.1, suspect_after_s=0.3, crash_after_s=0.3, provisioner="process", clients_return_within_s=3.0
    )
    with Network.of(["B1", "B2"], [("B1", "B2")], options, replication=quick) as network:

        async def work() -> list[int]:
            numbers: list[int] = []
            publisher = await Client.connect(network.address("B1"), "P")
            subscriber = await Client.connect(network.address("B2"), "S")
            await publisher.advertise(Filter.parse("n >= 0"))
            await subscriber.subscribe(
                Filter.parse("n >= 0"), callback=lambda each: numbers.append(int(str(each.publication["n"])))
            )
            for number in range(200):
                if number == 100:
                    network.kill_broker("B1")
                await publisher.publish({"n": number})
            await publisher.drain()
            while len(numbers) < 200:
                await asyncio.sleep(0.02)
            for client in (publisher, subscriber):
                await client.close()
            return numbers

        assert run_loop(asyncio.wait_for(work(), WITHIN_S)) == list(range(200))
        network.look_for_replicas(network.status())


def test_a_disk_that_cannot_be_used_ends_the_broker(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder", encoding="utf-8")
    with pytest.raises(PublicationLogError, match="Not a directory"):
        with_log(file / "B1", nothing)
