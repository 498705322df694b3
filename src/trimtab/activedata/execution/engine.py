"""Runs the channels: when records arrive or a period is over, one query for all of a channel's subscriptions.

Source: the Big Active Data paper (003), "BAD Publishers and Subscribers": repetitive and continuous channels. An
execution takes the records that came after the channel's position, asks Spark once, and commits results and position
together. Channels that stand at the same position of the same dataset share one query (a union), because planning
costs more than running at small sizes. What we do differently from the original: a repetitive channel that needs longer
than its period is not stopped but runs again at once, and the time it lost is counted; positions survive a restart.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.activedata.errors import ActiveDataError, StorageError
from trimtab.activedata.execution.channel_queries import ChannelQuery
from trimtab.activedata.execution.query_plans import KEPT_SUBSCRIPTIONS_MAX_COUNT, RECORDS_MAX_COUNT, PreparedQueries
from trimtab.activedata.execution.spark_errors import is_data_mistake, is_spark_gone, spark_reason
from trimtab.activedata.execution.spark_views import SparkViews, SubscriptionTable
from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.catalog_entries import ChannelEntry
from trimtab.activedata.storage.datasets import StoredDataset
from trimtab.activedata.storage.results import Results

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

RECORDS_PER_EXECUTION_COUNT: Final = 100_000
RETRY_MIN_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
RETENTION_EVERY_S: Final = 600.0


class ChannelMeters(msgspec.Struct):
    """What a channel has done since the process started."""

    executions_count: int = 0
    results_count: int = 0
    last_latency_s: float | None = None
    last_execution_s: float | None = None
    skipped_s: float = 0.0
    skipped_count: int = 0
    put_aside_count: int = 0
    error: str | None = None


class RunningChannel:
    """A channel with its compiled query, its subscriptions and its schedule."""

    def __init__(self, entry: ChannelEntry, query: ChannelQuery, table: SubscriptionTable, now_s: float) -> None:
        self.entry = entry
        self.query = query
        self.subscriptions = table
        self.position = entry.position
        self.meters = ChannelMeters()
        self.due_s = now_s + (entry.period_s or 0.0)
        self.retry_after_s = 0.0
        self.failures_count = 0
        self.busy = False

    def payload_sql(self) -> str:
        """The expression that makes a notification's fields one JSON text."""
        fields = ", ".join(f"q.`{name}`" for name in self.entry.columns)
        return f"to_json(struct({fields}), map('ignoreNullFields', 'false'))"


DeadLetter = Callable[[RunningChannel, "pa.Table", str], None]


