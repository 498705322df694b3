"""The settings of tracing and selection, each with its unit, default, reason and source.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms for minimizing average delivery delay and system
load (CSRG-597, 2009), sections 3.1, 3.2, 4.1 and 4.2. Where the paper names no value, the field says so.
"""

from __future__ import annotations

import math
import re
from typing import Final, Literal, TypeAlias

import msgspec

Algorithm: TypeAlias = Literal["pop", "grape", "grape-joint"]
"""pop: to where most deliveries are, step by step; grape: load or delay, weighed, for one publisher at a time;
grape-joint: the same for all publishers of a broker together, and never above what a broker can bear."""

Priority: TypeAlias = Literal["load", "delay"]


class Aim(msgspec.Struct, frozen=True):
    """What GRAPE is to lower first, and how much that counts (section 4.2)."""

    priority: Priority = "load"
    weight_percent: float = 100.0

    def __post_init__(self) -> None:
        if not 0 <= self.weight_percent <= 100:
            raise ValueError(f"a weight lies between 0 and 100 percent, not at {self.weight_percent}")


class RelocationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that all brokers of a network share.

    >>> RelocationConfig(publishers={"P7": Aim("delay")}).aim_of("P7").priority
    'delay'
    """

    algorithm: Algorithm = "grape"
    """The algorithm; a policy's name counts more."""

    # Tracing

    pop_window_s: float = 60.0
    """POP counts its tagged publications anew after so long (W, section 3.1)."""

    pop_window_count: int = 50
    """POP tags at most so many publications of a publisher within a window (N, section 3.1)."""

    pop_threshold_count: int = 100
    """So many traced publications start POP's selection (P_threshold, section 3.2)."""

    pop_newest_weight: float = 0.25
    """The weight of the newest value in a profile's running average; the rest is the average so far (section 3.1)."""

    grape_threshold_count: int = 100
    """Publications of a trace session (G_threshold, section 4.1)."""

    traces_max_count: int = 10_000
    """Traced publications (POP) or sessions (GRAPE) that a broker remembers at once (no value given): those of
    thousands of publishers; the oldest are forgotten first."""

    answer_timeout_s: float = 30.0
    """Answers of downstream brokers, round-trip times and requests are awaited for so long (no value given): control
    messages overtake all others, so that an answer from behind ten overloaded brokers comes within seconds."""

    # Selection

    aim: Aim = Aim()
    """What GRAPE lowers, for all publishers without an aim of their own."""

    publishers: dict[str, Aim] = {}
    """Aims of single publishers by name; the paper has one for the whole network."""

    gain_threshold_ratio: float = 0.05
    """A publisher moves only if this share of what counts is saved (no value given): total messages or mean delay with
    GRAPE, hops per delivery with POP. Estimates from 100 publications are not finer than that."""

    move_memory_s: float = 600.0
    """Each move of a publisher within so long doubles the share that the next one must save (no value given): a move
    brings subscriptions to the new broker, whose matching then takes longer than was measured before, and evidence
    that calls a publisher back and forth must grow each time."""

    rest_s: float = 30.0
    """After a decision a publisher is not traced for so long (no value given): three times the window over which delays
    are measured, so that new evidence is of the new place, and little is traced where nothing changes."""

    # Joint placement

    lower_overload_ratio: float = 0.9
    """No broker's utilisation is pushed above this by relocation (thesis of 2006, Table 5.2)."""

    room_margin_ratio: float = 0.025
    """Rooms are planned to stay below it by this (no value given): by as much as ratios fluctuate at rest."""

    joint_wait_s: float = 5.0
    """After the first complete trace of a round the others of the same broker are awaited for so long (no value
    given)."""

    room_lifetime_s: float = 20.0
    """Room that was promised counts as taken for so long (no value given): a move and a window of the meters."""

    def __post_init__(self) -> None:
        for name, value in msgspec.structs.asdict(self).items():
            if isinstance(value, int | float) and (not math.isfinite(value) or value < 0):
                raise ValueError(f"{name} must be finite and not negative, not {value}")
        for name in ("pop_window_s", "pop_window_count", "pop_threshold_count", "grape_threshold_count"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive")
        if not 0 < self.pop_newest_weight <= 1:
            raise ValueError(f"pop_newest_weight lies above 0 and is at most 1, not {self.pop_newest_weight}")
        if self.grape_threshold_count > TRACE_MAX_COUNT:
            raise ValueError(f"a trace session has at most {TRACE_MAX_COUNT:,} publications")

    def aim_of(self, publisher: str) -> Aim:
        """What is wanted for one publisher."""
        return self.publishers.get(publisher, self.aim)

    def gain_wanted_ratio(self, moves_count: int) -> float:
        """What a publisher that has moved so often lately must save by another move.

        >>> [RelocationConfig().gain_wanted_ratio(count) for count in range(4)]
        [0.05, 0.1, 0.2, 0.4]
        """
        return float(self.gain_threshold_ratio * 2 ** min(moves_count, 60))

    @property
    def bearable_ratio(self) -> float:
        """Up to which utilisation relocation may fill a broker.

        >>> RelocationConfig().bearable_ratio
        0.875
        """
        return self.lower_overload_ratio - self.room_margin_ratio


TRACE_MAX_COUNT: Final = 10_000
"""Publications of one trace session: the length of the longest bit vector."""

_NAME: Final = re.compile(r"(?P<algorithm>pop|grape(?:-joint)?)(?:-(?P<priority>load|delay)(?P<weight>\d{1,3}))?")


def relocation_of(policy: str, config: RelocationConfig | None = None) -> RelocationConfig | None:
    """The settings that a policy's name asks for; None if it is no name of a relocation policy.

    >>> relocation_of("grape-delay25").aim
    Aim(priority='delay', weight_percent=25.0)
    >>> relocation_of("grape-joint").algorithm, relocation_of("padres")
    ('grape-joint', None)
    """
    found = _NAME.fullmatch(policy)
    if found is None or (found["algorithm"] == "pop" and found["priority"]):
        return None
    config = config or RelocationConfig()
    aim = config.aim
    if found["priority"]:
        weight_percent = float(found["weight"])
        if weight_percent > 100:
            return None
        aim = Aim("load" if found["priority"] == "load" else "delay", weight_percent)
    algorithm = msgspec.convert(found["algorithm"], Algorithm)
    return msgspec.structs.replace(config, algorithm=algorithm, aim=aim)
