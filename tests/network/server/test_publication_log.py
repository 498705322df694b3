"""What is durable: the log of a broker's publications, and a network of which all brokers die at once."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from tests.network.running import numbers_from
from trimtab import Filter, Network
from trimtab.network.failover.replication_settings import ReplicationSettings
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import NetworkOptions
from trimtab.network.server import publication_log
from trimtab.network.server.publication_log import PublicationLog, PublicationLogError
from trimtab.protocol.effects import Append, Forget
from trimtab.protocol.messages import ClientRecord, Guard, KnownSubscription, Publish

WITHIN_S = 60.0


def publication(sequence: int, publisher: str = "p") -> Publish:
    return Publish(publisher=publisher, sequence=sequence, values={"n": sequence}, origin_s=1.5, session="s1")


def change(version: int, client: str, *ids: str, ended: tuple[str, ...] = (), is_over: bool = False) -> Guard:
    """A client has these subscriptions besides, or some no more, or is gone."""
    known = tuple(KnownSubscription(id, Filter.parse(f"n > {version}")) for id in ids)
    record = ClientRecord(client, "s1", stay=version, subscriptions=known)
    return Guard(version=version, record=record, ended=ended, is_over=is_over)


def shown(records: Iterable[ClientRecord]) -> dict[str, list[str]]:
    """Clients and the ids of their subscriptions."""
    return {record.client: [each.id for each in record.subscriptions] for record in records}


class Found(msgspec.Struct):
    """What a log held at its beginning."""

    publications: tuple[Publish, ...]
    records: tuple[ClientRecord, ...]
    epoch: int


def with_log(
    folder: Path, work: Callable[[PublicationLog, list[int]], Awaitable[None]], *, epoch_min: int = 1
) -> Found:
    """Let a log do something; what it held at its beginning."""

    async def run() -> Found:
        told: list[int] = []
        log = PublicationLog(folder, told.append, pytest.fail)
        found = Found(*log.open(epoch_min), log.epoch)
        await work(log, told)
        log.close()
        return found

    return run_loop(asyncio.wait_for(run(), WITHIN_S))


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


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

    assert with_log(tmp_path, store) == Found((), (), 1)
    found = with_log(tmp_path, end_some)
    assert [(each.publisher, each.sequence, each.values) for each in found.publications] == [
        *(("p", number, {"n": number}) for number in range(1, 6)),
        ("q", 1, {"n": 1}),
    ]
    assert [(each.publisher, each.sequence) for each in with_log(tmp_path, nothing).publications] == [
        ("p", 4),
        ("p", 5),
        ("q", 1),
    ]


def test_a_record_that_was_not_written_to_its_end_is_left_out(tmp_path: Path) -> None:
    async def store(log: PublicationLog, told: list[int]) -> None:
        for number in (1, 2):
            log.append(Append(number, publication(number)))
        await until_told(told, 2)

    with_log(tmp_path, store)
    [file] = tmp_path.glob("*.log")
    file.write_bytes(file.read_bytes()[:-3])
    assert [each.sequence for each in with_log(tmp_path, nothing).publications] == [1]


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
    assert [each.sequence for each in with_log(tmp_path, nothing).publications] == [36, 37, 38, 39, 40]


def test_publications_that_come_during_a_write_share_the_next(tmp_path: Path) -> None:
    async def store(log: PublicationLog, told: list[int]) -> None:
        before_count = log.writes_count
        log.append(Append(1, publication(1)))
        await asyncio.sleep(0)  # it is being written
        for number in range(2, 101):
            log.append(Append(number, publication(number)))
        await until_told(told, 100)
        assert log.writes_count - before_count == 2

    with_log(tmp_path, store)
    assert len(with_log(tmp_path, nothing).publications) == 100


def test_publications_of_one_loop_iteration_are_one_write(tmp_path: Path) -> None:
    async def store(log: PublicationLog, told: list[int]) -> None:
        before_count = log.writes_count
        for number in range(1, 101):
            log.append(Append(number, publication(number)))
        await until_told(told, 100)
        assert log.writes_count - before_count == 1

    with_log(tmp_path, store)
    assert len(with_log(tmp_path, nothing).publications) == 100


def test_records_of_clients_are_found_again_as_they_were_last(tmp_path: Path) -> None:
    async def store(log: PublicationLog, told: list[int]) -> None:
        log.append(Append(1, change(1, "ann", "ann/s1", "ann/s2")))
        log.append(Append(2, publication(1)))
        log.append(Append(3, change(2, "bob", "bob/s1")))
        log.append(Append(4, change(3, "ann", "ann/s3", ended=("ann/s1",))))
        log.append(Append(5, change(4, "bob", is_over=True)))
        await until_told(told, 5)

    with_log(tmp_path, store)
    for _ in range(2):
        found = with_log(tmp_path, nothing)
        assert shown(found.records) == {"ann": ["ann/s2", "ann/s3"]}
        assert found.records[0].subscriptions[1].filter == Filter.parse("n > 3")
        assert (found.records[0].stay, len(found.publications)) == (3, 1)


def test_records_survive_the_files_that_they_were_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication_log, "FILE_MAX_BYTES", 300)

    async def store(log: PublicationLog, told: list[int]) -> None:
        log.append(Append(1, change(1, "ann", "ann/s1")))
        for number in range(2, 60):
            log.append(Append(number, change(number, "bob", f"bob/s{number}", ended=(f"bob/s{number - 1}",))))
            log.append(Append(number, publication(number)))
            await until_told(told, number)
            log.forget(Forget("p", "s1", number))
        assert len(files_in(tmp_path)) <= 2
        assert int(files_in(tmp_path)[0].stem) > 5

    with_log(tmp_path, store)
    assert shown(with_log(tmp_path, nothing).records) == {"ann": ["ann/s1"], "bob": ["bob/s59"]}


def test_many_records_are_not_written_again_with_every_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication_log, "FILE_MAX_BYTES", 300)

    async def store(log: PublicationLog, told: list[int]) -> None:
        for number in range(1, 201):
            log.append(Append(number, change(number, f"client-{number}", f"{number}/s1")))
        await until_told(told, 200)
        for number in range(201, 231):
            log.append(Append(number, publication(number)))
            await until_told(told, number)
        assert len(files_in(tmp_path)) <= 2

    with_log(tmp_path, store)
    assert len(with_log(tmp_path, nothing).records) == 200


def test_a_file_stays_until_the_checkpoint_of_the_next_one_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication_log, "FILE_MAX_BYTES", 10)

    async def store(log: PublicationLog, told: list[int]) -> None:
        log.append(Append(1, change(1, "ann", "ann/s1")))
        await until_told(told, 1)
        old, new = files_in(tmp_path)
        log.forget(Forget("p", "s1", 1))
        assert (old.exists(), new.stat().st_size) == (True, 0)
        log.append(Append(2, publication(2)))
        await until_told(told, 2)
        assert (old.exists(), new.stat().st_size > 0) == (False, True)

    with_log(tmp_path, store)
    assert shown(with_log(tmp_path, nothing).records) == {"ann": ["ann/s1"]}


def test_a_crash_at_any_byte_of_the_next_file_loses_nothing_that_was_told_to_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication_log, "FILE_MAX_BYTES", 200)
    folder = tmp_path / "log"

    async def store(log: PublicationLog, told: list[int]) -> None:
        log.append(Append(1, publication(1)))
        for number in range(2, 9):
            log.append(Append(number, change(number, f"c{number}", f"c{number}/s1")))
            await until_told(told, number)
            if len(files_in(folder)) == 2:
                break
        assert len(files_in(folder)) == 2
        before.update({f"c{each}": [f"c{each}/s1"] for each in range(2, number + 1)})
        log.append(Append(9, change(9, "late", "late/s1")))
        await until_told(told, 9)

    before: dict[str, list[str]] = {}
    with_log(folder, store)
    _, new = files_in(folder)
    whole = new.read_bytes()
    for size in range(len(whole) + 1):
        crashed = tmp_path / f"crashed-{size}"
        shutil.copytree(folder, crashed)
        (crashed / new.name).write_bytes(whole[:size])
        found = with_log(crashed, nothing)
        late = {"late": ["late/s1"]} if size == len(whole) else {}
        assert shown(found.records) == {**before, **late}
        assert [each.sequence for each in found.publications] == [1]
        assert with_log(crashed, nothing).records == found.records


def test_what_was_being_written_anew_in_a_crash_is_found_once(tmp_path: Path) -> None:
    async def store(log: PublicationLog, told: list[int]) -> None:
        for number in (1, 2, 3):
            log.append(Append(number, publication(number)))
        log.append(Append(4, change(1, "ann", "ann/s1")))
        await until_told(told, 4)

    with_log(tmp_path, store)
    [old] = files_in(tmp_path)
    content = old.read_bytes()
    with_log(tmp_path, nothing)
    old.write_bytes(content)  # the crash came before it was deleted
    found = with_log(tmp_path, nothing)
    assert [each.sequence for each in found.publications] == [1, 2, 3]
    assert shown(found.records) == {"ann": ["ann/s1"]}


def test_each_incarnation_has_a_higher_epoch_than_all_that_the_disk_has_seen(tmp_path: Path) -> None:
    async def outgrow(log: PublicationLog, told: list[int]) -> None:
        log.begin_epoch(9)

    assert with_log(tmp_path, nothing).epoch == 1
    assert with_log(tmp_path, nothing).epoch == 2
    assert with_log(tmp_path, nothing, epoch_min=2).epoch == 3
    assert with_log(tmp_path, outgrow, epoch_min=7).epoch == 7
    assert with_log(tmp_path, nothing).epoch == 10


def test_a_log_of_an_earlier_version_is_refused_unless_all_of_it_has_ended(tmp_path: Path) -> None:
    def write(*records: bytes) -> None:
        head = struct.Struct(">II")
        data = b"".join(head.pack(len(each), zlib.crc32(each)) + each for each in records)
        (tmp_path / "000000000001.log").write_bytes(data)

    stored = b"P" + msgspec.msgpack.encode(("", "p", 1, {"n": 1}, 1.5, "s1", 0))
    write(stored)
    with pytest.raises(PublicationLogError, match="was written by an earlier version: start that one"):
        with_log(tmp_path, nothing)
    write(stored, b"E" + msgspec.msgpack.encode(("p", "s1", 1)))
    assert with_log(tmp_path, nothing).publications == ()


def test_two_processes_cannot_share_a_log(tmp_path: Path) -> None:
    async def open_again(log: PublicationLog, told: list[int]) -> None:
        with pytest.raises(PublicationLogError, match="is in use by another process"):
            PublicationLog(tmp_path, told.append, pytest.fail).open()

    with_log(tmp_path, open_again)


def test_what_was_acknowledged_is_delivered_once_when_all_brokers_have_died_at_once(tmp_path: Path) -> None:
    options = NetworkOptions(acknowledges="durable", disk=str(tmp_path))
    with Network.of(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")], options) as network:

        async def work() -> list[int]:
            async with numbers_from(network, "B1", "B3") as numbers:
                await numbers.publish(range(100))
                await numbers.arrived(100)
                os.kill(network.pid("B2"), signal.SIGSTOP)  # from here on nothing reaches the subscriber
                await numbers.publish(range(100, 300))
                await numbers.publisher.drain()
                assert len(numbers.got) == 100
                for broker in ("B1", "B2", "B3"):
                    network.kill_broker(broker)
                for broker in ("B1", "B2", "B3"):
                    network.start_broker(broker)
                await numbers.publish([300])
                await numbers.arrived(301)
                await asyncio.sleep(0.3)  # what comes twice would come now
            return numbers.got

        assert run_loop(asyncio.wait_for(work(), WITHIN_S)) == list(range(301))


def test_a_replica_goes_on_with_the_disk_of_the_broker_before_it(tmp_path: Path) -> None:
    options = NetworkOptions(acknowledges="durable", disk=str(tmp_path))
    quick = ReplicationSettings(look_every_s=0.1, suspect_after_s=0.3, crash_after_s=0.3, provisioner="process")
    with Network.of(["B1", "B2"], [("B1", "B2")], options, replication=quick) as network:

        async def work() -> list[int]:
            async with numbers_from(network, "B1", "B2") as numbers:
                await numbers.publish(range(100))
                network.kill_broker("B1")
                await numbers.publish(range(100, 200))
                await numbers.publisher.drain()
                await numbers.arrived(200)
            return numbers.got

        assert run_loop(asyncio.wait_for(work(), WITHIN_S)) == list(range(200))
        network.look_for_replicas(network.status())


def test_a_disk_that_cannot_be_used_ends_the_broker(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder", encoding="utf-8")
    with pytest.raises(PublicationLogError, match="Not a directory"):
        with_log(file / "B1", nothing)
