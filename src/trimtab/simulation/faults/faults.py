"""Faults as declared data: what goes wrong, where, when and how often.

Inside one connection frames keep their order, as TCP promises; only the order between different senders changes.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class FrameFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """Something that happens to single frames of a link, or of all links, during some time."""

    between: tuple[str, str] | None = None
    """The two ends of the link; all links if not given."""

    at_s: float = 0.0
    """When, in the time of the scenario."""
    for_s: float
    """For how long."""
    probability: float
    """The share of frames that it happens to."""

    def __post_init__(self) -> None:
        _check_times(self.at_s, self.for_s)
        if not 0 <= self.probability <= 1:
            raise ValueError(f"a probability lies between 0 and 1, which {self.probability} does not")


class Drop(FrameFault, frozen=True, tag="drop"):
    """Frames vanish while the connection lives."""


class Duplicate(FrameFault, frozen=True, tag="duplicate"):
    """Frames arrive twice."""


class Delay(FrameFault, frozen=True, tag="delay"):
    """Frames take longer, and those behind them wait."""

    delay_s: float
    """Frames take so much longer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_times(0.0, self.delay_s)


class Reorder(FrameFault, frozen=True, tag="reorder"):
    """Frames take longer by a random time, so that frames of different senders arrive in another order."""

    spread_s: float
    """Frames take up to so much longer, each its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_times(0.0, self.spread_s)


class Cut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="cut"):
    """A connection breaks and comes back; what is under way is lost, and each end may notice late."""

    between: tuple[str, str]
    """The two ends of the link."""
    at_s: float
    """When, in the time of the scenario."""
    for_s: float
    """For how long."""
    noticed_after_s: tuple[float, float] = (0.0, 0.0)
    """After how long each end notices."""

    def __post_init__(self) -> None:
        _check_times(self.at_s, self.for_s)


class Partition(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="partition"
):
    """All connections between these brokers (with their clients) and the others break and come back together."""

    brokers: tuple[str, ...]
    """Those on one side."""
    at_s: float
    """When, in the time of the scenario."""
    for_s: float
    """For how long."""

    def __post_init__(self) -> None:
        _check_times(self.at_s, self.for_s)


class Pause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="pause"):
    """A broker does nothing for a while; what arrives waits."""

    broker: str
    """The broker, by name."""
    at_s: float
    """When, in the time of the scenario."""
    for_s: float
    """For how long."""

    def __post_init__(self) -> None:
        _check_times(self.at_s, self.for_s)


class Crash(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="crash"):
    """A broker's process is killed: all that it knew is lost, and its connections break; it does not come back."""

    broker: str
    """The broker, by name."""
    at_s: float
    """When, in the time of the scenario."""
    noticed_after_s: float = 0.0
    """The other ends of its connections notice after so long."""

    def __post_init__(self) -> None:
        _check_times(self.at_s, self.noticed_after_s)


class Hang(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="hang"):
    """A broker does nothing any more, while its connections stand."""

    broker: str
    """The broker, by name."""
    at_s: float
    """When, in the time of the scenario."""

    def __post_init__(self) -> None:
        _check_times(self.at_s, 0.0)


class Congest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="congest"):
    """Other work leaves a broker's processor so slow for a while."""

    broker: str
    """The broker, by name."""
    at_s: float
    """When, in the time of the scenario."""
    for_s: float
    """For how long."""
    cpu_mhz: float
    """What its processor is slowed down to."""

    def __post_init__(self) -> None:
        _check_times(self.at_s, self.for_s)
        if self.cpu_mhz <= 0:
            raise ValueError("a congested broker has a processor yet")


class FlipBit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="flip-bit"):
    """A bit of what is on a broker's disk is another one from then on."""

    broker: str
    """The broker, by name."""
    at_s: float
    """When, in the time of the scenario."""

    def __post_init__(self) -> None:
        _check_times(self.at_s, 0.0)


class FullDisk(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="full-disk"
):
    """A broker's disk has no room for a while."""

    broker: str
    """The broker, by name."""
    at_s: float
    """When, in the time of the scenario."""
    for_s: float
    """For how long."""

    def __post_init__(self) -> None:
        _check_times(self.at_s, self.for_s)


class SlowDisk(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="slow-disk"
):
    """Each write of a broker's disk takes so long for a while."""

    broker: str
    """The broker, by name."""
    at_s: float
    """When, in the time of the scenario."""
    for_s: float
    """For how long."""
    write_s: float
    """How long each write takes then."""

    def __post_init__(self) -> None:
        _check_times(self.at_s, self.for_s)
        _check_times(self.write_s, 0.0)


DiskFault: TypeAlias = FlipBit | FullDisk | SlowDisk
"""What goes wrong with a disk besides power losses, which come with deaths."""

Fault: TypeAlias = Drop | Duplicate | Delay | Reorder | Cut | Partition | Pause | Crash | Hang | Congest | DiskFault

KINDS = ("drop", "duplicate", "delay", "reorder", "cut", "partition", "pause")
"""The names of all kinds that heal, and that no broker forgets anything by."""


def _check_times(at_s: float, for_s: float) -> None:
    if not (0 <= at_s < float("inf") and 0 <= for_s < float("inf")):
        raise ValueError("times of a fault are finite and not negative")
