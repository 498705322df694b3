"""Time per publication, of the matcher and of the scans that it is compared with, each in its turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from trimtab.language import Value
from trimtab.matching import Matcher

if TYPE_CHECKING:
    from trimtab.lab.bench.numpy_scan import NumpyScan, NumpyTableScan

BATCH_COUNT: Final = 64
"""Publications in one call of match_many."""

TURNS_COUNT: Final = 9
"""Turns over which the median is taken."""

SCANNED_COUNT: Final = 64
"""Publications that the scan matches in each turn."""

TABLE_SCANNED_COUNT: Final = 8
"""Publications that the slower scan over a table matches in each turn."""

Values: TypeAlias = Mapping[str, Value]


class MatchingTimes(msgspec.Struct, frozen=True):
    """Times per publication, medians over the turns."""

    match_us: float
    match_after_scan_us: float
    match_and_list_us: float
    scan_us: float
    table_scan_us: float


def time_matching(
    matcher: Matcher, scan: NumpyScan, table_scan: NumpyTableScan, publications: Sequence[Values]
) -> MatchingTimes:
    """Let the scan and the matcher take turns; what the matcher takes right after a scan is reported by itself.

    The scan of a table has its turns at the end: it reads so much that the others would be slower after it.
    """
    batches = in_batches(publications)
    scan_us: list[float] = []
    match_after_scan_us: list[float] = []
    match_again_us: list[float] = []
    match_and_list_us: list[float] = []
    for _ in range(TURNS_COUNT):
        scan_us.append(_scan_us(scan.match, publications[:SCANNED_COUNT]))
        match_after_scan_us.append(match_us(matcher, batches))
        match_again_us.append(match_us(matcher, batches))
        match_and_list_us.append(_match_and_list_us(matcher, batches))
    table_scanned = publications[:TABLE_SCANNED_COUNT]
    table_scan_us = [_scan_us(table_scan.match, table_scanned) for _ in range(TURNS_COUNT)]
    return MatchingTimes(
        match_us=statistics.median(match_again_us),
        match_after_scan_us=statistics.median(match_after_scan_us),
        match_and_list_us=statistics.median(match_and_list_us),
        scan_us=statistics.median(scan_us),
        table_scan_us=statistics.median(table_scan_us),
    )


def in_batches(publications: Sequence[Values]) -> list[list[Values]]:
    """The publications as they are given to match_many.

    >>> [len(batch) for batch in in_batches([{"v": 1}] * 130)]
    [64, 64, 2]
    """
    return [list(publications[start : start + BATCH_COUNT]) for start in range(0, len(publications), BATCH_COUNT)]


def match_us(matcher: Matcher, batches: Sequence[list[Values]]) -> float:
    """One turn over all batches, per publication; the matches stay as the matcher returns them."""
    start = time.thread_time()
    for batch in batches:
        matcher.match_many(batch)
    return (time.thread_time() - start) * 1e6 / sum(len(batch) for batch in batches)


def _match_and_list_us(matcher: Matcher, batches: Sequence[list[Values]]) -> float:
    """The same with the keys of all matches written out."""
    start = time.thread_time()
    for batch in batches:
        for matches in matcher.match_many(batch):
            list(matches)
    return (time.thread_time() - start) * 1e6 / sum(len(batch) for batch in batches)


def _scan_us(match: Callable[[Values], object], publications: Sequence[Values]) -> float:
    """One turn of a scan, per publication, after one publication that is not counted."""
    match(publications[0])
    start = time.thread_time()
    for publication in publications:
        match(publication)
    return (time.thread_time() - start) * 1e6 / len(publications)
