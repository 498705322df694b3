"""A broker's line to the active-data back end: requests, answers and news over HTTP, made again whenever it breaks.

The broker asks (`OpenStream`, `FetchResults`, `CloseStream`) and is told; this module turns that into requests of
docs/active-data.md. One thread waits for news (a long poll), another carries out requests in their order. News bring
few results along; what the broker fetches then is here already.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import random
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from trimtab.protocol.channels import ChannelResult, flat_values
from trimtab.protocol.effects import BackEndRequest, CloseStream, FetchResults, OpenStream
from trimtab.protocol.events import (
    BackEndEvent,
    BackEndReached,
    ResultsExist,
    ResultsFetched,
    StreamOpened,
    StreamRefused,
)

NEWS_WITHIN_S: Final = 20.0
"""A question for news is answered by then, with none if there are none."""

ANSWER_WITHIN_S: Final = 30.0
FETCHES_AT_ONCE_COUNT: Final = 100
"""Streams whose results are fetched with one request."""

BROUGHT_MAX_COUNT: Final = 1_000
"""Results that came with news and that nobody fetches: beyond so many of one stream they are fetched after all."""

BACKOFF_MIN_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0

_NOT_ADMITTED: Final = (http.client.UNAUTHORIZED, http.client.FORBIDDEN, http.client.MISDIRECTED_REQUEST)

log = logging.getLogger("trimtab.broker")


def checked_url(url: object) -> str:
    """The address of a back end, if it looks like one; a ValueError says what was expected.

    >>> checked_url("http://127.0.0.1:8990")
    'http://127.0.0.1:8990'
    """
    if isinstance(url, str):
        with contextlib.suppress(ValueError):
            parts = urlsplit(url)
            if parts.scheme == "http" and parts.hostname and parts.port and parts.path in ("", "/"):
                return url
    raise ValueError(f"expected http://HOST:PORT, not {url!r}")


def token_in(file: str) -> str | None:
    """The token that stands in a file, None without a file."""
    return Path(file).read_text(encoding="utf-8").strip() if file else None


class _Brought:
    """Results of a stream that came with news: all there are above a position."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.results: list[ChannelResult] = []


class BroughtResults:
    """Results that came with news and wait until the broker asks for them.

    >>> brought = BroughtResults()
    >>> brought.opened("s", 10)
    >>> brought.told("s", 20, [ChannelResult(15, {}, 0.0), ChannelResult(20, {}, 0.0)])
    >>> brought.take(FetchResults("s", 9, 100)) is None
    True
    >>> [result.position for result in brought.take(FetchResults("s", 10, 1))]
    [15]
    >>> [result.position for result in brought.take(FetchResults("s", 15, 100))]
    [20]
    """

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        """The newest position that was told of each stream: up to there nothing is to be expected any more."""
        self._brought: dict[str, _Brought] = {}

    def opened(self, stream: str, position: int) -> None:
        """A stream begins, perhaps again: what came with news counts from here."""
        self._newest[stream] = position
        self._brought.pop(stream, None)

    def told(self, stream: str, position: int, results: Sequence[ChannelResult] = ()) -> None:
        """A stream has results up to a position: these are all since it was last told of, if there are any."""
        newest = self._newest[stream]
        if position <= newest:
            return  # the same news again
        self._newest[stream] = position
        new = [result for result in results if result.position > newest]
        brought = self._brought.get(stream)
        if not new or (brought is not None and len(brought.results) > BROUGHT_MAX_COUNT):
            self._brought.pop(stream, None)
            return
        if brought is None:
            brought = self._brought[stream] = _Brought(newest)
        brought.results += new

    def take(self, wanted: FetchResults) -> tuple[ChannelResult, ...] | None:
        """What a request asks for, None if that must be fetched."""
        brought = self._brought.get(wanted.stream)
        if brought is None or wanted.after < brought.after:
            return None
        above = [result for result in brought.results if result.position > wanted.after]
        taken, left = above[: wanted.max_count], above[wanted.max_count :]
        if left:
            brought.after, brought.results = taken[-1].position, left
        else:
            del self._brought[wanted.stream]
        return tuple(taken) or None

    def forget(self, stream: str) -> None:
        """A stream is not wanted any more."""
        self._newest.pop(stream, None)
        self._brought.pop(stream, None)

    def clear(self) -> None:
        """The back end was away: what it told before is no longer all there is."""
        self._newest.clear()
        self._brought.clear()


