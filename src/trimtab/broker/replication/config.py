"""The configuration of replication: how failures are noticed and how a failed broker is replaced."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

import msgspec

Protocol: TypeAlias = Literal["basic", "synchronous", "incremental", "incremental-ordered"]
"""How publications go on while a replica learns its routes (sections 3.1, 4.1 and 4.2 of the paper, and ours)."""

PROTOCOLS: Final[tuple[Protocol, ...]] = get_args(Protocol)

Assisting: TypeAlias = Literal["never", "scheduling", "reordering"]
"""Whether an assistant shares the load of a congested broker, and whether order is kept then (section 4.3)."""


FENCE_RATIO: Final = 0.75
"""The usual share of the time to replacement after which a broker is fenced; voters take a fifth more for it."""


class ReplicationConfig(msgspec.Struct, frozen=True):
    """One broker's settings."""

    protocol: Protocol = "synchronous"
    """basic: publications go on at once and may be lost; synchronous: they wait until all routes are there;
    incremental: each goes on when a route for it is there, in whatever order that happens; incremental-ordered: they go
    on at once and in order, to all neighbours that have not told all their subscriptions, which know who wants them."""

    assisting: Assisting = "never"
    """never: a congested neighbour holds its sources back; scheduling: an assistant takes the part of its publications
    that waits least there, in whatever order they arrive; reordering: and they are put in order again behind it."""

    progress_every_s: float = 0.05
    """With re-ordering: how often is said what was sent over both ways; a publication waits for so long at most."""

    relieved_count: int = 16
    """An assistant gets nothing while fewer publications than that wait for the broker that it assists: that broker
    copes alone. Far below `congested_count`, so that assistants do not come and go."""

    relieved_after_s: float = 10.0
    """An assistant that has got nothing for so long leaves: the congestion is over."""

    look_every_s: float = 0.5
    """How often a neighbour's signs of life are looked at; one that was silent since the last look is asked."""

    suspect_after_s: float = 1.0
    """A neighbour that was silent, or away, for so long is suspected: a lost frame or a short pause is shorter."""

    crash_after_s: float = 1.0
    """A neighbour whose connection broke and has not come back for so long has crashed; a restart of TCP is shorter."""

    hang_after_s: float = 3.0
    """A connected neighbour that has said nothing for so long, though asked, hangs; above the longest pause."""

    fence_after_s: float = 0.0
    """A broker that has not heard a majority of brokers and stand-bys for so long acknowledges nothing, where brokers
    that cannot be reached are replaced; 0 is three quarters of the time after which a neighbour has failed, for it must
    be shorter. See `membership.py`."""

    returns_within_s: float = 60.0
    """A neighbour that was asked to end and has said that it returns has crashed if it has not for so long."""

    congested_count: int = 1_024
    """A queue towards a neighbour that is as long as that, the usual window, shows that it does not keep up."""

    congested_after_s: float = 2.0
    """A neighbour that answers but does not keep up for so long is congested; bursts are shorter."""

    ask_again_s: float = 5.0
    """The neighbours of a failed broker ask for a replica one after the other at this distance until one is there."""

    kept_max_count: int = 100_000
    """Publications that a replica keeps for those who come late, the latest; some seconds of a busy broker."""

    @property
    def fences_after_s(self) -> float:
        """The time after which a broker that hears no majority is fenced.

        >>> ReplicationConfig(crash_after_s=2.0).fences_after_s, ReplicationConfig(fence_after_s=0.5).fences_after_s
        (1.5, 0.5)
        """
        return self.fence_after_s or FENCE_RATIO * self.replaces_after_s

    @property
    def replaces_after_s(self) -> float:
        """The shortest time after which a neighbour that cannot be reached has failed."""
        return min(self.crash_after_s, self.hang_after_s)

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"no protocol of replication is called {self.protocol}; there are {', '.join(PROTOCOLS)}")
        if self.assisting not in get_args(Assisting):
            raise ValueError(f"an assistant is started {' or '.join(get_args(Assisting))}, and not {self.assisting}")
        times_s = (
            self.look_every_s,
            self.suspect_after_s,
            self.crash_after_s,
            self.hang_after_s,
            self.progress_every_s,
            self.returns_within_s,
        )
        if min(*times_s, self.congested_after_s, self.relieved_after_s, self.ask_again_s) <= 0:
            raise ValueError("every time of replication is positive")
        if not 0 <= self.fence_after_s < self.replaces_after_s:
            raise ValueError(
                f"fence_after_s must be shorter than the time to replacement, which is {self.replaces_after_s:g} s "
                "(the shorter one of crash_after_s and hang_after_s): who may have been replaced acknowledges nothing"
            )
        if self.hang_after_s < 2 * self.look_every_s:
            raise ValueError("a neighbour needs two looks to be asked and to answer before it can be said to hang")
        if min(self.congested_count, self.relieved_count, self.kept_max_count) < 1:
            raise ValueError("every limit of replication is at least one publication")
