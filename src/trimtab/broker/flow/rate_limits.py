"""Limits on what one client may send, so that a client that sends too much harms itself and nobody else.

Source: R. Tao, S. Poslad, J. Bigham, resilient delay sensitive load management in environment crisis messaging systems
(2013), section I, names the attacks: high rates, large messages, many useless topics, slow subscribers. The paper
answers them by balancing load; to lock unknown publishers out is no answer, for in a crisis they may have useful news.

A client's publications and requests pass a gate. Each gate has three measures: publications, bytes and requests, each
with a rate and a store that a pause fills up. What a client sends beyond them waits at the gate, in its order; its
credit runs out (`Link`), so that it waits itself, and it is told why. A client that nobody knows has a newcomer's
rates. What it then sends without being held back becomes usual for it, and it may send a multiple of that: the burst of
a known publisher passes. What is held back teaches nothing, so that a flood does not raise its own limit.

Deviations: the paper has no limits. Rates that were learnt stay with the broker: a client that moves is a newcomer at
the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from math import exp
from typing import Final

import msgspec

from trimtab.protocol.messages import (
    Advertise,
    AnyMessage,
    MoveIn,
    Publish,
    Subscribe,
    SubscribeChannel,
    Unsubscribe,
    is_control,
)

LOOK_AGAIN_AFTER_S: Final = 0.01
"""What waits at gates is looked at no more often than this: a broker need not wake for each of many messages."""

LEARN_EVERY_S: Final = 1.0
"""Rates are counted over so long before they count as usual."""

_NEVER_S: Final = float("inf")


class Allowance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client may send that the operator knows; nothing is learnt about it."""

    rate_per_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        _check_positive(rate_per_s=self.rate_per_s, bytes_per_s=self.bytes_per_s)


class RateLimitConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one broker for its clients.

    >>> RateLimitConfig(newcomer_rate_per_s=0)
    Traceback (most recent call last):
    ...
    ValueError: newcomer_rate_per_s must be above 0
    """

    newcomer_rate_per_s: float = 100.0
    """Publications of a client that nothing is known about: twice a publisher of the paper's Table VI."""

    newcomer_bytes_per_s: float = 100_000.0
    """Their bytes: 100 of the largest of Table VI."""

    growth_factor: float = 3.0
    """A client may send so many times what is usual for it; crises double rates in the paper."""

    rate_max_per_s: float = 100_000.0
    """No rate limit is above this."""
    bytes_max_per_s: float = 100_000_000.0
    """No limit that is learnt exceeds these: what one broker process carries."""

    burst_s: float = 0.2
    """So many seconds' worth may come at once after a pause: more would stand before everybody else."""

    learning_s: float = 30.0
    """What is usual is a mean over some such time: longer than a burst that should not count, shorter than a day."""

    publication_max_bytes: int = 65_536
    """A larger publication is refused: on a line of 8 Mbps this one takes as long as a hop to a subscriber takes."""

    requests_per_s: float = 20.0
    """Subscriptions, advertisements and their ends: each may touch every broker of the network."""

    requests_burst_count: int = 50
    """So many requests may come at once: an application that starts."""

    waiting_max_bytes: int = 100_000
    """What of one client may wait for its turn."""
    requests_waiting_max_count: int = 100
    """The world takes nothing more from a client for which so much waits, until less does: reading it takes time, too,
    which is everybody's."""

    tell_every_s: float = 10.0
    """A client is told no more often than this that it is held back."""

    known: dict[str, Allowance] = {}
    """Clients with limits of their own, by name, or by how names begin (`"buoy-*"`)."""

    def __post_init__(self) -> None:
        numbers = {name: value for name, value in msgspec.structs.asdict(self).items() if name != "known"}
        _check_positive(**numbers)
        if self.growth_factor < 1:
            raise ValueError("growth_factor must be at least 1: what is usual must be allowed")
        if self.rate_max_per_s < self.newcomer_rate_per_s or self.bytes_max_per_s < self.newcomer_bytes_per_s:
            raise ValueError("no newcomer may send more than the most that anybody may send")

    def allowance_of(self, client: str) -> Allowance | None:
        """The limits that the operator gave a client.

        >>> buoys = RateLimitConfig(known={"buoy-*": Allowance(rate_per_s=500, bytes_per_s=1e6)})
        >>> buoys.allowance_of("buoy-7").rate_per_s, buoys.allowance_of("visitor")
        (500, None)
        """
        for name, allowance in self.known.items():
            if client == name or (name.endswith("*") and client.startswith(name[:-1])):
                return allowance
        return None


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < _NEVER_S:
            raise ValueError(f"{name} must be above 0")


