"""The channel desk of a broker: many clients' subscriptions to channels, few requests to the back end.

Source: the Big Active Data paper (003), "BAD Brokers": front-end subscriptions with the same channel and arguments
become one back-end subscription; the broker is told that results exist, fetches them once, keeps some of them, and
delivers them to each subscriber. Each client's place in a stream is one position; what is after it is fed into the
client's output queue as room appears, from the cache or, for a client that is behind, from the back end. Nothing is
lost when a client moves or a broker is started again, because the client says after which position it goes on.

Deviations: a stream that nobody wants any more stays open for a while, so that a client that moves finds it going.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from trimtab.protocol.channels import ChannelResult, stream_name
from trimtab.protocol.effects import BackEndRequest, CloseStream, FetchResults, OpenStream
from trimtab.protocol.events import (
    BackEndEvent,
    BackEndReached,
    ResultsExist,
    ResultsFetched,
    StreamOpened,
    StreamRefused,
)
from trimtab.protocol.messages import FROM_NOW_ON, ChannelConfirmed, Publish, Refused, SubscribeChannel, WireValue

if TYPE_CHECKING:
    from trimtab.broker.core import Broker

AHEAD_MAX_COUNT: Final = 256
"""Results that wait in one client's output queue; the others wait in the cache or at the back end."""

FETCH_MAX_COUNT: Final = 1_000
"""Results asked for at once."""


class _Front:
    """One client's subscription: the last result that was put into its queue (None until the stream is open)."""

    __slots__ = ("client", "id", "position")

    def __init__(self, client: str, id: str, position: int | None) -> None:
        self.client = client
        self.id = id
        self.position = position


class _Stream:
    """A back-end subscription and those who share it."""

    __slots__ = (
        "arguments",
        "cached",
        "cached_after",
        "channel",
        "fetching_after",
        "fetching_until",
        "fronts",
        "helped_laggard",
        "is_open",
        "name",
        "newest",
        "results_bytes",
        "results_count",
    )

    def __init__(self, name: str, channel: str, arguments: dict[str, WireValue]) -> None:
        self.name = name
        self.channel = channel
        self.arguments = arguments
        self.is_open = False
        self.newest = 0
        """The position of the newest result that is known to exist."""
        self.results_count = 0
        self.results_bytes = 0
        """Results that have come to exist since the stream was opened, and their size, as the back end counts them."""
        self.cached: list[ChannelResult] = []
        self.cached_after = 0
        """All results after this position and up to that of the last cached one are in the cache."""
        self.fronts: dict[str, _Front] = {}
        """By client."""
        self.fetching_after: int | None = None
        self.fetching_until = 0
        """Results after and up to these positions are asked for."""
        self.helped_laggard = False
        """Whether the last fetch was for a client that is behind the cache; the next is for the others."""

    @property
    def cached_until(self) -> int:
        return self.cached[-1].position if self.cached else self.cached_after


