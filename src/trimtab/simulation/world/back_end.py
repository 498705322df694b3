"""A simulated back end: streams of results with positions, answers after a latency, and times when it is away.

It makes a result whenever something happens in a stream that some broker has opened; what happens in a stream that
nobody has opened is lost, which the checker compares with who should have got it.
"""

from __future__ import annotations

from collections import deque
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
from trimtab.protocol.messages import WireValue
from trimtab.simulation.checkers.channels import ChannelChecker
from trimtab.simulation.world.clock import Clock

if TYPE_CHECKING:
    from trimtab.simulation.world.broker_host import BrokerHost

RESULTS_KEPT_MAX_COUNT: Final = 100_000
RESULT_BYTES: Final = 320
"""The usual size of a publication."""


class BackEnd:
    """The active-data back end of a simulated network."""

    def __init__(self, clock: Clock, checker: ChannelChecker, latency_s: float, channels: tuple[str, ...]) -> None:
        self._clock = clock
        self._checker = checker
        self._latency_s = latency_s
        self._channels = channels
        self._results: dict[str, deque[ChannelResult]] = {}
        self._openers: dict[str, dict[str, BrokerHost]] = {}
        self._hosts: dict[str, BrokerHost] = {}
        self._position = 0
        self.result_bytes = RESULT_BYTES
        """How large a result is that brokers are told of."""
        self._is_away = False

    def join(self, host: BrokerHost) -> None:
        """A broker connects."""
        self._hosts[host.name] = host

    def happen(self, channel: str, arguments: dict[str, WireValue], values: dict[str, WireValue]) -> None:
        """Something happens that a channel with these arguments finds; its openers are told after the latency."""
        stream = stream_name(channel, arguments)
        openers = self._openers.get(stream)
        if not openers:
            self._checker.lost(stream, self._clock.now_s)
            return
        self._position += 1
        result = ChannelResult(self._position, values, self._clock.now_s)
        self._results.setdefault(stream, deque(maxlen=RESULTS_KEPT_MAX_COUNT)).append(result)
        self._checker.made(stream, self._position)
        for host in openers.values():
            self._tell(host, ResultsExist(stream, self._position, 1, self.result_bytes))

    def ask(self, host: BrokerHost, request: BackEndRequest) -> None:
        """A broker's request arrives after the latency, unless the back end is away then."""
        self._clock.at(self._clock.now_s + self._latency_s, self._answer, host, request)

    def _answer(self, host: BrokerHost, request: BackEndRequest) -> None:
        if self._is_away:
            return
        match request:
            case OpenStream(stream=stream, channel=channel):
                if channel not in self._channels:
                    self._tell(host, StreamRefused(stream, f"there is no channel {channel}"))
                    return
                self._openers.setdefault(stream, {})[host.name] = host
                self._tell(host, StreamOpened(stream, self._position))
            case CloseStream(stream=stream):
                self._openers.get(stream, {}).pop(host.name, None)
            case FetchResults(stream=stream, after=after, max_count=max_count):
                found = [each for each in self._results.get(stream, ()) if each.position > after][:max_count]
                self._tell(host, ResultsFetched(stream, after, tuple(found)))

    def _tell(self, host: BrokerHost, event: BackEndEvent) -> None:
        if not self._is_away:
            self._clock.at(self._clock.now_s + self._latency_s, self._arrive, host, event)

    def _arrive(self, host: BrokerHost, event: BackEndEvent) -> None:
        if not host.waits(self._arrive, host, event):
            host.back_end_said(event)

    def go_away(self, for_s: float) -> None:
        """Be unreachable for a while: requests and news of that time are lost, results are not."""
        self._is_away = True
        self._clock.at(self._clock.now_s + for_s, self._come_back)

    def _come_back(self) -> None:
        self._is_away = False
        for host in self._hosts.values():
            self._tell(host, BackEndReached())
