"""The highest epochs of brokers that a client knows: a broker that has lost its memory hears its own from clients."""

from __future__ import annotations

from typing import Final

KEPT_MAX_COUNT: Final = 100
"""Brokers that a client remembers, the latest: more than it meets while all of them forget."""


class KnownEpochs:
    """Epochs by broker.

    >>> epochs = KnownEpochs()
    >>> epochs.learn("B1", 3), epochs.learn("B1", 2), epochs.of("B1"), epochs.of("B2")
    (None, None, 3, 0)
    """

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}

    def learn(self, broker: str, epoch: int) -> None:
        """A broker has greeted."""
        self._epochs[broker] = max(epoch, self._epochs.pop(broker, 0))
        if len(self._epochs) > KEPT_MAX_COUNT:
            del self._epochs[next(iter(self._epochs))]

    def of(self, broker: str) -> int:
        """The highest epoch of a broker that is known, 0 if none is."""
        return self._epochs.get(broker, 0)
