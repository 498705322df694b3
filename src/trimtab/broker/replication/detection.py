"""Which neighbours live: crash, hang and congestion told apart by what is observed.

A connection that broke and does not come back is a crash. One that stands while its other end says nothing, though
asked, is a hang. One whose other end answers while the queue towards it stays long is congestion. Before the first
two a neighbour is suspected for a while, and any sign of life ends the suspicion.

Signs of life are numbers that the link counts anyway, looked at from time to time: a link that carries something costs
nothing more, and a silent one a question and an answer for each look.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from trimtab.broker.replication.config import ReplicationConfig

Verdict: TypeAlias = Literal["alive", "suspected", "congestion", "crash", "hang"]


class Signs(msgspec.Struct, frozen=True):
    """What a link shows of the neighbour at its other end at one moment."""

    is_connected: bool
    heard_count: int
    """Grows with whatever comes from the neighbour."""
    queued_count: int
    """Publications that wait for it."""


class Inspection(msgspec.Struct, frozen=True):
    """What a look at a neighbour shows, and whether to ask it for a sign."""

    verdict: Verdict
    asks: bool = False


class Watched:
    """One neighbour under observation.

    >>> watched = Watched(ReplicationConfig(), 0.0)
    >>> watched.look(Signs(True, 5, 0), 0.5)
    Inspection(verdict='alive', asks=False)
    >>> watched.look(Signs(True, 5, 0), 1.0)
    Inspection(verdict='alive', asks=True)
    >>> [watched.look(Signs(True, 5, 0), time_s).verdict for time_s in (1.5, 3.0, 3.5)]
    ['suspected', 'suspected', 'hang']
    >>> watched.look(Signs(True, 6, 0), 4.0)
    Inspection(verdict='alive', asks=False)
    """

    __slots__ = ("_away_since_s", "_config", "_heard_count", "_heard_s", "_long_since_s")

    def __init__(self, config: ReplicationConfig, now_s: float) -> None:
        self._config = config
        self._heard_count = -1
        self._heard_s = now_s
        self._away_since_s: float | None = None
        self._long_since_s: float | None = None

    def look(self, signs: Signs, now_s: float) -> Inspection:
        """Look at the neighbour's signs of life."""
        config = self._config
        if not signs.is_connected:
            if self._away_since_s is None:
                self._away_since_s = now_s
            return Inspection("crash" if now_s - self._away_since_s >= config.crash_after_s else "suspected")
        if self._away_since_s is not None or signs.heard_count != self._heard_count:
            self._away_since_s = None
            self._heard_count = signs.heard_count
            self._heard_s = now_s
        if signs.queued_count < config.congested_count:
            self._long_since_s = None
        elif self._long_since_s is None:
            self._long_since_s = now_s
        silent_s = now_s - self._heard_s
        if silent_s >= config.hang_after_s:
            return Inspection("hang", asks=True)
        if silent_s >= config.suspect_after_s:
            return Inspection("suspected", asks=True)
        is_congested = self._long_since_s is not None and now_s - self._long_since_s >= config.congested_after_s
        return Inspection("congestion" if is_congested else "alive", asks=silent_s > 0)
