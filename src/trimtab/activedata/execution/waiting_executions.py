"""Executions of channels whose records may wait for a row of another dataset."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trimtab.activedata.execution.channel_queries import ChannelQuery
from trimtab.activedata.execution.channels import RunningChannel
from trimtab.activedata.execution.executions import PLANNED, Executions, Found
from trimtab.activedata.execution.lanes import Lane
from trimtab.activedata.execution.waits import FOUND_COLUMN

if TYPE_CHECKING:
    import pyarrow as pa


class WaitingExecutions:
    """Runs new records, and those that wait, and commits what they give."""

    def __init__(self, executions: Executions) -> None:
        self._executions = executions
        self._views = executions.views
        self._datasets = executions.datasets

    def run(self, channel: RunningChannel, records: pa.Table, to: int, lane: Lane) -> None:
        """Execute a channel on new records, and let those wait that find no row of the dataset that is waited for."""
        waits = channel.waits
        assert waits is not None
        started_s = time.monotonic()
        version = self._datasets[waits.queries.dataset].store.version
        with lane.working(self._views):
            found = self._rows_of(channel, waits.queries.enriched, records)
            wanting = self._rows_of(channel, waits.queries.wanting, records, (FOUND_COLUMN,))
        waits.add(wanting, found, to)
        if waits.count == 0 or waits.version is None:
            waits.version = version
        self._executions.commit([channel], Found(found, PLANNED), records.num_rows, to, started_s)

    def run_again(self, channel: RunningChannel, lane: Lane) -> None:
        """Look at the records again that wait, and commit what they give."""
        import pyarrow as pa
        import pyarrow.compute as pc

        waits = channel.waits
        assert waits is not None
        started_s = time.monotonic()
        dataset = self._datasets[channel.query.driver.lower()]
        waits.version = self._datasets[waits.queries.dataset].store.version
        numbers, now_s = waits.records(), time.time()
        records = dataset.records(numbers[0] - 1, numbers[-1])
        records = records.filter(pc.is_in(records["_sequence"], pa.array(numbers, pa.int64())))
        with lane.working(self._views):
            rows = waits.among(self._rows_of(channel, waits.queries.enriched, records), now_s, over=False)
            if waits.queries.without is not None:
                left = waits.among(self._rows_of(channel, waits.queries.without, records), now_s, over=True)
                known = set(_pair_keys(rows))
                rows = pa.concat_tables(
                    [rows, left.filter(pa.array([key not in known for key in _pair_keys(left)], pa.bool_()))]
                )
        if rows.num_rows:
            self._executions.commit([channel], Found(rows, PLANNED), records.num_rows, channel.position, started_s)
        waits.settle(rows, now_s)

    def _rows_of(
        self,
        channel: RunningChannel,
        query: ChannelQuery,
        records: pa.Table,
        columns: tuple[str, ...] | None = None,
    ) -> pa.Table:
        """What another query than the channel's own gives for records."""
        view = f"_waiting_{channel.entry.id}"
        with self._views.lock:
            for name in sorted(query.lookups):
                dataset = self._datasets[name.lower()]
                self._views.show_store(name, dataset.store, cached=not dataset.entry.active)
            self._views.show_arrow(view, records, None)
            source, radii = channel.subscriptions.show(self._views, without_ended=True)
            inner = query.text(f"`{view}`", source, radii)
            frame = self._views.session.sql(
                f"SELECT {channel.entry.id}L AS channel, q.`_subscription` AS subscription, q.`_record` AS record, "
                f"{channel.payload_sql(columns)} AS payload FROM ({inner}) q"
            )
        return frame.toArrow()


def _pair_keys(rows: pa.Table) -> list[str]:
    """One text for each row's record and subscription."""
    return [f"{r} {s}" for r, s in zip(rows["record"].to_pylist(), rows["subscription"].to_pylist(), strict=True)]
