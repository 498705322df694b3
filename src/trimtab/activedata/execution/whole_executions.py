"""Executions of channels that run their whole body: all of it for all subscriptions, and how far they are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.activedata.errors import StorageError
from trimtab.activedata.execution import executions as paths
from trimtab.activedata.execution.channels import RunningChannel
from trimtab.activedata.execution.executions import (
    PLANNED,
    POSITIONS_AHEAD,
    TASKS,
    Executions,
    Outcome,
    Part,
    joined,
    plan_text,
    without_ended,
)
from trimtab.activedata.execution.lanes import Lane
from trimtab.activedata.execution.result_tasks import POSITIONS_PER_TASK, Written, write_results
from trimtab.activedata.execution.whole_queries import WholeState
from trimtab.activedata.storage.catalog import Catalog

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

STATE_NOTE: Final = "CHANNEL STATE"
"""In the catalog: how far a channel is that runs its whole body, if its last executions gave no results."""


class WholeExecutions:
    """Runs whole bodies and commits what they give together with how far the channel is."""

    def __init__(self, executions: Executions, catalog: Catalog) -> None:
        self._executions = executions
        self._catalog = catalog
        self._views = executions.views
        self._results = executions.results
        self._datasets = executions.datasets

    def run(self, channel: RunningChannel, now: WholeState, lane: Lane, rows: pa.Table | None = None) -> None:
        """Execute the whole body of a channel and commit what it gives, or `rows` if that is known."""
        started_s = time.monotonic()
        if rows is None and self._executions.takes_tasks(channel, 1):
            self.run_tasks(channel, now, lane)
            return
        plan = ""
        if rows is None:
            with lane.working(self._views):
                frame = self.query(channel, now)
                rows, plan = frame.toArrow(), plan_text(frame)
        rows = without_ended(rows, channel.subscriptions.ended)
        self._results.commit(rows, {channel.entry.id: now.execution}, whole_marks(channel, now))
        outcome = Outcome(now.execution, 1, PLANNED, started_s, plan)
        self._came_through(channel, now, outcome, rows.num_rows, rows["payload"].nbytes)

    def run_tasks(self, channel: RunningChannel, now: WholeState, lane: Lane, parts: list[Part] | None = None) -> None:
        """Execute a whole body and let tasks write what it gives, for some subscriptions after others if need be."""
        started_s = time.monotonic()
        folder = str(self._results.store.path.absolute())
        asked: list[Part | None] = [*parts] if parts else [None]
        written: list[Written] = []
        with self._executions.tasks_lock, self._executions.strays_removed(now.executed_us):
            first = self._results.last_position + POSITIONS_AHEAD
            slots_count = max(1, self._views.slots_count() - 1)
            for number, part in enumerate(asked):
                position = first + number * POSITIONS_PER_TASK * slots_count
                with lane.working(self._views):
                    frame = self.query(channel, now, part).repartition(slots_count, "subscription")
                    written.append(write_results(frame, folder, position, now.executed_us, paths.TASK_LIMITS))
            if self._results.last_position >= first:
                raise StorageError("other channels had more results meanwhile than positions were left for them")
            both = joined(written)
            last = first + len(asked) * POSITIONS_PER_TASK * slots_count
            self._results.commit_files(both, last, {channel.entry.id: now.execution}, whole_marks(channel, now))
        outcome = Outcome(now.execution, 1, TASKS, started_s, plan_text(frame))
        self._came_through(channel, now, outcome, both.results_count, both.results_bytes)

    def _came_through(
        self, channel: RunningChannel, now: WholeState, outcome: Outcome, results_count: int, results_bytes: int
    ) -> None:
        if not results_count:  # else the commit of the results says it
            self._catalog.set_note(STATE_NOTE, channel.entry.id, msgspec.json.encode(now).decode())
        channel.state = now
        self._executions.came_through(channel, outcome, results_count, results_bytes)
        self._executions.note([channel], outcome, results_count)

    def next_state(self, channel: RunningChannel) -> WholeState:
        """What the next execution of a whole body sees: records up to here, at this moment."""
        new_in = channel.whole.new_in if channel.whole is not None else ()
        positions = {name: self._datasets[name].last_sequence for name in new_in}
        return WholeState(channel.state.execution + 1, int(time.time() * 1e6), positions)

    def state_of(self, channel_id: int, new_in: tuple[str, ...]) -> WholeState:
        """How far a channel was when the process ended: as its results say, or the catalog if there were none since."""
        noted = self._catalog.note(STATE_NOTE, channel_id)
        state = WholeState() if noted is None else msgspec.json.decode(noted, type=WholeState)
        execution = self._results.channel_position(channel_id)
        if execution <= state.execution:
            return state
        mark = self._results.store.mark
        positions = {name: mark(f"channel-{channel_id}-{name}") or 0 for name in new_in}
        return WholeState(execution, mark(f"channel-{channel_id}-us") or 0, positions)

    def query(self, channel: RunningChannel, now: WholeState, part: Part | None = None) -> DataFrame:
        """The query of a channel that runs its whole body, as a DataFrame."""
        assert channel.whole is not None
        with self._views.lock:
            for name in channel.whole.datasets:
                dataset = self._datasets[name.lower()]
                self._views.show_store(name, dataset.store, cached=not dataset.entry.active)
            source, _ = channel.subscriptions.show(self._views, without_ended=True)
            if part is not None:
                source = f"(SELECT * FROM {source} WHERE `_subscription` BETWEEN {part[0]} AND {part[1]})"
            inner = channel.whole.text(source, channel.state, now)
            return self._views.session.sql(
                f"SELECT {channel.entry.id}L AS channel, q.`_subscription` AS subscription, q.`_record` AS record, "
                f"{channel.payload_sql()} AS payload FROM ({inner}) q"
            )


def whole_marks(channel: RunningChannel, now: WholeState) -> dict[str, int]:
    """What a commit of a whole body's results remembers of its execution."""
    marks = {f"channel-{channel.entry.id}-{name}": position for name, position in now.positions.items()}
    return {**marks, f"channel-{channel.entry.id}-us": now.executed_us}