class ChannelDesk:
    """The channels of one broker's clients."""

    def __init__(self, broker: Broker, cache_max_count: int, linger_s: float) -> None:
        self._broker = broker
        self._cache_max_count = cache_max_count
        self._linger_s = linger_s
        self._cached_count = 0
        self._streams: dict[str, _Stream] = {}
        """Those used last stand last."""
        self._clients: dict[str, dict[str, _Stream]] = {}
        """By client: its streams by the ids that it gave them."""
        self._closing_s: dict[str, float] = {}
        """When streams that nobody wants end, the first one first."""
        self._hungry: dict[str, dict[str, None]] = {}
        """By client: streams that have more for it than its queue had room for."""
        self.results_in_count = 0
        self.results_out_count = 0

    # ---- what clients want ----

    def subscribe(self, client: str, message: SubscribeChannel, now_s: float) -> list[BackEndRequest]:
        """A client wants a stream, or wants to go on with it elsewhere."""
        name = stream_name(message.channel, message.arguments)
        known = self._clients.get(client, {}).get(message.id)
        stream = self._streams.get(name)
        front = None if stream is None else stream.fronts.get(client)
        reason = ""
        if known is not None and known.name != name:
            reason = f"the id {message.id} is already in use"
        elif front is not None and front.id != message.id:
            reason = f"the client has {name[1:]} already, as {front.id}"
        if reason:
            self._broker.send(client, Refused(about=message.id, reason=reason), now_s)
            return []
        requests: list[BackEndRequest] = []
        if stream is None:
            stream = self._streams[name] = _Stream(name, message.channel, message.arguments)
            requests.append(OpenStream(name, message.channel, message.arguments))
        self._closing_s.pop(name, None)
        front = _Front(client, message.id, None if message.after == FROM_NOW_ON else message.after)
        stream.fronts[client] = front
        self._clients.setdefault(client, {})[message.id] = stream
        if stream.is_open:
            self._confirm(stream, front, now_s)
        return requests + self._serve(stream, now_s)

    def _confirm(self, stream: _Stream, front: _Front, now_s: float) -> None:
        if front.position is None:
            front.position = stream.newest
        self._broker.send(front.client, ChannelConfirmed(id=front.id, position=front.position), now_s)

    def unsubscribe(self, client: str, id: str, now_s: float) -> bool:
        """A client wants a stream no more; whether it had it."""
        streams = self._clients.get(client, {})
        stream = streams.pop(id, None)
        if stream is None:
            return False
        if not streams:
            del self._clients[client]
        del stream.fronts[client]
        self._eats_no_more(stream, client)
        if not stream.fronts:
            self._closing_s[stream.name] = now_s + self._linger_s
        return True

    def end_unless(self, client: str, objection: Callable[[str, Mapping[str, WireValue]], str], now_s: float) -> None:
        """End a client's streams to which there is an objection, and tell it."""
        for id, stream in list(self._clients.get(client, {}).items()):
            if reason := objection(stream.channel, stream.arguments):
                self.unsubscribe(client, id, now_s)
                self._broker.send(client, Refused(about=id, reason=f"ended: {reason}"), now_s)

    def client_gone(self, client: str, now_s: float) -> None:
        """A client has left, or goes on elsewhere."""
        for id in list(self._clients.get(client, {})):
            self.unsubscribe(client, id, now_s)

    def count_of(self, client: str) -> int:
        """How many streams a client has."""
        return len(self._clients.get(client, {}))

    def clients(self) -> list[str]:
        """Who has streams."""
        return list(self._clients)

    def streams_of(self, client: str) -> dict[str, int]:
        """A client's streams, with the bytes of all results that each has had since it was opened here."""
        return {stream.name: stream.results_bytes for stream in self._clients.get(client, {}).values()}

    @property
    def streams_count(self) -> int:
        """Back-end subscriptions."""
        return len(self._streams)

    @property
    def fronts_count(self) -> int:
        """Front-end subscriptions."""
        return sum(map(len, self._clients.values()))

    @property
    def cached_count(self) -> int:
        """Results in the cache."""
        return self._cached_count

    # ---- what the back end says ----

    def handle(self, event: BackEndEvent, now_s: float) -> list[BackEndRequest]:
        """The back end has something to say; what is late or was not asked for is ignored."""
        if isinstance(event, BackEndReached):
            return self._ask_again()
        stream = self._streams.get(event.stream)
        if stream is None:
            return []
        match event:
            case StreamOpened(position=position):
                self._opened(stream, position, now_s)
            case StreamRefused(reason=reason):
                self._refused(stream, reason, now_s)
                return []
            case ResultsExist(position=position, news_count=news_count, news_bytes=news_bytes):
                stream.newest = max(stream.newest, position)
                stream.results_count += news_count
                stream.results_bytes += news_bytes
            case ResultsFetched(after=after, results=results):
                if stream.fetching_after == after:
                    stream.fetching_after = None
                    self._fetched(stream, after, results, now_s)
        return self._serve(stream, now_s)

    def _ask_again(self) -> list[BackEndRequest]:
        requests: list[BackEndRequest] = []
        for stream in self._streams.values():
            requests.append(OpenStream(stream.name, stream.channel, stream.arguments))
            if stream.fetching_after is not None:
                requests.append(FetchResults(stream.name, stream.fetching_after, FETCH_MAX_COUNT))
        return requests

    def _opened(self, stream: _Stream, position: int, now_s: float) -> None:
        stream.newest = max(stream.newest, position)
        if stream.is_open:
            return
        stream.is_open = True
        stream.cached_after = position
        for front in stream.fronts.values():
            self._confirm(stream, front, now_s)

    def _refused(self, stream: _Stream, reason: str, now_s: float) -> None:
        for front in list(stream.fronts.values()):
            self.unsubscribe(front.client, front.id, now_s)
            self._broker.send(front.client, Refused(about=front.id, reason=reason), now_s)
        self._forget(stream)

    def _fetched(self, stream: _Stream, after: int, results: tuple[ChannelResult, ...], now_s: float) -> None:
        self.results_in_count += len(results)
        if after == stream.cached_until:
            stream.cached.extend(results)
            self._cached_count += len(results)
            if not results:  # what was there is no longer kept by the back end
                self._cached_count -= len(stream.cached)
                stream.cached.clear()
                stream.cached_after = stream.fetching_until
                for front in stream.fronts.values():
                    if front.position is not None and after <= front.position:
                        front.position = max(front.position, stream.fetching_until)
            return
        for front in stream.fronts.values():  # those behind the cache are fed at once, nothing of it is kept
            if front.position is not None and after <= front.position < stream.cached_after:
                if results:
                    self._feed(front, stream, results, now_s)
                else:
                    front.position = stream.cached_after

    # ---- feeding ----

    def _serve(self, stream: _Stream, now_s: float) -> list[BackEndRequest]:
        """Put what there is into the queues that have room, and ask for what is missing."""
        if not stream.is_open:
            return []
        self._streams[stream.name] = self._streams.pop(stream.name)
        for front in stream.fronts.values():
            if front.position is not None and stream.cached_after <= front.position < stream.cached_until:
                self._feed(front, stream, stream.cached, now_s)
            if front.position is not None and front.position < stream.newest:
                self._hungry.setdefault(front.client, {})[stream.name] = None
            else:
                self._eats_no_more(stream, front.client)
        self._bound_cache()
        return self._fetch(stream)

    def _feed(
        self, front: _Front, stream: _Stream, results: list[ChannelResult] | tuple[ChannelResult, ...], now_s: float
    ) -> None:
        assert front.position is not None
        place = bisect_right(results, front.position, key=_position)
        for result in results[place : place + self._room(front.client)]:
            message = Publish(
                publisher=stream.name, sequence=result.position, values=result.values, origin_s=result.executed_s
            )
            self._broker.send(front.client, message, now_s)
            front.position = result.position
            self.results_out_count += 1

    def _room(self, client: str) -> int:
        peer = self._broker.peers[client]
        return max(0, min(AHEAD_MAX_COUNT, peer.queue_max_count) - peer.link.queued_data_count)

    def _eats_no_more(self, stream: _Stream, client: str) -> None:
        """A stream has no more for a client than it was given."""
        names = self._hungry.get(client, {})
        names.pop(stream.name, None)
        if not names:
            self._hungry.pop(client, None)

    def _fetch(self, stream: _Stream) -> list[BackEndRequest]:
        """Ask for the next results, in turn for those at the end of the cache and for the one furthest behind it."""
        if stream.fetching_after is not None:
            return []
        behind: int | None = None
        at_end = False
        for front in stream.fronts.values():
            if front.position is None or front.position >= stream.newest or not self._room(front.client):
                continue
            if front.position < stream.cached_after:
                behind = front.position if behind is None else min(behind, front.position)
            elif front.position >= stream.cached_until:
                at_end = True
        if behind is None and not at_end:
            return []
        stream.helped_laggard = behind is not None and not (at_end and stream.helped_laggard)
        after = behind if behind is not None and stream.helped_laggard else stream.cached_until
        stream.fetching_after, stream.fetching_until = after, stream.newest
        return [FetchResults(stream.name, after, FETCH_MAX_COUNT)]

    def _bound_cache(self) -> None:
        """Let go of cached results, those of the streams that were used longest ago first."""
        for stream in self._streams.values():
            if self._cached_count <= self._cache_max_count:
                return
            if not stream.cached:
                continue
            gone_count = min(len(stream.cached), self._cached_count - self._cache_max_count)
            stream.cached_after = stream.cached[gone_count - 1].position
            del stream.cached[:gone_count]
            self._cached_count -= gone_count

    # ---- time ----

    def wake_at_s(self) -> float | None:
        """When `wake` should be called: at once if a hungry client's queue has room again, or when a stream ends."""
        if any(2 * self._room(client) >= self._limit(client) for client in self._hungry if self._is_fed_next(client)):
            return 0.0
        return next(iter(self._closing_s.values()), None)

    def _limit(self, client: str) -> int:
        return min(AHEAD_MAX_COUNT, self._broker.peers[client].queue_max_count)

    def _is_fed_next(self, client: str) -> bool:
        """Whether something for a client is missing only because its queue was full."""
        return any(self._streams[name].fetching_after is None for name in self._hungry[client])

    def wake(self, now_s: float) -> list[BackEndRequest]:
        """Feed the hungry, and end streams that nobody has wanted for a while."""
        requests: list[BackEndRequest] = []
        for name in list(dict.fromkeys(name for names in self._hungry.values() for name in names)):
            requests += self._serve(self._streams[name], now_s)
        for name in [name for name, closes_s in self._closing_s.items() if now_s >= closes_s]:
            self._forget(self._streams[name])
            requests.append(CloseStream(name))
        return requests

    def _forget(self, stream: _Stream) -> None:
        del self._streams[stream.name]
        self._closing_s.pop(stream.name, None)
        self._cached_count -= len(stream.cached)


def _position(result: ChannelResult) -> int:
    return result.position
