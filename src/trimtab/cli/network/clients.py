"""What `trimtab sub` and `trimtab pub` do once their arguments are understood."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import typer

from trimtab.cli.input_lines import STDIN, parse_lines, printable
from trimtab.language import Filter, LanguageError, Publication
from trimtab.network.client.client import Client
from trimtab.network.client.subscription import Delivery, Subscription
from trimtab.network.clock import now_s
from trimtab.protocol.effects import GapNotice
from trimtab.protocol.messages import WireValue
from trimtab.protocol.records import DeliveryRecord, GapRecord, Recorder

LINES_AHEAD_COUNT: Final = 5_000
"""Lines of standard input that are read before they are published."""

REFUSALS_SHOWN_COUNT: Final = 10

Connect: TypeAlias = Callable[[], Awaitable[Client]]
"""Connects the client that a command is about."""


async def subscribe_and_print(  # noqa: PLR0917 (each one is an option)
    connect: Connect,
    filters: Sequence[Filter],
    channels: Sequence[tuple[str, dict[str, WireValue]]],
    count: int | None,
    for_s: float | None,
    recorder: Recorder | None = None,
    *,
    as_json: bool,
    within_s: float | None = None,
) -> int:
    """Print deliveries, and record them if wanted, until there are enough of them or the time is over."""
    client = await connect()
    if recorder is not None:
        client.on_move = recorder.record
    printed = _Printed(client, recorder)
    client.on_gap = lambda notice: printed.add_gap(notice, as_json=as_json)
    try:
        subscription = await client.subscribe(*filters, channels=channels, within_s=within_s)
        with _stopping_on_sigterm():
            typer.echo("subscribed", err=True)
            async with asyncio.timeout(for_s):
                await _print_deliveries(subscription, count, printed, as_json=as_json)
        await client.drain()  # says what ended the client, if something did
    except TimeoutError:
        if count is not None:
            typer.echo(f"{printed.count:,} of {count:,} deliveries came within {for_s:g} s", err=True)
            return 1
    finally:
        sys.stdout.flush()
        if within_s is not None:
            typer.echo(
                f"{printed.late_count:,} of {printed.count:,} deliveries took more than {within_s:g} s", err=True
            )
        await client.close()
    return 0


class _Printed:
    """Counts what was printed and keeps records of it."""

    def __init__(self, client: Client, recorder: Recorder | None) -> None:
        self._client = client
        self._recorder = recorder
        self.count = 0
        self.late_count = 0

    def add_gap(self, notice: GapNotice, *, as_json: bool) -> None:
        """Say at once that something may be lost: as a line for people, or as an object among the deliveries."""
        if as_json:
            sys.stdout.write(_gap_as_json(notice))
            sys.stdout.flush()
        else:
            typer.echo(_gap_as_text(notice), err=True)
        if self._recorder is not None:
            self._recorder.record(
                GapRecord(
                    time_s=now_s(),
                    client=self._client.name,
                    broker=self._client.broker,
                    publisher=notice.publisher,
                    first=notice.first,
                    last=notice.last,
                    reason=notice.reason,
                )
            )

    def add(self, delivery: Delivery) -> None:
        self.count += 1
        self.late_count += bool(delivery.late_for)
        if self._recorder is not None:
            self._recorder.record(
                DeliveryRecord(
                    time_s=now_s(),
                    client=self._client.name,
                    broker=self._client.broker,
                    publisher=delivery.publisher,
                    sequence=delivery.sequence,
                    delay_s=delivery.delay_s,
                    hops=delivery.hops,
                    subscriptions_count=len(delivery.subscriptions),
                    late_count=len(delivery.late_for),
                )
            )


async def _print_deliveries(subscription: Subscription, count: int | None, printed: _Printed, *, as_json: bool) -> None:
    show = _as_json if as_json else _as_text
    async for delivery in subscription:
        sys.stdout.write(show(delivery))
        printed.add(delivery)
        if printed.count == count:
            return
        if subscription.waiting_count == 0:
            sys.stdout.flush()


def _as_text(delivery: Delivery) -> str:
    late = f"  (late: {delivery.delay_s:.3f} s)" if delivery.late_for else ""
    return f"{delivery.publisher} {delivery.sequence} {delivery.publication}{late}\n"


def _gap_as_text(notice: GapNotice) -> str:
    if not notice.publisher:
        return f"gap: publications may be lost: {printable(notice.reason)}"
    if notice.last is None:
        numbers = f"{notice.first} and later, up to its next delivery"
    else:
        numbers = str(notice.first) if notice.first == notice.last else f"{notice.first} to {notice.last}"
    return f"gap: {printable(notice.publisher)} {numbers} may be lost: {printable(notice.reason)}"


def _gap_as_json(notice: GapNotice) -> str:
    gap = {"publisher": notice.publisher, "first": notice.first, "last": notice.last, "reason": notice.reason}
    return json.dumps({"gap": gap}, ensure_ascii=False) + "\n"


def _as_json(delivery: Delivery) -> str:
    shown: dict[str, object] = {
        "publication": delivery.publication.values_by_name,
        "publisher": delivery.publisher,
        "sequence": delivery.sequence,
        "delay_s": round(delivery.delay_s, 6),
        "hops": delivery.hops,
    }
    if delivery.late_for:
        shown["late"] = True
    return json.dumps(shown, ensure_ascii=False) + "\n"


async def publish_all(
    connect: Connect, announced: Sequence[Filter], publications: Sequence[Publication], *, is_open: bool = False
) -> int:
    """Publish what was given on the command line."""
    client = await connect()
    try:
        publisher = _Publisher(client)
        await publisher.announce(announced, is_open=is_open)
        for publication in publications:
            await publisher.publish(publication)
        return await publisher.finish()
    finally:
        await client.close()


async def publish_lines(connect: Connect, announced: Sequence[Filter], *, is_open: bool = False) -> int:
    """Publish the lines of standard input as they come."""
    client = await connect()
    try:
        publisher = _Publisher(client)
        await publisher.announce(announced, is_open=is_open)
        async for publication in _StandardInput():
            await publisher.publish(publication)
        return await publisher.finish()
    except typer.Exit:
        await publisher.finish()
        raise
    finally:
        await client.close()


class _Publisher:
    """Publishes, and says in the end what became of it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._published_count = 0
        self._refused_count = 0
        client.on_held_back = lambda reason: typer.echo(f"held back: {printable(reason)}", err=True)

    async def announce(self, filters: Sequence[Filter], *, is_open: bool) -> None:
        """Announce what the user said; then nothing else is."""
        for filter in filters:
            await self._client.advertise(filter, open=is_open)

    async def publish(self, publication: Publication) -> None:
        self._published_count += 1
        try:
            await self._client.publish(publication)
        except LanguageError as error:
            self._refuse(f"{publication}: {error}")

    async def finish(self) -> int:
        """Wait for acceptance, and say what was accepted; 1 if something was refused."""
        await self._client.drain()
        for rejected in self._client.refused:
            self._refuse(f"{rejected.about}: {rejected.reason}")
        if self._refused_count > REFUSALS_SHOWN_COUNT:
            typer.echo(f"{self._refused_count:,} publications were refused", err=True)
        accepted_count = self._published_count - self._refused_count
        if accepted_count or not self._refused_count:
            many = "1 publication" if accepted_count == 1 else f"{accepted_count:,} publications"
            moves = _moves_in_words(self._client.moves_count)
            typer.echo(f"{self._client.broker} has accepted {many} of {self._client.name}{moves}", err=True)
        return 1 if self._refused_count else 0

    def _refuse(self, message: str) -> None:
        self._refused_count += 1
        if self._refused_count <= REFUSALS_SHOWN_COUNT:
            typer.echo(f"refused: {printable(message)}", err=True)


