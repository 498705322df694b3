"""What a client knows of brokers from their greetings: epochs, which they may have forgotten, and protocol versions."""

from __future__ import annotations

from typing import Final

from trimtab.protocol.frames import Hello
from trimtab.protocol.messages import VERSION
from trimtab.protocol.versions import common_version

KNOWN_MAX_COUNT: Final = 100
"""Brokers that a client remembers, the latest: more than it meets while all of them forget."""


class KnownBrokers:
    """The highest epoch of each broker, and the version that is spoken with it.

    >>> brokers = KnownBrokers()
    >>> for epoch in (3, 2):
    ...     brokers.greeted("B1", Hello(VERSION, "broker", "B1", "1", 1, epoch=epoch))
    >>> brokers.epoch_of("B1"), brokers.epoch_of("B2"), brokers.version_of("B2") == VERSION
    (3, 0, True)
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}

    def greeted(self, broker: str, hello: Hello) -> None:
        """A broker has greeted."""
        epoch = max(hello.epoch, self._known.pop(broker, (0, 0))[0])
        self._known[broker] = (epoch, common_version(hello, VERSION))
        if len(self._known) > KNOWN_MAX_COUNT:
            del self._known[next(iter(self._known))]

    def epoch_of(self, broker: str) -> int:
        """The highest epoch of a broker that is known, 0 if none is: one that has lost its memory hears it from us."""
        return self._known.get(broker, (0, VERSION))[0]

    def version_of(self, broker: str) -> int:
        """The version of the protocol that is spoken with a broker."""
        return self._known.get(broker, (0, VERSION))[1]
