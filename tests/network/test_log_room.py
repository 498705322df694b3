"""A log without room: a quota that is reached, and a disk that is full, are backpressure and not the end."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.network.loops import run as run_loop
from trimtab.network.server import publication_log
from trimtab.network.server.publication_log import PublicationLog, log_files
from trimtab.protocol.effects import Append, Forget
from trimtab.protocol.events import Connected, DiskSpaceChanged, Step
from trimtab.protocol.frames import Hello, Payload
from trimtab.protocol.messages import VERSION, Publish

WITHIN_S = 30.0


def publication(sequence: int, size: int = 1000) -> Publish:
    return Publish(publisher="p", sequence=sequence, values={"text": "x" * size}, origin_s=1.5, session="s1")


class Told:
    """What a log has told."""

    def __init__(self) -> None:
        self.number = 0
        self.problems: list[str] = []
        self.failures: list[str] = []

    def stored(self, number: int) -> None:
        self.number = number


def with_log(
    folder: Path, work: Callable[[PublicationLog, Told], Awaitable[None]], *, max_bytes: int = 0
) -> tuple[list[int], Told]:
    """Let a log do something; which publications it held at its beginning, and what it told."""

    async def run() -> tuple[list[int], Told]:
        told = Told()
        log = PublicationLog(folder, told.stored, told.failures.append, told.problems.append, max_bytes=max_bytes)
        publications, _ = log.open()
        await work(log, told)
        log.close()
        return [each.sequence for each in publications], told

    return run_loop(asyncio.wait_for(run(), WITHIN_S))


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def until_stored(told: Told, number: int) -> None:
    await until(lambda: told.number == number)
    await asyncio.sleep(0)  # what is told of room comes then


async def nothing(log: PublicationLog, told: Told) -> None:
    await asyncio.sleep(0.01)


async def store_until_full(log: PublicationLog, told: Told) -> int:
    """Store as long as there is room; returns how many."""
    number = 0
    while not told.problems:
        number += 1
        log.append(Append(number, publication(number)))
        await until_stored(told, number)
    return number


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in log_files(folder))


def test_a_quota_that_is_reached_is_told_once_and_again_when_there_is_room(tmp_path: Path) -> None:
    async def work(log: PublicationLog, told: Told) -> None:
        count = await store_until_full(log, told)
        assert 92 <= count <= 100
        assert 100_000 <= size_of(tmp_path) <= 102_000
        log.append(Append(count + 1, publication(count + 1)))  # what the broker has taken already is stored
        await until(lambda: told.number == count + 1)
        assert told.problems == [log.problem]
        log.forget(Forget("p", "s1", count // 2))
        await until(lambda: told.problems[-1] == "")
        assert size_of(tmp_path) < 100_000

    _, told = with_log(tmp_path, work, max_bytes=100_000)
    assert len(told.problems) == 2
    assert "the log has reached disk_max_mb = 0.1: publications wait until others are forgotten" in told.problems[0]


@pytest.mark.parametrize("size", [100, 1000, 24_000, 60_000])
def test_there_is_room_again_when_everything_has_ended(tmp_path: Path, size: int) -> None:
    async def work(log: PublicationLog, told: Told) -> None:
        number = 0
        for _ in range(3):
            while not log.problem:
                number += 1
                log.append(Append(number, publication(number, size)))
                await until_stored(told, number)
            for each in range(1, number + 1):
                log.forget(Forget("p", "s1", each))
            await until(lambda: not log.problem)
        assert size_of(tmp_path) < 100_000

    with_log(tmp_path, work, max_bytes=100_000)


def test_a_log_that_is_over_its_quota_at_the_start_says_so(tmp_path: Path) -> None:
    async def store(log: PublicationLog, told: Told) -> None:
        for number in range(1, 51):
            log.append(Append(number, publication(number)))
        await until(lambda: told.number == 50)

    async def forget(log: PublicationLog, told: Told) -> None:
        await until(lambda: told.problems)
        log.forget(Forget("p", "s1", 50))
        await until(lambda: told.problems[-1] == "")

    with_log(tmp_path, store)
    found, told = with_log(tmp_path, forget, max_bytes=20_000)
    assert (found, len(told.problems)) == (list(range(1, 51)), 2)


class FullDisk:
    """Takes what comes for a while, half of the next write, and then nothing until there is room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: int = errno.ENOSPC) -> None:
        self.left_bytes = 0
        self.is_full = False
        self._error = error
        self._write = os.write
        self._fsync = os.fsync
        self.fails_at_fsync = False
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "fsync", self.fsync)

    def write(self, descriptor: int, data: memoryview) -> int:
        if not self.is_full or self.fails_at_fsync:
            return self._write(descriptor, data)
        if not self.left_bytes:
            raise OSError(self._error, os.strerror(self._error))
        written = self._write(descriptor, data[: self.left_bytes])
        self.left_bytes -= written
        return written

    def fsync(self, descriptor: int) -> None:
        if self.is_full and self.fails_at_fsync:
            raise OSError(self._error, os.strerror(self._error))
        self._fsync(descriptor)


