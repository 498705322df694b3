"""What is done about an execution that failed, so that one record or one subscription stops nobody else.

A failure halves the records of the next execution, until one record is left that fails alone. Then the subscriptions
are halved, until those are known with which it fails. Whose fault it is follows from what comes through otherwise:

- a subscription that got results from other records is right, so the record is at fault;
- a record that gives results to other subscriptions is right, so a subscription that never got one is at fault;
- where neither is known, the record is taken for it, and a subscription with which three records in a row failed.

A record at fault becomes a dead letter of the channel, and reaches the subscriptions that it does not fail with. A
subscription at fault is suspended, with the reason. One record that finds more than fits into a task is executed for
parts of the subscriptions, whose results are committed together.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.errors import StorageError
from trimtab.activedata.execution.channels import RunningChannel
from trimtab.activedata.execution.executions import PLANNED, Executions, Found, Part
from trimtab.activedata.execution.lanes import Lane
from trimtab.activedata.execution.whole_executions import WholeExecutions
from trimtab.activedata.execution.whole_queries import WholeState
from trimtab.activedata.spark.errors import (
    is_data_mistake,
    is_spark_gone,
    is_statement_mistake,
    is_too_large,
    spark_reason,
)
from trimtab.activedata.storage.datasets import StoredDataset

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

FAILING_MAX_COUNT: Final = 8
"""A record that fails with more subscriptions than this is at fault, and no more of them are looked for."""

ATTEMPTS_MAX_COUNT: Final = 200
STRIKES_COUNT: Final = 3
SUSPECTS_MAX_COUNT: Final = 32
OTHER_RECORDS_COUNT: Final = 50
"""Records beside the one that failed, on which a subscription may show that it is right."""

TRANSIENT_COUNT: Final = 3
"""Failures of unknown cause in a row that are waited out before records are blamed."""

RETRY_MIN_S: Final = 1.0
RETRY_MAX_S: Final = 60.0


class Kind(enum.Enum):
    """What a failure says about its cause."""

    DISK = "the disk takes nothing"
    GONE = "Spark died"
    STATEMENT = "the query cannot be planned"
    TOO_LARGE = "too much was found, or it took too long"
    DATA = "a value"
    UNKNOWN = "unknown"


def kind_of(error: BaseException) -> Kind:
    """What kind of failure an error is."""
    if isinstance(error, StorageError):
        return Kind.DISK
    if is_spark_gone(error):
        return Kind.GONE
    if is_too_large(error) or isinstance(error, TimeoutError):
        return Kind.TOO_LARGE
    if is_data_mistake(error):
        return Kind.DATA
    return Kind.STATEMENT if is_statement_mistake(error) else Kind.UNKNOWN


class Blame(msgspec.Struct, frozen=True):
    """Who is at fault for a record that failed: subscriptions, the record, or some of both."""

    subscriptions: tuple[int, ...]
    is_record: bool


def blame(
    failing: list[int], *, gave_results: bool, is_right: Callable[[int], bool], strikes: Callable[[int], int]
) -> Blame:
    """Decide who is at fault; `failing` are the subscriptions with which the record fails.

    >>> blame([7], gave_results=True, is_right=lambda each: False, strikes=lambda each: 1)
    Blame(subscriptions=(7,), is_record=False)
    >>> blame([7], gave_results=True, is_right=lambda each: True, strikes=lambda each: 1)
    Blame(subscriptions=(), is_record=True)
    """
    if len(failing) > FAILING_MAX_COUNT:
        return Blame((), True)
    found = [each for each in failing if (gave_results or strikes(each) >= STRIKES_COUNT) and not is_right(each)]
    return Blame(tuple(found), len(found) < len(failing))


class _Alone(msgspec.Struct, frozen=True):
    """One record with which a channel failed, its number, and the lane in which it is looked into."""

    channel: RunningChannel
    dataset: StoredDataset
    record: Any
    number: int
    lane: Lane
    reason: str


class _Whole(msgspec.Struct, frozen=True):
    """An execution of a whole body that failed, and the lane in which it is looked into."""

    channel: RunningChannel
    now: WholeState
    lane: Lane
    reason: str


class Failures:
    """Decides what follows from a failure of channels."""

    def __init__(
        self,
        executions: Executions,
        whole: WholeExecutions,
        put_aside: Callable[[RunningChannel, pa.Table, str], None],
        suspend: Callable[[RunningChannel, int, str], None],
    ) -> None:
        self._executions = executions
        self._whole = whole
        self._put_aside = put_aside
        self._suspend = suspend

    def handle(self, channel: RunningChannel, dataset: StoredDataset, to: int, error: Exception, *, lane: Lane) -> None:
        """A channel failed on the records up to `to`: make its next execution smaller, or find the culprit."""
        kind = kind_of(error)
        count = to - channel.position
        channel.failures_count += 1
        channel.is_apart = True
        if kind is Kind.GONE:
            self._executions.views.revive()
        if kind in (Kind.DISK, Kind.STATEMENT) or (
            kind in (Kind.UNKNOWN, Kind.GONE) and channel.failures_count < TRANSIENT_COUNT and count == 1
        ):
            self._later(channel, str(error) if kind is Kind.DISK else _reason(error))
        elif kind is Kind.UNKNOWN and channel.failures_count < TRANSIENT_COUNT:
            self._later(channel, _reason(error))
        elif count > 1:
            channel.size.failed(count)
            channel.meters.error = f"{kind.value}; it is done again in halves: {_reason(error)}"
            logger.info("channel %s: %d records: %s", channel.entry.name, count, _reason(error))
        else:
            record = dataset.records(to - 1, to)
            self._alone(_Alone(channel, dataset, record, to, lane, _reason(error)), kind)

    def handle_whole(self, channel: RunningChannel, now: WholeState, error: Exception, lane: Lane) -> None:
        """A channel failed on its whole body: find the subscriptions that it fails with, if it is not all of them."""
        kind = kind_of(error)
        channel.failures_count += 1
        if kind is Kind.GONE:
            self._executions.views.revive()
        if kind not in (Kind.DATA, Kind.TOO_LARGE) and (
            kind is not Kind.GONE or channel.failures_count < TRANSIENT_COUNT
        ):
            self._later(channel, _reason(error))
            return
        if not channel.is_apart:
            channel.is_apart = True
            return
        try:
            if kind in (Kind.TOO_LARGE, Kind.GONE) and self._whole_in_parts(channel, now, lane):
                return
            self._find_whole(_Whole(channel, now, lane, _reason(error)))
        except Exception as again:
            if kind_of(again) is Kind.GONE:
                self._executions.views.revive()
            self._later(channel, _reason(again))

    def _whole_in_parts(self, channel: RunningChannel, now: WholeState, lane: Lane) -> bool:
        """Execute a whole body for parts of the subscriptions; whether that came through."""
        ids = channel.subscriptions.ids()
        for parts in _ever_more_parts(ids):
            try:
                self._whole.run_tasks(channel, now, lane, parts)
                return True
            except Exception as error:
                self._must_be_large(error)
        return False

    def _must_be_large(self, error: Exception) -> None:
        """Go on with smaller parts if that is what an error asks for."""
        kind = kind_of(error)
        if kind is Kind.GONE:
            self._executions.views.revive()
        if kind not in (Kind.TOO_LARGE, Kind.GONE):
            raise error

    def _find_whole(self, each: _Whole) -> None:
        import pyarrow as pa

        channel = each.channel
        found, failing = self._with_whom(each, None, channel.subscriptions.ids())
        gave_results = any(rows.num_rows for rows in found)
        results = self._executions.results
        wrong = [one for one in failing if gave_results and not results.count_of(one).results_count]
        for one in wrong if len(failing) <= FAILING_MAX_COUNT else ():
            self._blame(channel, one, each.reason)
        if gave_results:
            self._whole.run(channel, each.now, each.lane, pa.concat_tables(found))
            channel.meters.error = each.reason if len(wrong) < len(failing) else None
        else:
            self._later(channel, each.reason)

    def _blame(self, channel: RunningChannel, subscription: int, reason: str) -> None:
        """Suspend a subscription that is at fault."""
        channel.strikes.pop(subscription, None)
        channel.meters.suspended_count += 1
        logger.warning("channel %s: subscription %d is suspended: %s", channel.entry.name, subscription, reason)
        self._suspend(channel, subscription, reason)

    def set_apart(self, channel: RunningChannel, to: int, error: Exception) -> None:
        """A channel failed beside others: it goes on apart, where it is looked into."""
        kind = kind_of(error)
        channel.is_apart = True
        channel.meters.error = _reason(error)
        if kind is Kind.GONE:
            self._executions.views.revive()
        if kind is Kind.DISK:
            channel.failures_count += 1
            self._later(channel, str(error))
        elif to - channel.position > 1:
            channel.size.failed(to - channel.position)

    def _later(self, channel: RunningChannel, reason: str) -> None:
        """Nothing was committed: the channel stays where it is and tries again later."""
        times = min(channel.failures_count - 1, 10)
        channel.retry_after_s = time.monotonic() + min(RETRY_MAX_S, RETRY_MIN_S * 2.0**times)
        channel.meters.error = reason
        logger.warning("channel %s: %s", channel.entry.name, reason)

    def _alone(self, each: _Alone, kind: Kind) -> None:
        """One record failed alone."""
        ids = each.channel.subscriptions.ids()
        try:
            if kind in (Kind.TOO_LARGE, Kind.GONE) and len(ids) > 1:
                self._in_parts(each, ids)
            else:
                self._find(each, ids)
        except Exception as again:
            if kind_of(again) is Kind.GONE:
                self._executions.views.revive()
            self._later(each.channel, _reason(again))

    # One record that finds too much

    def _in_parts(self, each: _Alone, ids: list[int]) -> None:
        """Execute one record for parts of the subscriptions, small enough for each, and commit all together."""
        for parts in _ever_more_parts(ids):
            try:
                self._executions.run_tasks(each.channel, each.record, each.number, each.lane, parts)
                return
            except Exception as error:
                self._must_be_large(error)
        self._find(each, ids)

    # Who is at fault

    def _find(self, each: _Alone, ids: list[int]) -> None:
        import pyarrow as pa

        started_s = time.monotonic()
        channel, meters = each.channel, each.channel.meters
        found, failing = self._with_whom(each, each.record, ids)
        for one in failing[: FAILING_MAX_COUNT + 1]:
            channel.strikes[one] = channel.strikes.get(one, 0) + 1
        decided = blame(
            failing,
            gave_results=any(rows.num_rows for rows in found),
            is_right=lambda one: self._is_right(each, one),
            strikes=lambda one: channel.strikes.get(one, 0),
        )
        for one in decided.subscriptions:
            self._blame(channel, one, each.reason)
        if decided.is_record:
            meters.put_aside_count += 1
            logger.warning("channel %s: record %d: %s", channel.entry.name, each.number, each.reason)
            self._put_aside(channel, each.record, each.reason)
        if len(channel.strikes) > SUSPECTS_MAX_COUNT:
            channel.strikes.clear()
        rows = pa.concat_tables(found) if found else empty_results()
        self._executions.commit([channel], Found(rows, PLANNED), 1, each.number, started_s)

    def _with_whom(
        self, each: _Alone | _Whole, record: pa.Table | None, ids: list[int]
    ) -> tuple[list[pa.Table], list[int]]:
        """What a record, or a whole body, gives to the subscriptions it does not fail with, and those it fails with."""
        suspects = [one for one in ids if one in each.channel.strikes]
        others = [one for one in ids if one not in each.channel.strikes]
        waiting = [[one] for one in suspects]
        waiting += [others] if suspects and others else _halves(others, 2)
        found: list[pa.Table] = []
        failing: list[int] = []
        attempts_count = 0
        while waiting and len(failing) <= FAILING_MAX_COUNT and attempts_count < ATTEMPTS_MAX_COUNT:
            part = waiting.pop(0)
            attempts_count += 1
            rows = self._attempt(each, record, (part[0], part[-1]))
            if rows is not None:
                found.append(rows.filter(_among(rows, part)))
            elif len(part) == 1:
                failing.append(part[0])
            else:
                waiting = _halves(part, 2) + waiting
        return found, failing + [one for part in waiting for one in part]

    def _attempt(self, each: _Alone | _Whole, records: pa.Table | None, part: Part) -> pa.Table | None:
        """What records give to some subscriptions; None if that fails."""
        try:
            with each.lane.working(self._executions.views):
                if isinstance(each, _Whole):
                    return self._whole.query(each.channel, each.now, part).toArrow()
                return self._executions.query([each.channel], records, part).toArrow()
        except Exception as error:
            kind = kind_of(error)
            if kind in (Kind.DATA, Kind.TOO_LARGE, Kind.UNKNOWN):
                return None
            raise

    def _is_right(self, each: _Alone, subscription: int) -> bool:
        """Whether a subscription got results from other records, or gets some from those around this one."""
        if self._executions.results.count_of(subscription).results_count:
            return True
        first = max(0, each.number - 1 - OTHER_RECORDS_COUNT)
        last = min(each.dataset.last_sequence, each.number + OTHER_RECORDS_COUNT)
        return any(
            until > after and self._gives_some(each, subscription, after, until)
            for after, until in ((first, each.number - 1), (each.number, last))
        )

    def _gives_some(self, each: _Alone, subscription: int, after: int, until: int) -> bool:
        """Whether records give a subscription results, where some of them may fail; a few attempts only."""
        waiting = [(after, until)]
        for _ in range(12):
            if not waiting:
                break
            low, high = waiting.pop(0)
            rows = self._attempt(each, each.dataset.records(low, high), (subscription, subscription))
            if rows is not None and rows.num_rows:
                return True
            if rows is None and high - low > 1:
                middle = (low + high) // 2
                waiting += [(low, middle), (middle, high)]
        return False


def _halves(ids: list[int], count: int) -> list[list[int]]:
    """Subscriptions in so many parts of about the same size, none of them empty."""
    size = max(1, -(-len(ids) // count))
    return [ids[start : start + size] for start in range(0, len(ids), size)]


def _ever_more_parts(ids: list[int]) -> Iterator[list[Part]]:
    """Subscriptions in two parts, then in eight, and so on until each is alone."""
    parts_count = 2
    while parts_count < 4 * len(ids):
        yield [(part[0], part[-1]) for part in _halves(ids, parts_count)]
        parts_count *= 4


def _among(rows: pa.Table, ids: list[int]) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(rows["subscription"], pa.array(ids, pa.int64()))


def empty_results() -> pa.Table:
    """No results at all."""
    import pyarrow as pa

    fields = [("channel", pa.int64()), ("subscription", pa.int64()), ("record", pa.int64()), ("payload", pa.string())]
    return pa.schema(fields).empty_table()


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, (StorageError, TimeoutError)) else spark_reason(error)
