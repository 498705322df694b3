"""A client that takes publications in whatever order they come, each once.

Where the network does not promise the order of a publisher's publications, as while a broker is replaced incrementally,
the number of the last one says nothing about those before it.
"""

from __future__ import annotations

from typing import Final

from trimtab.client.config import ClientConfig
from trimtab.client.session import ClientSession
from trimtab.protocol.channels import STREAM_MARK
from trimtab.protocol.effects import Deliver
from trimtab.protocol.messages import Publish

REMEMBERED_MAX_COUNT: Final = 10_000
"""So many numbers of each publisher are remembered, the latest; far more than can overtake each other."""


class AnyOrderSession(ClientSession):
    """A session that drops only what it has delivered."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self._delivered: dict[tuple[str, str], dict[int, None]] = {}

    def _deliver(self, message: Publish, now_s: float) -> Deliver | None:
        if message.publisher[:1] == STREAM_MARK:
            return super()._deliver(message, now_s)
        delivered = self._delivered.setdefault((message.publisher, message.session), {})
        if message.sequence in delivered:
            return None
        delivered[message.sequence] = None
        if len(delivered) > REMEMBERED_MAX_COUNT:
            del delivered[next(iter(delivered))]
        self._last_delivered.pop(message.publisher, None)
        return super()._deliver(message, now_s)
