"""Runs the channels: when records arrive or a period is over, one query for all of a channel's subscriptions.

Source: the Big Active Data paper (003), "BAD Publishers and Subscribers": repetitive and continuous channels. An
execution takes the records that came after the channel's position, asks Spark once, and commits results and position
together. Channels that stand at the same position of the same dataset share one query (a union), because planning
costs more than running at small sizes. What we do differently from the original: a repetitive channel that needs longer
than its period is not stopped but runs again at once, and the time it lost is counted; positions survive a restart.

Quick channels run together, in one lane for those without and one for those with a period. Channels that are slow, that
failed, or that have many records waiting run apart, each alone, in a few lanes of their own (`APART_COUNT`), so that
they delay nobody else. A watch ends what takes too long, and starts Spark again when it died.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.execution.channels import RunningChannel
from trimtab.activedata.execution.executions import Executions
from trimtab.activedata.execution.failures import Failures
from trimtab.activedata.execution.lanes import Lane
from trimtab.activedata.execution.waiting_executions import WaitingExecutions
from trimtab.activedata.execution.whole_executions import WholeExecutions
from trimtab.activedata.spark.errors import is_spark_gone
from trimtab.activedata.spark.views import SparkViews
from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.datasets import StoredDataset
from trimtab.activedata.storage.results import Results

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

APART_COUNT: Final = 2
"""Lanes for channels that run apart."""

WAITING_RECORDS_COUNT: Final = 2_000
"""New records that a channel takes at once whose records may wait."""

WATCH_EVERY_S: Final = 1.0
IDLE_MAX_S: Final = 600.0
RETENTION_EVERY_S: Final = 600.0

DeadLetter = Callable[[RunningChannel, "pa.Table", str], None]
Suspend = Callable[[RunningChannel, int, str], None]
Due = Callable[[float], tuple[list[RunningChannel], float | None]]


class Engine:
    """Executes channels in lanes: continuous, repetitive, and a few for those that run apart."""

    def __init__(
        self,
        catalog: Catalog,
        views: SparkViews,
        datasets: Mapping[str, StoredDataset],
        results: Results,
        *,
        dead_letter: DeadLetter,
        suspend: Suspend,
    ) -> None:
        self._views = views
        self._datasets = datasets
        self._results = results
        self.executions = Executions(catalog, views, datasets, results)
        self.whole = WholeExecutions(self.executions, catalog)
        self._waiting = WaitingExecutions(self.executions)
        self._failures = Failures(self.executions, self.whole, dead_letter, suspend)
        self.channels: dict[str, RunningChannel] = {}
        self._news = threading.Condition()
        self._is_stopping = False
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lanes: list[Lane] = []
        self._retention_at_s = time.monotonic() + RETENTION_EVERY_S
        self._last_apart = 0
        """The channel that ran apart last: the others come first."""

    def start(self) -> None:
        """Start the threads."""
        kinds: list[tuple[str, Due]] = [("continuous", self._continuous_due), ("repetitive", self._repetitive_due)]
        kinds += [(f"apart-{number}", self._apart_due) for number in range(1, APART_COUNT + 1)]
        for kind, due in kinds:
            lane = Lane(f"channels-{kind}")
            self._lanes.append(lane)
            self._threads.append(threading.Thread(target=self._loop, args=(lane, due), name=lane.name, daemon=True))
        self._threads.append(threading.Thread(target=self._watch, name="channels-watch", daemon=True))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop after the executions that are under way."""
        with self._news:
            self._is_stopping = True
            self._news.notify_all()
        self._stopped.set()
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

    # What is due

    def _loop(self, lane: Lane, due: Due) -> None:
        while True:
            with self._news:
                now_s = time.monotonic()
                ready, next_s = due(now_s)
                while not self._is_stopping and not ready:
                    self._news.wait(None if next_s is None else min(IDLE_MAX_S, max(0.0, next_s - now_s)))
                    now_s = time.monotonic()
                    ready, next_s = due(now_s)
                if self._is_stopping:
                    return
                for channel in ready:
                    channel.busy = True
            try:
                self.run(ready, lane)
            except Exception:
                logger.exception("%s: what failed is tried again", lane.name)
                for channel in ready:
                    channel.retry_after_s = time.monotonic() + 5.0
            finally:
                with self._news:
                    for channel in ready:
                        channel.busy = channel.has_tasks = False
                    self._news.notify_all()

    def waiting_count(self, channel: RunningChannel) -> int:
        """How many records a channel has not seen; whole bodies count as one that is there when they should run."""
        if channel.whole is None:
            new_count = self._datasets[channel.query.driver.lower()].last_sequence - channel.position
            return new_count or int(self._is_again_due(channel))
        if channel.options.repetitive:
            return min(1, channel.subscriptions.count)
        seen = channel.state.positions
        return int(any(self._datasets[name].last_sequence > seen.get(name, 0) for name in channel.whole.new_in))

    def _is_again_due(self, channel: RunningChannel) -> bool:
        """Whether records that wait should be looked at again."""
        waits = channel.waits
        return waits is not None and waits.is_due(self._datasets[waits.queries.dataset].store.version)

    def _next_count(self, channel: RunningChannel) -> int:
        """How many records its next execution takes."""
        return min(self.waiting_count(channel), channel.size.records_count(channel.subscriptions.count))

    def _runs_apart(self, channel: RunningChannel) -> bool:
        return channel.is_apart or self.executions.takes_tasks(channel, self._next_count(channel))

    def _continuous_due(self, now_s: float) -> tuple[list[RunningChannel], float | None]:
        waiting = [each for each in self._each(continuous=True) if self.waiting_count(each) > 0]
        mine = [each for each in waiting if not self._runs_apart(each)]
        ready = [each for each in mine if each.retry_after_s <= now_s]
        waited = [each.waits.next_s() for each in self._each(continuous=True) if each.waits is not None]
        times = [now_s + max(0.05, at_s - time.time()) for at_s in waited if at_s is not None]
        return ready, min([*(each.retry_after_s for each in mine), *times], default=None)

    def _repetitive_due(self, now_s: float) -> tuple[list[RunningChannel], float | None]:
        """Channels whose period is over; one that has nothing new to see just waits for its next period."""
        ready = []
        mine = [each for each in self._each(continuous=False) if not self._runs_apart(each)]
        for channel in mine:
            if channel.due_s > now_s or channel.retry_after_s > now_s:
                continue
            if self.waiting_count(channel) > 0:
                ready.append(channel)
            else:
                next_period(channel, now_s)
        return ready, min((max(each.due_s, each.retry_after_s) for each in mine), default=None)

    def _apart_due(self, now_s: float) -> tuple[list[RunningChannel], float | None]:
        """The next channel that runs apart, in turn; only one at a time lets tasks write its results."""
        times: list[tuple[float, RunningChannel]] = []
        later_s: list[float] = []
        are_tasks_taken = any(channel.has_tasks for channel in self.channels.values())
        for channel in self.channels.values():
            if channel.busy or not self._runs_apart(channel):
                continue
            if are_tasks_taken and self.executions.takes_tasks(channel, self._next_count(channel)):
                continue
            at_s = max(channel.due_s if channel.entry.period_s else 0.0, channel.retry_after_s)
            if self.waiting_count(channel) > 0:
                times.append((at_s, channel))
            elif channel.entry.period_s is not None:
                if channel.due_s <= now_s:
                    next_period(channel, now_s)
                later_s.append(channel.due_s)
            elif channel.waits is not None and (waited_s := channel.waits.next_s()) is not None:
                later_s.append(now_s + max(0.05, waited_s - time.time()))
        ready = sorted(((each.entry.id, each) for at_s, each in times if at_s <= now_s), key=lambda pair: pair[0])
        if not ready:
            return [], min([*(at_s for at_s, _ in times), *later_s], default=None)
        after = [each for number, each in ready if number > self._last_apart]
        chosen = after[0] if after else ready[0][1]
        self._last_apart = chosen.entry.id
        chosen.has_tasks = self.executions.takes_tasks(chosen, self._next_count(chosen))
        return [chosen], None

    def _each(self, *, continuous: bool) -> list[RunningChannel]:
        return [
            each for each in self.channels.values() if not each.busy and (each.entry.period_s is None) == continuous
        ]

    # Executions

    def run(self, channels: list[RunningChannel], lane: Lane) -> None:
        """Execute channels once, those together that stand at the same place."""
        groups: dict[tuple[str, int], list[RunningChannel]] = {}
        for channel in channels:
            if channel.whole is not None:
                self._execute_whole(channel, lane)
                continue
            if channel.waits is not None:
                self._execute_waiting(channel, lane)
                continue
            groups.setdefault((channel.query.driver, channel.position), []).append(channel)
        for (driver, position), group in groups.items():
            dataset = self._datasets[driver.lower()]
            count = min(self._next_count(channel) for channel in group)
            if count > 0:
                self._execute(group, dataset, position + count, lane)
        now_s = time.monotonic()
        for channel in channels:
            if channel.entry.period_s is not None:
                next_period(channel, now_s)

    def _execute(self, group: list[RunningChannel], dataset: StoredDataset, to: int, lane: Lane) -> None:
        """Execute channels at one position on the records up to `to`; a failure stays with the channel it is of."""
        started_s = time.monotonic()
        position = group[0].position
        records = dataset.records(position, to)
        try:
            if len(group) == 1 and self.executions.takes_tasks(group[0], to - position):
                self.executions.run_tasks(group[0], records, to, lane)
                return
            planned = self.executions.run_small(group, records, to, lane)
        except Exception as error:
            if len(group) > 1 and not is_spark_gone(error):
                for channel in group:
                    self._execute([channel], dataset, to, lane)
                return
            for channel in group:
                if channel.is_apart:
                    self._failures.handle(channel, dataset, to, error, lane=lane)
                else:
                    self._failures.set_apart(channel, to, error)
            return
        for channel in group:
            channel.took(time.monotonic() - started_s, alone=len(group) == 1, planned=planned)

    def _execute_waiting(self, channel: RunningChannel, lane: Lane) -> None:
        dataset = self._datasets[channel.query.driver.lower()]
        to = channel.position
        try:
            if self._is_again_due(channel):
                self._waiting.run_again(channel, lane)
            to += min(dataset.last_sequence - to, WAITING_RECORDS_COUNT, self._next_count(channel))
            if to > channel.position:
                self._waiting.run(channel, dataset.records(channel.position, to), to, lane)
        except Exception as error:
            if channel.is_apart and to > channel.position:
                self._failures.handle(channel, dataset, to, error, lane=lane)
            else:
                self._failures.set_apart(channel, max(to, channel.position + 1), error)
                channel.retry_after_s = max(channel.retry_after_s, time.monotonic() + 1.0)

    def _execute_whole(self, channel: RunningChannel, lane: Lane) -> None:
        started_s = time.monotonic()
        now = self.whole.next_state(channel)
        try:
            self.whole.run(channel, now, lane)
        except Exception as error:
            self._failures.handle_whole(channel, now, error, lane)
            return
        channel.took(time.monotonic() - started_s, alone=True, planned=True)

    # The watch

    def _watch(self) -> None:
        """Start Spark again when it died, end what takes too long, and remove old results."""
        while not self._stopped.wait(WATCH_EVERY_S):
            try:
                if not self._views.is_alive():
                    logger.warning("Spark died and is started again")
                    self._views.revive()
                now_s = time.monotonic()
                for lane in self._lanes:
                    lane.cancel_overdue(self._views, now_s)
                if now_s >= self._retention_at_s:
                    self._retention_at_s = now_s + RETENTION_EVERY_S
                    self.remove_old_results(time.time())
            except Exception as error:  # whatever it is, the watch goes on
                logger.warning("the watch over the channels: %s", error)

    def remove_old_results(self, now_s: float) -> None:
        """Remove results that are older than their channel keeps them."""
        for channel in list(self.channels.values()):
            try:
                self._results.remove_older(channel.entry.id, int((now_s - channel.entry.retain_s) * 1e6))
            except ActiveDataError as error:
                logger.warning("channel %s: old results stay: %s", channel.entry.name, error)


def next_period(channel: RunningChannel, now_s: float) -> None:
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