@pytest.mark.parametrize("left_bytes", [0, 1, 700])
@pytest.mark.parametrize("fails_at_fsync", [False, True])
def test_a_full_disk_is_tried_again_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_bytes: int, fails_at_fsync: bool
) -> None:
    monkeypatch.setattr(publication_log, "RETRY_AFTER_S", 0.01)
    disk = FullDisk(monkeypatch)

    async def work(log: PublicationLog, told: Told) -> None:
        log.append(Append(1, publication(1)))
        await until(lambda: told.number == 1)
        disk.is_full, disk.fails_at_fsync, disk.left_bytes = True, fails_at_fsync, left_bytes
        log.append(Append(2, publication(2)))
        await until(lambda: told.problems)
        log.append(Append(3, publication(3)))
        await asyncio.sleep(0.05)
        assert told.number == 1
        disk.is_full = False
        await until(lambda: told.number == 3)
        await until(lambda: told.problems[-1] == "")

    _, told = with_log(tmp_path, work)
    assert (len(told.problems), told.failures) == (2, [])
    assert "the disk is full (No space left on device): publications wait for room" in told.problems[0]
    found, told = with_log(tmp_path, nothing)
    assert (found, told.problems) == ([1, 2, 3], [])
    assert not list(tmp_path.glob("*.damaged"))


def test_a_broker_may_start_and_stop_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def store(log: PublicationLog, told: Told) -> None:
        log.append(Append(1, publication(1)))
        await until(lambda: told.number == 1)

    async def see(log: PublicationLog, told: Told) -> None:
        await until(lambda: told.problems)

    with_log(tmp_path, store)
    disk = FullDisk(monkeypatch)
    for _ in range(2):
        disk.is_full, disk.left_bytes = True, 30
        assert with_log(tmp_path, see)[0] == [1]
    disk.is_full = False
    found, told = with_log(tmp_path, nothing)
    assert (found, told.problems) == ([1], [])
    assert not list(tmp_path.glob("*.damaged"))


def test_any_other_failure_of_the_disk_is_told_to_be_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk(monkeypatch, errno.EIO)

    async def work(log: PublicationLog, told: Told) -> None:
        disk.is_full = True
        log.append(Append(1, publication(1)))
        await until(lambda: told.failures)
        assert told.number == 0

    _, told = with_log(tmp_path, work)
    assert told.failures == [f"{tmp_path}/000000000001.log cannot be written: Input/output error"]
    assert told.problems == []


def test_a_broker_takes_no_publication_of_a_client_while_its_disk_has_no_room() -> None:
    broker = Broker(BrokerConfig(name="B1", session="b", acknowledges="durable"), [], 0.0)
    broker.handle(Connected("p", Hello(VERSION, "client", "p", "s1", 1)), 0.0)
    broker.handle(DiskSpaceChanged(False), 0.0)
    broker.receive("p", Payload(1, 0, [publication(1), publication(2)]), 0.0)
    effects = broker.handle(Step(10), 0.0)
    assert (effects, broker.counters.publications_in_count) == ([], 0)
    broker.handle(DiskSpaceChanged(True), 0.0)
    broker.handle(Step(10), 0.0)
    assert broker.input_count == 0
    assert broker.peers["p"].last_sequence == 2
