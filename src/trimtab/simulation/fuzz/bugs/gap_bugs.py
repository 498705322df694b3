"""Deliberate mistakes in what is told of losses, to show that the fuzzer would find them; see `bugs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from trimtab.broker.replication.gaps import DroppingLink
from trimtab.broker.replication.gaps import Gaps as BrokerGaps
from trimtab.client.gaps import Break
from trimtab.client.gaps import Gaps as ClientGaps
from trimtab.protocol.effects import GapNotice
from trimtab.protocol.link import Link
from trimtab.simulation.fuzz.bugs.move_bugs import Patch


def _tell_no_gaps() -> list[Patch]:
    return [(BrokerGaps, "_begin_break", lambda self, lossy, reason, now_s, asks=True: None)]


def _tell_gaps_always() -> list[Patch]:
    return [(BrokerGaps, "_loses_all", property(lambda self: self._is_successor))]


def _tell_too_little() -> list[Patch]:
    original = ClientGaps._interval

    def interval(self: ClientGaps, known: Break, publisher: str, session: str, last: int | None) -> list[GapNotice]:
        told = original(self, known, publisher, session, last)
        return [msgspec.structs.replace(each, first=(each.first or 0) + 1) for each in told if each.first != each.last]

    return [(ClientGaps, "_interval", interval)]


def _drop_in_silence() -> list[Patch]:
    return [(DroppingLink, "drop_oldest_data", Link.drop_oldest_data)]


GapBug = tuple[str, str, Callable[[], list[Patch]]]

GAP_BUGS: Final[tuple[GapBug, ...]] = (
    ("tell-no-gaps", "an incarnation that has lost what was under way tells nobody", _tell_no_gaps),
    ("tell-gaps-always", "every incarnation says that something may be lost, also at `safe`", _tell_gaps_always),
    ("tell-too-little", "what is told of a loss leaves out its first number", _tell_too_little),
)
"""Those that show in runs in which brokers die: their names, what they do, and what they replace."""

DROP_BUGS: Final[tuple[GapBug, ...]] = (
    ("drop-in-silence", "a client is not told which publications were dropped because it is slow", _drop_in_silence),
)
"""Those that show in runs without deaths."""