class Engine:
    """Executes channels in two threads, one for continuous and one for repetitive channels."""

    def __init__(
        self,
        catalog: Catalog,
        views: SparkViews,
        datasets: Mapping[str, StoredDataset],
        results: Results,
        dead_letter: DeadLetter,
    ) -> None:
        self._catalog = catalog
        self._views = views
        self._datasets = datasets
        self._results = results
        self._dead_letter = dead_letter
        self._prepared = PreparedQueries(views, views.work_dir / "new")
        self.channels: dict[str, RunningChannel] = {}
        self._news = threading.Condition()
        self._is_stopping = False
        self._threads: list[threading.Thread] = []
        self._retention_at_s = time.monotonic() + RETENTION_EVERY_S

    def start(self) -> None:
        """Start the threads."""
        for kind, wants in (("continuous", self._continuous_due), ("repetitive", self._repetitive_due)):
            thread = threading.Thread(target=self._loop, args=(wants,), name=f"channels-{kind}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Stop after the executions that are under way."""
        with self._news:
            self._is_stopping = True
            self._news.notify_all()
        for thread in self._threads:
            thread.join()

    def wake(self) -> None:
        """Records arrived or something was defined."""
        with self._news:
            self._news.notify_all()

    def add(self, channel: RunningChannel) -> None:
        """Run a channel from now on."""
        with self._news:
            self.channels[channel.entry.name.lower()] = channel
            self._news.notify_all()

    def remove(self, name: str) -> RunningChannel | None:
        """Stop running a channel; returns when no execution of it is under way."""
        with self._news:
            channel = self.channels.pop(name.lower(), None)
            while channel is not None and channel.busy:
                self._news.wait()
            return channel

    def _loop(self, due: Callable[[float], tuple[list[RunningChannel], float | None]]) -> None:
        while True:
            with self._news:
                now_s = time.monotonic()
                ready, next_s = due(now_s)
                while not self._is_stopping and not ready:
                    self._news.wait(None if next_s is None else max(0.0, next_s - now_s))
                    now_s = time.monotonic()
                    ready, next_s = due(now_s)
                if self._is_stopping:
                    return
                for channel in ready:
                    channel.busy = True
            try:
                self.run(ready)
            finally:
                with self._news:
                    for channel in ready:
                        channel.busy = False
                    self._news.notify_all()
            self._apply_retention()

    def _waiting(self, channel: RunningChannel) -> bool:
        dataset = self._datasets[channel.query.driver.lower()]
        return dataset.last_sequence > channel.position

    def _continuous_due(self, now_s: float) -> tuple[list[RunningChannel], float | None]:
        waiting = [each for each in self._each(continuous=True) if self._waiting(each)]
        ready = [each for each in waiting if each.retry_after_s <= now_s]
        return ready, min((each.retry_after_s for each in waiting), default=None)

    def _repetitive_due(self, now_s: float) -> tuple[list[RunningChannel], float | None]:
        """Channels whose period is over; one that has nothing new to see just waits for its next period."""
        ready = []
        for channel in self._each(continuous=False):
            if channel.due_s > now_s or channel.retry_after_s > now_s:
                continue
            if self._waiting(channel):
                ready.append(channel)
            else:
                _next_period(channel, now_s)
        times = [max(each.due_s, each.retry_after_s) for each in self._each(continuous=False)]
        return ready, min(times, default=None)

    def _each(self, *, continuous: bool) -> list[RunningChannel]:
        return [
            each for each in self.channels.values() if not each.busy and (each.entry.period_s is None) == continuous
        ]

    def run(self, channels: list[RunningChannel]) -> None:
        """Execute channels once, those together that stand at the same place."""
        groups: dict[tuple[str, int], list[RunningChannel]] = {}
        for channel in channels:
            groups.setdefault((channel.query.driver, channel.position), []).append(channel)
        for (driver, position), group in groups.items():
            dataset = self._datasets[driver.lower()]
            to = min(dataset.last_sequence, position + RECORDS_PER_EXECUTION_COUNT)
            if to > position:
                self._execute(group, dataset, to)
        now_s = time.monotonic()
        for channel in channels:
            if channel.entry.period_s is not None:
                _next_period(channel, now_s)

    def _execute(self, group: list[RunningChannel], dataset: StoredDataset, to: int) -> None:
        """Execute channels at one position on the records up to `to`; a failure stays with the channel it is of."""
        started_s = time.monotonic()
        try:
            found = self.ask(group, dataset.records(group[0].position, to))
            self._commit(group, found, to, started_s)
        except StorageError as error:
            self._failed(group, str(error))
        except Exception as error:
            if is_spark_gone(error):
                self._failed(group, "Spark died and is started again")
                self._restart_spark()
            elif len(group) > 1:
                for channel in group:
                    self._execute([channel], dataset, to)
            elif not is_data_mistake(error):
                self._failed(group, spark_reason(error))
            elif to - group[0].position > 1:
                middle = group[0].position + (to - group[0].position) // 2
                self._execute(group, dataset, middle)
                if group[0].position == middle:
                    self._execute(group, dataset, to)
            else:
                self._put_aside(group[0], dataset, to, spark_reason(error))

    def ask(self, group: list[RunningChannel], records: pa.Table) -> pa.Table:
        """The results of channels for new records: channel, subscription, record and payload."""
        subscriptions_count = sum(channel.subscriptions.count for channel in group)
        if (
            records.num_rows <= RECORDS_MAX_COUNT
            and subscriptions_count <= KEPT_SUBSCRIPTIONS_MAX_COUNT
            and all(channel.query.is_lasting for channel in group)
        ):
            found = self._ask_prepared(group, records, subscriptions_count)
            if found is not None:
                return found
        return self.query(group, records).toArrow()

    def _ask_prepared(
        self, group: list[RunningChannel], records: pa.Table, subscriptions_count: int
    ) -> pa.Table | None:
        by_id = {channel.entry.id: channel for channel in group}
        versions = {each: self._version(channel) for each, channel in by_id.items()}

        def text(ids: list[int], view: str) -> str:
            return self._text([by_id[each] for each in ids], view, few_records=True)

        return self._prepared.ask(versions, records, text, subscriptions_count)

    def _version(self, channel: RunningChannel) -> object:
        """What the plan of a channel depends on."""
        lookups = [(name, self._datasets[name.lower()].store.version) for name in sorted(channel.query.lookups)]
        return channel.subscriptions.version, tuple(lookups)

    def query(self, group: list[RunningChannel], records: pa.Table):  # type: ignore[no-untyped-def]
        """The one query of an execution, as a DataFrame."""
        new_view = f"_new_{threading.get_ident()}"
        with self._views.lock:
            self._views.show_arrow(new_view, records, None)
            return self._views.session.sql(self._text(group, f"`{new_view}`", few_records=False))

    def _text(self, group: list[RunningChannel], new_view: str, *, few_records: bool) -> str:
        """The text of the one query, when the views that it reads are up to date."""
        for name in sorted({lookup for channel in group for lookup in channel.query.lookups}):
            self._show_dataset(name)
        parts = []
        for channel in group:
            source, radii = channel.subscriptions.show(self._views)
            inner = channel.query.text(new_view, source, radii, few_records=few_records)
            parts.append(
                f"SELECT {channel.entry.id}L AS channel, q.`_subscription` AS subscription, q.`_record` AS record, "
                f"{channel.payload_sql()} AS payload FROM ({inner}) q"
            )
        return " UNION ALL ".join(parts)

    def _show_dataset(self, name: str) -> None:
        dataset = self._datasets[name.lower()]
        self._views.show_store(name, dataset.store, cached=not dataset.entry.active)

    def _commit(self, group: list[RunningChannel], found: pa.Table, to: int, started_s: float) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        ended = set().union(*(channel.subscriptions.ended for channel in group))
        if ended and found.num_rows:
            gone = pc.is_in(found["subscription"], pa.array(sorted(ended), pa.int64()))
            found = found.filter(pc.invert(gone))
        positions = {channel.entry.id: to for channel in group}
        self._results.commit(found, positions)
        self._catalog.set_positions(positions)
        counts = dict(zip(*(each.to_pylist() for each in pc.value_counts(found["channel"]).flatten()), strict=True))
        now_s = time.monotonic()
        for channel in group:
            channel.position = to
            channel.retry_after_s = 0.0
            channel.failures_count = 0
            channel.meters.error = None
            channel.meters.executions_count += 1
            channel.meters.results_count += counts.get(channel.entry.id, 0)
            channel.meters.last_latency_s = now_s - started_s
            channel.meters.last_execution_s = time.time()

    def _failed(self, group: list[RunningChannel], reason: str) -> None:
        """Nothing was committed: the channels stay where they are and try again later."""
        now_s = time.monotonic()
        for channel in group:
            channel.retry_after_s = now_s + min(RETRY_MAX_S, RETRY_MIN_S * 2.0 ** min(channel.failures_count, 10))
            channel.failures_count += 1
            channel.meters.error = reason
            logger.warning("channel %s: %s", channel.entry.name, reason)

    def _put_aside(self, channel: RunningChannel, dataset: StoredDataset, to: int, reason: str) -> None:
        """A record that a channel cannot be evaluated on goes to the dead letters, so that the channel goes on."""
        logger.warning("channel %s: record %d: %s", channel.entry.name, to, reason)
        self._dead_letter(channel, dataset.records(channel.position, to), reason)
        self._catalog.set_positions({channel.entry.id: to})
        channel.position = to
        channel.meters.put_aside_count += 1

    def _restart_spark(self) -> None:
        with self._views.lock:
            starts_count = self._views.starts_count
            try:
                self._views.session.sql("SELECT 1").collect()
            except Exception as error:
                if not is_spark_gone(error):
                    raise
                if self._views.starts_count == starts_count:
                    self._views.stop()
                    self._views.start()

    def _apply_retention(self) -> None:
        if time.monotonic() < self._retention_at_s:
            return
        self._retention_at_s = time.monotonic() + RETENTION_EVERY_S
        self.remove_old_results(time.time())

    def remove_old_results(self, now_s: float) -> None:
        """Remove results that are older than their channel keeps them."""
        for channel in list(self.channels.values()):
            try:
                self._results.remove_older(channel.entry.id, int((now_s - channel.entry.retain_s) * 1e6))
            except ActiveDataError as error:
                logger.warning("channel %s: old results stay: %s", channel.entry.name, error)


def _next_period(channel: RunningChannel, now_s: float) -> None:
    """Set when a repetitive channel is due next: at its period, or at once if that has passed."""
    period_s = channel.entry.period_s or 0.0
    planned_s = channel.due_s + period_s
    if planned_s <= now_s:
        late_s = now_s - planned_s
        if late_s >= period_s or channel.busy:
            channel.meters.skipped_s += late_s
            channel.meters.skipped_count += int(late_s // period_s)
        planned_s = now_s
    channel.due_s = planned_s