def _moves_in_words(count: int) -> str:
    return "" if not count else f", which has moved {'once' if count == 1 else f'{count:,} times'}"


class _StandardInput:
    """Publications of standard input, read in a thread so that the connection lives while the user types."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._read: deque[Publication] = deque()
        self._news = asyncio.Event()
        self._room = threading.Semaphore(LINES_AHEAD_COUNT)
        self._ended = False
        self._error: typer.Exit | None = None
        threading.Thread(target=self._read_lines, name="standard-input", daemon=True).start()

    def _read_lines(self) -> None:
        try:
            for _, publication in parse_lines(STDIN, Publication.parse):
                self._room.acquire()
                self._read.append(publication)
                if not self._news.is_set():
                    self._loop.call_soon_threadsafe(self._news.set)
        except typer.Exit as error:
            self._error = error
        finally:
            self._ended = True
            self._loop.call_soon_threadsafe(self._news.set)

    async def __aiter__(self) -> AsyncIterator[Publication]:
        while True:
            while self._read:
                yield self._read.popleft()
                self._room.release()
            if self._ended and not self._read:
                break
            self._news.clear()
            if not self._read and not self._ended:
                await self._news.wait()
        if self._error is not None:
            raise self._error


@contextmanager
def _stopping_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the work as if it were done."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not stopped:
            raise
        task.uncancel()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