class BackEndConnection:
    """Talks to the back end for one broker."""

    def __init__(self, url: str, broker: str, tell: Callable[[BackEndEvent], None], token: str | None = None) -> None:
        parts = urlsplit(checked_url(url))
        self._line = partial(_Line, parts.hostname or "", parts.port, token)
        self._broker = broker
        self._tell = tell
        self._wanted: dict[str, OpenStream] = {}
        self._ids: dict[str, int] = {}
        self._streams: dict[int, str] = {}
        self._counted: dict[int, tuple[int, int]] = {}
        """By subscription: how many results it had, and how large they were, as the back end counts them."""
        self._heard_early: dict[int, tuple[int, tuple[int, int] | None]] = {}
        """News of subscriptions whose answer has not come yet: the two come by different connections."""
        self._brought = BroughtResults()
        self._requests: deque[BackEndRequest] = deque()
        self._work = asyncio.Event()
        self._news_after = 0
        self.is_reached = False

    def ask(self, request: BackEndRequest) -> None:
        """Carry out what the broker wants, as soon as the back end can be reached."""
        match request:
            case OpenStream(stream=stream):
                self._wanted[stream] = request
            case CloseStream(stream=stream):
                self._wanted.pop(stream, None)
        self._requests.append(request)
        self._work.set()

    async def run(self) -> None:
        """Keep the line until cancelled."""
        wait_s = BACKOFF_MIN_S
        while True:
            try:
                await self._reach()
                wait_s = BACKOFF_MIN_S
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._carry_out_requests())
                    group.create_task(self._wait_for_news())
            except* (OSError, http.client.HTTPException, msgspec.DecodeError) as errors:
                reason = errors.exceptions[0]
                log.info("%s: the back end cannot be reached: %s", self._broker, reason)
            self.is_reached = False
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(BACKOFF_MAX_S, 2 * wait_s)

    async def _reach(self) -> None:
        """Declare all that is wanted, and let the broker ask again what was not answered."""
        wanted = list(self._wanted.values())
        self._requests.clear()
        self._heard_early.clear()
        self._brought.clear()
        subscriptions = [{"channel": each.channel, "arguments": each.arguments} for each in wanted]
        with self._line() as line:
            said = await _to_thread(line.request, "PUT", self._path(), {"subscriptions": subscriptions})
        if "error" in said:
            raise http.client.HTTPException(str(said["error"]))
        log.info("%s: the back end is reached", self._broker)
        self.is_reached = True
        for each, answer in zip(wanted, said["subscriptions"], strict=True):
            self._opened(each, answer)
        self._tell(BackEndReached())

    def _opened(self, wanted: OpenStream, answer: dict[str, Any]) -> None:
        if "error" in answer:
            self._wanted.pop(wanted.stream, None)
            self._tell(StreamRefused(wanted.stream, str(answer["error"])))
            return
        id = int(answer["id"])
        self._ids[wanted.stream], self._streams[id] = id, wanted.stream
        position = int(answer["position"])
        self._brought.opened(wanted.stream, position)
        self._count(id, _counts(answer.get("counts")))
        self._tell(StreamOpened(wanted.stream, position))
        early = self._heard_early.pop(id, None)
        if early is not None:
            self._heard(id, early[0], counts=early[1])

    async def _carry_out_requests(self) -> None:
        with self._line() as line:
            while True:
                while self._requests:
                    fetches = list(takewhile(_is_fetch, islice(self._requests, FETCHES_AT_ONCE_COUNT)))
                    if fetches:
                        await self._fetch(line, [each for each in fetches if isinstance(each, FetchResults)])
                    else:
                        await self._carry_out(line, self._requests[0])
                    for _ in range(max(1, len(fetches))):
                        self._requests.popleft()
                self._work.clear()
                await self._work.wait()

    async def _carry_out(self, line: _Line, request: BackEndRequest) -> None:
        match request:
            case OpenStream(stream=stream, channel=channel, arguments=arguments):
                if stream in self._wanted:
                    body = {"channel": channel, "arguments": arguments}
                    self._opened(request, await _to_thread(line.request, "POST", f"{self._path()}/subscriptions", body))
            case CloseStream(stream=stream):
                id = None if stream in self._wanted else self._ids.pop(stream, None)
                if id is not None:
                    del self._streams[id]
                    self._counted.pop(id, None)
                    self._brought.forget(stream)
                    await _to_thread(line.request, "DELETE", f"{self._path()}/subscriptions/{id}", None)

    async def _fetch(self, line: _Line, fetches: list[FetchResults]) -> None:
        """Fetch results of several streams at once; what the back end has ended is declared to it anew."""
        wanted: list[tuple[int, FetchResults]] = []
        for each in fetches:
            results = self._brought.take(each)
            if results is not None:
                self._tell(ResultsFetched(each.stream, each.after, results))
            elif each.stream in self._ids:
                wanted.append((self._ids[each.stream], each))
        if not wanted:
            return
        body = {"fetches": [{"id": id, "after": each.after, "limit": each.max_count} for id, each in wanted]}
        said = await _to_thread(line.request, "POST", "/results", body)
        for (_, each), answer in zip(wanted, said["answers"], strict=True):
            if "error" in answer:
                raise http.client.HTTPException(str(answer["error"]))
            self._tell(ResultsFetched(each.stream, each.after, tuple(map(_result, answer["results"]))))

    async def _wait_for_news(self) -> None:
        suspended_count = 0
        with self._line() as line:
            while True:
                asked = f"after={self._news_after}&wait_s={NEWS_WITHIN_S:g}&suspended={suspended_count}"
                path = f"{self._path()}/results?{asked}"
                said = await _to_thread(line.request, "GET", path, None)
                self._news_after = int(said["position"])
                brought, counts = said.get("results", {}), said.get("counts", {})
                for id, position in said["subscriptions"].items():
                    results = [_result(each) for each in brought.get(id, [])]
                    self._heard(int(id), int(position), results, _counts(counts.get(id)))
                suspended_count = len(said.get("suspended", {}))
                for id, reason in said.get("suspended", {}).items():
                    self._suspended(int(id), str(reason))

    def _heard(
        self,
        id: int,
        position: int,
        results: Sequence[ChannelResult] = (),
        counts: tuple[int, int] | None = None,
    ) -> None:
        stream = self._streams.get(id)
        if stream is None:
            self._heard_early[id] = position, counts
        else:
            self._brought.told(stream, position, results)
            self._tell(ResultsExist(stream, position, *self._count(id, counts)))

    def _count(self, id: int, counts: tuple[int, int] | None) -> tuple[int, int]:
        """How many results there are since they were counted last, and how large; the back end may begin at 0 again."""
        if counts is None:
            return 0, 0
        before = self._counted.get(id, (0, 0))
        self._counted[id] = counts
        return counts if counts[0] < before[0] else (counts[0] - before[0], counts[1] - before[1])

    def _suspended(self, id: int, reason: str) -> None:
        """The back end makes no more results of a subscription, which is told like one that it never made."""
        stream = self._streams.pop(id, None)
        if stream is not None:
            del self._ids[stream]
            self._wanted.pop(stream, None)
            self._brought.forget(stream)
            self._tell(StreamRefused(stream, reason))

    def _path(self) -> str:
        return f"/brokers/{quote(self._broker, safe='')}"


