"""One execution of channels: the query over new records and all subscriptions, and the commit of what was found.

There are two paths, and which one ran is told (`Execution.path`). Few records take the short one: the plan of an
earlier execution if it can be kept (`query_plans`), and the results come through this process. Where many results are
expected, or many records are waiting, Spark's tasks write the results as files and this process commits them
(`result_tasks`).

What a failure means is decided in `failures`; here it only reaches the caller.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.errors import StorageError
from trimtab.activedata.execution.channels import RunningChannel
from trimtab.activedata.execution.lanes import Lane
from trimtab.activedata.execution.query_plans import KEPT_SUBSCRIPTIONS_MAX_COUNT, RECORDS_MAX_COUNT, PreparedQueries
from trimtab.activedata.execution.result_tasks import POSITIONS_PER_TASK, TaskLimits, Written, write_results
from trimtab.activedata.spark.views import SparkViews
from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.datasets import StoredDataset
from trimtab.activedata.storage.results import Results

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

KEPT_PLAN: Final = "kept plan"
PLANNED: Final = "planned"
TASKS: Final = "tasks"

TASKS_FROM_RESULTS_COUNT: Final = 50_000
"""From so many expected results on, tasks write them."""

POSITIONS_AHEAD: Final = 1 << 24
"""Positions that small executions may take while tasks write with higher ones."""

LEAF_PARTITIONS_COUNT: Final = 2
"""What this process gives Spark comes in few partitions; for more slots records are spread, in their order."""

TASK_LIMITS: Final = TaskLimits()
EXECUTIONS_KEPT_COUNT: Final = 200

Part = tuple[int, int]
"""The lowest and the highest subscription that a query is asked for."""


class Execution(msgspec.Struct, frozen=True):
    """What one execution did: which channels, how much, how, and how long."""

    channels: tuple[str, ...]
    ended_s: float
    took_s: float
    records_count: int
    results_count: int
    path: str
    plan: str = ""
    """How Spark did it, where it was planned for this execution."""


class Outcome(msgspec.Struct, frozen=True):
    """What an execution of channels came to."""

    to: int
    records_count: int
    path: str
    started_s: float
    plan: str = ""


class Found(msgspec.Struct, frozen=True):
    """Results that came through this process, and how they were found."""

    rows: pa.Table
    path: str
    plan: str = ""


class Executions:
    """Runs queries of channels and commits their results."""

    def __init__(
        self, catalog: Catalog, views: SparkViews, datasets: Mapping[str, StoredDataset], results: Results
    ) -> None:
        self._catalog = catalog
        self.views = views
        self.datasets = datasets
        self.results = results
        self.prepared = PreparedQueries(views, views.work_dir / "new")
        self.done: deque[Execution] = deque(maxlen=EXECUTIONS_KEPT_COUNT)
        self.tasks_lock = threading.Lock()
        """Held from when positions are set aside for tasks until they are committed: commits keep that order."""

    def takes_tasks(self, channel: RunningChannel, records_count: int) -> bool:
        """Whether tasks should write the results of a channel for so many records."""
        count = channel.subscriptions.count
        if channel.waits is not None:
            return False
        if channel.whole is not None and channel.size.results_per_record is None:
            return True  # nobody knows how many rows a whole body gives
        if records_count > RECORDS_MAX_COUNT:
            return True
        return channel.size.expected_count(records_count, count) > TASKS_FROM_RESULTS_COUNT

    # The short path

    def run_small(self, group: list[RunningChannel], records: pa.Table, to: int, lane: Lane) -> bool:
        """Execute channels on few records, and commit; answers whether that had to be planned."""
        started_s = time.monotonic()
        name = f"{lane.name}-{group[0].entry.id}" if group[0].is_apart else lane.name
        plans_count = self.prepared.plans_count
        with lane.working(self.views):
            found = self.ask(group, records, name)
        is_planned = found.path != KEPT_PLAN or self.prepared.plans_count != plans_count
        self.commit(group, found, records.num_rows, to, started_s)
        return is_planned

    def ask(self, group: list[RunningChannel], records: pa.Table, lane: str = "") -> Found:
        """The results of channels for new records: channel, subscription, record and payload."""
        subscriptions_count = sum(channel.subscriptions.count for channel in group)
        if (
            records.num_rows <= RECORDS_MAX_COUNT
            and subscriptions_count <= KEPT_SUBSCRIPTIONS_MAX_COUNT
            and all(channel.record_query.is_lasting for channel in group)
        ):
            rows = self._ask_prepared(group, records, subscriptions_count, lane)
            if rows is not None:
                return Found(rows, KEPT_PLAN)
        frame = self.query(group, records)
        return Found(frame.toArrow(), PLANNED, plan_text(frame))

    def _ask_prepared(
        self, group: list[RunningChannel], records: pa.Table, subscriptions_count: int, lane: str
    ) -> pa.Table | None:
        by_id = {channel.entry.id: channel for channel in group}
        versions = {each: self._version(channel) for each, channel in by_id.items()}

        def text(ids: list[int], view: str) -> str:
            return self._text([by_id[each] for each in ids], view, few_records=True)

        return self.prepared.ask(versions, records, text, subscriptions_count, lane)

    def _version(self, channel: RunningChannel) -> object:
        """What the plan of a channel depends on."""
        lookups = [(name, self.datasets[name.lower()].store.version) for name in sorted(channel.query.lookups)]
        return channel.subscriptions.version, tuple(lookups)

    def query(self, group: list[RunningChannel], records: pa.Table, part: Part | None = None) -> DataFrame:
        """The one query of an execution, as a DataFrame that is planned."""
        new_view = f"_new_{threading.get_ident()}"
        with self.views.lock:
            self.views.show_arrow(new_view, records, None)
            return self.views.session.sql(self._text(group, f"`{new_view}`", few_records=False, part=part))

    def _text(self, group: list[RunningChannel], new_view: str, *, few_records: bool, part: Part | None = None) -> str:
        """The text of the one query, when the views that it reads are up to date."""
        for name in sorted({lookup for channel in group for lookup in channel.query.lookups}):
            dataset = self.datasets[name.lower()]
            self.views.show_store(name, dataset.store, cached=not dataset.entry.active)
        parts = []
        for channel in group:
            source, radii = channel.subscriptions.show(self.views, without_ended=not few_records)
            if part is not None:
                source = f"(SELECT * FROM {source} WHERE `_subscription` BETWEEN {part[0]} AND {part[1]})"
            inner = channel.record_query.text(new_view, source, radii, few_records=few_records)
            parts.append(
                f"SELECT {channel.entry.id}L AS channel, q.`_subscription` AS subscription, q.`_record` AS record, "
                f"{channel.payload_sql()} AS payload FROM ({inner}) q"
            )
        return " UNION ALL ".join(parts)

    # Commits

    def commit(self, group: list[RunningChannel], found: Found, records_count: int, to: int, started_s: float) -> None:
        """Make results visible together with how far the channels are."""
        import pyarrow.compute as pc

        rows = without_ended(found.rows, set().union(*(channel.subscriptions.ended for channel in group)))
        positions = {channel.entry.id: to for channel in group}
        self.results.commit(rows, positions)
        self._catalog.set_positions(positions)
        counts = dict(zip(*(each.to_pylist() for each in pc.value_counts(rows["channel"]).flatten()), strict=True))
        results_bytes = rows["payload"].nbytes / max(1, rows.num_rows)
        outcome = Outcome(to, records_count, found.path, started_s, found.plan)
        for channel in group:
            count = counts.get(channel.entry.id, 0)
            self.came_through(channel, outcome, count, int(count * results_bytes))
        self.note(group, outcome, rows.num_rows)

    # Tasks

    def run_tasks(
        self, channel: RunningChannel, records: pa.Table, to: int, lane: Lane, parts: list[Part] | None = None
    ) -> None:
        """Execute a channel and let tasks write what they find, for some subscriptions after others if need be."""
        started_s = time.monotonic()
        with self.tasks_lock:
            executed_us = int(time.time() * 1e6)
            with self.strays_removed(executed_us):
                first = self.results.last_position + POSITIONS_AHEAD
                next_free, plan, written = first, "", list[Written]()
                asked: list[Part | None] = [*parts] if parts else [None]
                for part in asked:
                    with lane.working(self.views):
                        each, plan = self._write(channel, records, next_free, executed_us, part)
                    written.append(each)
                    next_free += POSITIONS_PER_TASK * (max(each.told["task"].to_pylist(), default=-1) + 1)
                if self.results.last_position >= first:
                    raise StorageError("other channels had more results meanwhile than positions were left for them")
                both = joined(written)
                self.results.commit_files(both, next_free, {channel.entry.id: to})
        self._catalog.set_positions({channel.entry.id: to})
        outcome = Outcome(to, records.num_rows, TASKS, started_s, plan)
        self.came_through(channel, outcome, both.results_count, both.results_bytes)
        self.note([channel], outcome, both.results_count)

    def _write(
        self, channel: RunningChannel, records: pa.Table, first: int, executed_us: int, part: Part | None
    ) -> tuple[Written, str]:
        folder = str(self.results.store.path.absolute())
        while True:
            frame = self._planned_for_tasks(channel, records, part)
            written = write_results(frame, folder, first, executed_us, TASK_LIMITS)
            if written.is_ordered:
                return written, plan_text(frame)
            for each in written.files:
                (Path(folder) / each.path).unlink(missing_ok=True)
            channel.is_scattered = True

    def _planned_for_tasks(self, channel: RunningChannel, records: pa.Table, part: Part | None) -> DataFrame:
        """The query of a channel with its records spread over as many slots as it may take."""
        view = f"_tasks_{channel.entry.id}"
        slots_count = max(1, self.views.slots_count() - 1)  # one is left to the other channels
        with self.views.lock:
            session = self.views.session
            spread = session.createDataFrame(records)
            if LEAF_PARTITIONS_COUNT < slots_count <= records.num_rows:
                spread = spread.repartitionByRange(slots_count, "_sequence")
            spread.coalesce(slots_count).createOrReplaceTempView(view)
            frame = session.sql(self._text([channel], f"`{view}`", few_records=False, part=part))
            if channel.is_scattered:
                frame = frame.repartition(slots_count, "subscription")
            return frame

    @contextmanager
    def strays_removed(self, executed_us: int) -> Iterator[None]:
        """If what is done fails, the files that its tasks wrote are removed: nothing names them."""
        try:
            yield
        except BaseException:
            for path in self.results.store.path.glob(f"tasks-{executed_us}-*"):
                path.unlink(missing_ok=True)
            raise

    # What is kept of an execution

    def came_through(self, channel: RunningChannel, outcome: Outcome, results_count: int, results_bytes: int) -> None:
        """Take note of what an execution did for one of its channels."""
        channel.position = outcome.to
        channel.retry_after_s = 0.0
        channel.failures_count = 0
        channel.size.succeeded(outcome.records_count, results_count, results_bytes)
        meters = channel.meters
        meters.error = None
        meters.executions_count += 1
        meters.results_count += results_count
        meters.last_latency_s = time.monotonic() - outcome.started_s
        meters.last_execution_s = time.time()
        meters.last_path = outcome.path

    def note(self, group: list[RunningChannel], outcome: Outcome, results_count: int) -> None:
        """Keep what an execution of channels did, for those who want to know."""
        took_s = time.monotonic() - outcome.started_s
        names = tuple(channel.entry.name for channel in group)
        self.done.append(
            Execution(names, time.time(), took_s, outcome.records_count, results_count, outcome.path, outcome.plan)
        )


def without_ended(rows: pa.Table, ended: set[int]) -> pa.Table:
    """Results without those of subscriptions that ended."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not ended or not rows.num_rows:
        return rows
    return rows.filter(pc.invert(pc.is_in(rows["subscription"], pa.array(sorted(ended), pa.int64()))))


def joined(written: list[Written]) -> Written:
    """What several parts of an execution wrote, as one."""
    import pyarrow as pa

    if len(written) == 1:
        return written[0]
    return Written(tuple(file for each in written for file in each.files), pa.concat_tables([e.told for e in written]))


def plan_text(frame: Any) -> str:
    """How Spark does a query, in its words."""
    return str(frame._jdf.queryExecution().executedPlan().toString())