class Store:
    """What may be spent of something that comes at a steady rate; one may spend more than there is, and must wait then.

    >>> store = Store(level=10.0, now_s=0.0)
    >>> store.spend(12.0)
    >>> store.wait_s(rate_per_s=4.0, most=10.0, now_s=0.0), store.wait_s(rate_per_s=4.0, most=10.0, now_s=0.5)
    (0.5, 0.0)
    """

    __slots__ = ("_at_s", "_level")

    def __init__(self, level: float, now_s: float) -> None:
        self._level = level
        self._at_s = now_s

    def spend(self, amount: float) -> None:
        """Take something out."""
        self._level -= amount

    def wait_s(self, rate_per_s: float, most: float, now_s: float) -> float:
        """How long until something may be spent again, 0 if it may be now."""
        if now_s > self._at_s:
            self._level = min(most, self._level + (now_s - self._at_s) * rate_per_s)
            self._at_s = now_s
        return max(0.0, -self._level / rate_per_s)


class ClientLimits:
    """What one client may send, and what waits of what it sent."""

    def __init__(self, config: RateLimitConfig, client: str, now_s: float) -> None:
        self._config = config
        self._allowance = config.allowance_of(client)
        self._usual_per_s = 0.0
        self._usual_bytes_per_s = 0.0
        self._counted_from_s = now_s
        self._counted = 0
        self._counted_bytes = 0
        self._is_taught_nothing = False
        self._publications = Store(self.rate_per_s * config.burst_s, now_s)
        self._bytes = Store(self.bytes_per_s * config.burst_s, now_s)
        self._requests = Store(config.requests_burst_count, now_s)
        self.data: deque[tuple[AnyMessage, int]] = deque()
        """Publications and markers that wait, with their sizes."""
        self.control: deque[AnyMessage] = deque()
        self.waiting_bytes = 0
        self.told_s = -_NEVER_S
        """When the client was last told that it is held back."""

    @property
    def rate_per_s(self) -> float:
        """Publications that the client may send."""
        if self._allowance is not None:
            return self._allowance.rate_per_s
        config = self._config
        learnt_per_s = min(config.growth_factor * self._usual_per_s, config.rate_max_per_s)
        return max(config.newcomer_rate_per_s, learnt_per_s)

    @property
    def bytes_per_s(self) -> float:
        """Bytes that the client may send."""
        if self._allowance is not None:
            return self._allowance.bytes_per_s
        config = self._config
        learnt_per_s = min(config.growth_factor * self._usual_bytes_per_s, config.bytes_max_per_s)
        return max(config.newcomer_bytes_per_s, learnt_per_s)

    def data_wait(self, now_s: float) -> tuple[float, str]:
        """How long the next publication has to wait, and why."""
        self._learn(now_s)
        burst_s, rate_per_s, bytes_per_s = self._config.burst_s, self.rate_per_s, self.bytes_per_s
        wait_s = self._publications.wait_s(rate_per_s, rate_per_s * burst_s, now_s)
        bytes_wait_s = self._bytes.wait_s(bytes_per_s, bytes_per_s * burst_s, now_s)
        if bytes_wait_s > wait_s:
            return bytes_wait_s, f"more than {bytes_per_s:,.0f} bytes per second"
        return wait_s, f"more than {rate_per_s:,.0f} publications per second"

    def control_wait(self, now_s: float) -> tuple[float, str]:
        """How long the next request has to wait, and why."""
        rate_per_s = self._config.requests_per_s
        wait_s = self._requests.wait_s(rate_per_s, self._config.requests_burst_count, now_s)
        return wait_s, f"more than {rate_per_s:g} subscriptions and advertisements per second"

    def pass_data(self, size_bytes: int) -> None:
        """A publication goes on."""
        self._publications.spend(1)
        self._bytes.spend(size_bytes)
        self._counted += 1
        self._counted_bytes += size_bytes

    def pass_control(self, message: AnyMessage) -> None:
        """A request goes on."""
        self._requests.spend(requests_in(message))

    def hold_data(self, message: AnyMessage, size_bytes: int) -> None:
        """A publication waits."""
        self.data.append((message, size_bytes))
        self.waiting_bytes += size_bytes
        self._is_taught_nothing = True

    def _learn(self, now_s: float) -> None:
        """What the client has sent lately becomes usual, unless it was held back meanwhile."""
        passed_s = now_s - self._counted_from_s
        if passed_s < LEARN_EVERY_S:
            return
        if not self._is_taught_nothing:
            weight = 1 - exp(-passed_s / self._config.learning_s)
            self._usual_per_s += weight * (self._counted / passed_s - self._usual_per_s)
            self._usual_bytes_per_s += weight * (self._counted_bytes / passed_s - self._usual_bytes_per_s)
        self._counted_from_s = now_s
        self._counted = self._counted_bytes = 0
        self._is_taught_nothing = bool(self.data)


def requests_in(message: AnyMessage) -> int:
    """How many requests a message counts for: a client that moves brings all its filters along.

    >>> from trimtab.protocol.messages import Unsubscribe
    >>> requests_in(Unsubscribe(id="s1")), requests_in(MoveIn(stay=2, old_broker="B1"))
    (1, 1)
    """
    if isinstance(message, MoveIn):
        return max(1, len(message.subscriptions) + len(message.advertisements))
    return 1 if isinstance(message, Subscribe | Advertise | SubscribeChannel | Unsubscribe) else 0