class _Line:
    """One HTTP connection that is kept open."""

    def __init__(self, host: str, port: int | None, token: str | None) -> None:
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._connection = http.client.HTTPConnection(host, port, timeout=ANSWER_WITHIN_S)

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *error: object) -> None:
        socket_in_use = self._connection.sock
        if socket_in_use is not None:
            with contextlib.suppress(OSError):
                socket_in_use.shutdown(socket.SHUT_RDWR)  # a thread that waits for an answer goes on at once
        self._connection.close()

    def request(self, method: str, path: str, body: object) -> dict[str, Any]:
        """Ask and wait for the answer, in a thread; what the back end refuses is an answer with an error."""
        content = None if body is None else msgspec.json.encode(body)
        self._connection.request(method, path, content, self._headers)
        with self._connection.getresponse() as response:
            said: dict[str, Any] = msgspec.json.decode(response.read(), type=dict[str, Any])
            if response.status >= http.client.INTERNAL_SERVER_ERROR or response.status in _NOT_ADMITTED:
                raise http.client.HTTPException(f"the back end answers {response.status}: {said.get('error')}")
        return said


def _counts(said: Any) -> tuple[int, int] | None:
    return (int(said[0]), int(said[1])) if isinstance(said, list) and len(said) == 2 else None


def _is_fetch(request: BackEndRequest) -> bool:
    return isinstance(request, FetchResults)


async def _to_thread(call: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    return await asyncio.to_thread(call, *arguments)


def _result(said: dict[str, Any]) -> ChannelResult:
    return ChannelResult(int(said["position"]), flat_values(said["values"]), float(said["executed_s"]))
