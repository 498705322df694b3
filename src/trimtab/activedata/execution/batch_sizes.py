"""How many records a channel's next execution takes: as many as give results that fit, learned from the last ones.

The results of an execution are records times matching subscriptions, and a query cannot say beforehand how many match.
So the first execution takes few records, and later ones as many as the results per record that were seen allow, at most
four times as many as ever came through. A failure halves the next execution, down to one record.
"""

from __future__ import annotations

from typing import Final

import msgspec

RECORDS_MAX_COUNT: Final = 100_000
RESULTS_MAX_COUNT: Final = 1_000_000
"""Results that one execution should have at most; one record may have more."""

RESULTS_MAX_BYTES: Final = 192 * 1024 * 1024
SURE_PAIRS_COUNT: Final = 500_000
"""Records times subscriptions that fit even if each record concerns each subscription."""

SURE_RECORDS_COUNT: Final = 16
GROWTH_TIMES: Final = 4


class BatchSize(msgspec.Struct):
    """The size of one channel's executions.

    >>> size = BatchSize()
    >>> size.records_count(480)
    1041
    >>> size.succeeded(1_041, 62_460, 18_738_000)
    >>> size.records_count(480)
    4164
    >>> size.failed(4_164)
    >>> size.records_count(480)
    2082
    """

    results_per_record: float | None = None
    bytes_per_result: float = 300.0
    proven_count: int = 0
    """Records of the largest execution that came through."""
    failed_count: int | None = None
    """Records of the smallest execution that failed since one of its size came through."""

    def records_count(self, subscriptions_count: int) -> int:
        """How many records the next execution takes at most."""
        sure = max(SURE_RECORDS_COUNT, SURE_PAIRS_COUNT // max(1, subscriptions_count))
        wanted = max(sure, GROWTH_TIMES * self.proven_count)
        if self.results_per_record is not None:
            results_max = min(RESULTS_MAX_COUNT, RESULTS_MAX_BYTES / max(1.0, self.bytes_per_result))
            wanted = min(wanted, int(results_max / max(self.results_per_record, 1e-6)))
        if self.failed_count is not None:
            wanted = min(wanted, self.failed_count // 2)
        return max(1, min(wanted, RECORDS_MAX_COUNT))

    def expected_count(self, records_count: int, subscriptions_count: int) -> float:
        """How many results so many records may have: what was seen, or every pair while nothing is known."""
        per_record = subscriptions_count if self.results_per_record is None else self.results_per_record
        return records_count * float(per_record)

    def succeeded(self, records_count: int, results_count: int, results_bytes: int) -> None:
        """Learn from an execution."""
        seen = results_count / max(1, records_count)
        before = self.results_per_record
        self.results_per_record = seen if before is None else max(seen, 0.7 * before + 0.3 * seen)
        if results_count:
            self.bytes_per_result = max(results_bytes / results_count, 0.7 * self.bytes_per_result)
        self.proven_count = max(self.proven_count, records_count)
        if self.failed_count is not None:
            grown = self.failed_count if records_count < self.failed_count // 2 else 2 * self.failed_count
            self.failed_count = None if grown > 2 * RECORDS_MAX_COUNT else grown

    def failed(self, records_count: int) -> None:
        """The next execution takes half."""
        self.failed_count = max(2, records_count)
        self.proven_count = min(self.proven_count, records_count // 2)
