"""Lets clients' messages into a broker as far as their limits allow (`rate_limits.py`), and tells them what waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trimtab.broker.flow.rate_limits import RateLimitConfig, RateLimits
from trimtab.protocol.messages import AnyMessage, Limited, Publish, is_control

if TYPE_CHECKING:
    from trimtab.broker.core import Broker
    from trimtab.broker.peers import Peer


class Throttle:
    """Stands between the links of clients and the input of their broker."""

    def __init__(self, broker: Broker, config: RateLimitConfig) -> None:
        self._broker = broker
        self.protection = RateLimits(config, self._size_of)

    def _size_of(self, message: Publish) -> int:
        return round(self._broker.meters.size_of_bytes(message))

    def admit(self, peer: Peer, messages: list[AnyMessage], now_s: float) -> list[AnyMessage]:
        """Those of a client's messages that go on at once; the others have arrived, but are not dealt with."""
        passed, news = self.protection.admit(peer.name, messages, now_s)
        if len(passed) < len(messages):
            held_count = sum(not is_control(message) for message in messages)
            peer.link.data_arrived(held_count - sum(not is_control(message) for message in passed))
        if news:
            self._broker.send(peer.name, Limited(reason=news), now_s)
        return passed

    def wake(self, now_s: float) -> None:
        """Let in what has waited long enough."""
        for client, messages in self.protection.release(now_s):
            self._broker.input.add(client, messages, self._broker.peers[client].epoch)

    def wake_at_s(self) -> float | None:
        """When something that waits may go on."""
        return self.protection.look_at_s()

    def objection_to(self, message: Publish) -> str:
        """Why a publication is refused, empty if it is not."""
        return self.protection.objection_to_size(message)

    @property
    def waiting_count(self) -> int:
        """Publications and markers that wait to be let in."""
        return self.protection.waiting_count

    def is_full(self, client: str) -> bool:
        """Whether nothing more is to be taken in from a client for the time being."""
        return self.protection.is_full(client)

    def waiting(self) -> Iterator[tuple[str, AnyMessage]]:
        """The publications and markers that wait to be let in, with their clients."""
        return self.protection.waiting()

    def forget(self, client: str) -> None:
        """A client is gone for good."""
        self.protection.forget(client)