class RateLimits:
    """The gates of a broker's clients."""

    def __init__(self, config: RateLimitConfig, size_of: Callable[[Publish], int]) -> None:
        self.config = config
        self._size_of = size_of
        self._gates: dict[str, ClientLimits] = {}
        self._waiting: dict[str, None] = {}
        """Clients of which something waits."""
        self._look_at_s = _NEVER_S
        self.held_back_count = 0
        """Messages that ever had to wait."""

    @property
    def waiting_count(self) -> int:
        """Publications and markers that wait at gates."""
        return sum(len(self._gates[client].data) for client in self._waiting)

    def gate(self, client: str, now_s: float) -> ClientLimits:
        """A client's gate."""
        gate = self._gates.get(client)
        if gate is None:
            gate = self._gates[client] = ClientLimits(self.config, client, now_s)
        return gate

    def admit(self, client: str, messages: list[AnyMessage], now_s: float) -> tuple[list[AnyMessage], str]:
        """Which of a client's messages go on at once, and what to tell it if others wait."""
        gate = self.gate(client, now_s)
        passed: list[AnyMessage] = []
        reason = ""
        for message in messages:
            if is_control(message):
                wait_s, why = gate.control_wait(now_s)
                if not gate.control and (wait_s <= 0 or not requests_in(message)):
                    gate.pass_control(message)
                    passed.append(message)
                    continue
                gate.control.append(message)
            else:
                size_bytes = self._size_of(message) if isinstance(message, Publish) else 0
                wait_s, why = gate.data_wait(now_s)
                if not gate.data and wait_s <= 0:
                    gate.pass_data(size_bytes)
                    passed.append(message)
                    continue
                gate.hold_data(message, size_bytes)
            self.held_back_count += 1
            self._waiting[client] = None
            self._look_at_s = min(self._look_at_s, now_s + max(wait_s, LOOK_AGAIN_AFTER_S))
            reason = reason or why
        return passed, self._news(gate, reason, now_s) if reason else ""

    def _news(self, gate: ClientLimits, reason: str, now_s: float) -> str:
        """What a client is told that is held back, nothing if it was told lately."""
        if now_s < gate.told_s + self.config.tell_every_s:
            return ""
        gate.told_s = now_s
        return f"{reason}; what is beyond waits"

    def release(self, now_s: float) -> Iterator[tuple[str, list[AnyMessage]]]:
        """What has waited long enough, by client."""
        if now_s < self._look_at_s:
            return
        self._look_at_s = _NEVER_S
        for client in list(self._waiting):
            gate = self._gates[client]
            passed: list[AnyMessage] = []
            while gate.control:
                wait_s, _ = gate.control_wait(now_s)
                if wait_s > 0 and requests_in(gate.control[0]):
                    self._look_at_s = min(self._look_at_s, now_s + max(wait_s, LOOK_AGAIN_AFTER_S))
                    break
                gate.pass_control(gate.control[0])
                passed.append(gate.control.popleft())
            while gate.data:
                wait_s, _ = gate.data_wait(now_s)
                if wait_s > 0:
                    self._look_at_s = min(self._look_at_s, now_s + max(wait_s, LOOK_AGAIN_AFTER_S))
                    break
                message, size_bytes = gate.data.popleft()
                gate.waiting_bytes -= size_bytes
                gate.pass_data(size_bytes)
                passed.append(message)
            if not gate.control and not gate.data:
                del self._waiting[client]
            if passed:
                yield client, passed

    def look_at_s(self) -> float | None:
        """When something that waits may go on."""
        return self._look_at_s if self._waiting else None

    def objection_to_size(self, message: Publish) -> str:
        """Why a publication is refused, empty if it is not."""
        size_bytes = self._size_of(message)
        if size_bytes <= self.config.publication_max_bytes:
            return ""
        return f"a publication of {size_bytes:,} bytes; at most {self.config.publication_max_bytes:,} are allowed here"

    def is_full(self, client: str) -> bool:
        """Whether nothing more is to be taken in from a client for the time being."""
        gate = self._gates.get(client)
        return gate is not None and (
            gate.waiting_bytes >= self.config.waiting_max_bytes
            or len(gate.control) >= self.config.requests_waiting_max_count
        )

    def waiting(self) -> Iterator[tuple[str, AnyMessage]]:
        """The publications and markers that wait, with their clients."""
        for client in self._waiting:
            for message, _ in self._gates[client].data:
                yield client, message

    def forget(self, client: str) -> None:
        """A client is gone for good."""
        self._gates.pop(client, None)
        self._waiting.pop(client, None)

    def limits(self) -> Mapping[str, tuple[float, float]]:
        """What each client may send: publications and bytes per second."""
        return {client: (gate.rate_per_s, gate.bytes_per_s) for client, gate in self._gates.items()}
