"""Results that Spark's tasks write: each makes a Parquet file in the results table's folder, and tells what is in it.

The driver sees one row for each subscription that has results (how many, how large, the last position), never the
results themselves; it commits the files (`Results.commit_files`). So the memory of the driver does not grow with the
results of an execution, and that of a task is bounded: one that finds more than `TaskLimits` says gives up.

Within a file, results stand by subscription and record, so that a reader of one subscription opens few row groups.
Positions are given in the same order. Each task has a block of them, and tasks are numbered, so that a subscription
whose results are in several files has growing positions as long as the tasks saw its records in order. Whether they did
is checked with what the tasks tell (`Written.is_ordered`).

The function that runs in the tasks is sent by value: a worker needs pyarrow, numpy and pyspark, not this package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

POSITIONS_PER_TASK: Final = 1 << 24
"""Positions that each task may give away; gaps between them mean nothing."""

TOO_MANY_RESULTS: Final = "more results than one task takes"
"""How the error begins with which a task gives up."""

_TOLD: Final = (
    "task int, file string, size_bytes long, stats string, channel long, subscription long, results_count long, "
    "results_bytes long, newest long, first_record long, last_record long"
)
"""What tasks tell: one row for the file, and one for each subscription in it."""


class TaskLimits(msgspec.Struct, frozen=True):
    """How much one task may hold in its memory before it writes."""

    rows_max_count: int = 4_000_000
    bytes_max: int = 512 * 1024 * 1024


class WrittenFile(msgspec.Struct, frozen=True):
    """A Parquet file in a table's folder that no commit names yet, with its statistics as Delta keeps them."""

    path: str
    size_bytes: int
    stats: str


class Written(msgspec.Struct, frozen=True):
    """What the tasks of an execution wrote; `told` has a row for each subscription of each task, in order of tasks."""

    files: tuple[WrittenFile, ...]
    told: pa.Table

    @property
    def results_count(self) -> int:
        """How many results there are."""
        return int(sum(self.told["results_count"].to_pylist()))

    @property
    def results_bytes(self) -> int:
        """How large their fields are."""
        return int(sum(self.told["results_bytes"].to_pylist()))

    @property
    def is_ordered(self) -> bool:
        """Whether each subscription's results have positions in the order of their records, and no record is split."""
        import numpy as np

        if not self.told.num_rows:
            return True
        names = ("channel", "subscription", "task", "first_record", "last_record")
        channel, subscription, task, first, last = (self.told[name].to_numpy() for name in names)
        order = np.lexsort((task, subscription, channel))
        same = (channel[order][1:] == channel[order][:-1]) & (subscription[order][1:] == subscription[order][:-1])
        return not bool(np.any(same & (first[order][1:] <= last[order][:-1])))


def write_results(frame: DataFrame, folder: str, first_position: int, executed_us: int, limits: TaskLimits) -> Written:
    """Let tasks write a query's results (channel, subscription, record, payload) into a folder.

    No file is visible to readers before it is committed; those of tasks that failed stay behind and are removed with
    other files that no version names.
    """
    writer = task_writer(folder, first_position, executed_us, limits)
    told = frame.mapInArrow(writer, _TOLD).toArrow()
    files = [row for row in told.select(["file", "size_bytes", "stats"]).to_pylist() if row["file"] is not None]
    import pyarrow.compute as pc

    return Written(
        tuple(WrittenFile(row["file"], row["size_bytes"], row["stats"]) for row in files),
        told.filter(pc.is_null(told["file"])).sort_by("task"),
    )


def task_writer(
    folder: str, first_position: int, executed_us: int, limits: TaskLimits
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that runs in each task."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    rows_max_count, bytes_max, block = limits.rows_max_count, limits.bytes_max, POSITIONS_PER_TASK
    too_many = TOO_MANY_RESULTS

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        found, rows_count, bytes_count = [], 0, 0
        for batch in batches:
            rows_count += batch.num_rows
            bytes_count += batch.nbytes
            if rows_count > min(rows_max_count, block) or bytes_count > bytes_max:
                raise ValueError(f"{too_many}: {rows_count:,} with {bytes_count:,} bytes, and there are more")
            found.append(batch)
        if rows_count:
            yield write_file(pa.Table.from_batches(found), folder, task, first_position + task * block, executed_us)

    return write


def write_file(found: Any, folder: str, task: int, first_position: int, executed_us: int) -> Any:
    """Write one task's results in their order; answers what is told of them."""
    import json
    import os
    import uuid
    from pathlib import Path

    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    names = ("channel", "subscription", "record")
    channel, subscription, record = (found[name].to_numpy() for name in names)
    order = np.lexsort((record, subscription, channel))
    channel, subscription, record = channel[order], subscription[order], record[order]
    same_subscription = np.zeros(len(order), dtype=bool)
    same_subscription[1:] = (channel[1:] == channel[:-1]) & (subscription[1:] == subscription[:-1])
    same = same_subscription.copy()
    same[1:] &= record[1:] == record[:-1]
    ordinal = np.zeros(len(order), dtype=np.int32)
    if same.any():  # the texts tell several of one subscription and record apart, the same in every execution
        found = found.sort_by([(name, "ascending") for name in (*names, "payload")])
        payload = found["payload"]
        index = np.arange(len(order))
        ordinal = (index - np.maximum.accumulate(np.where(same, 0, index))).astype(np.int32)
    else:
        payload = found["payload"].take(pa.array(order))
    positions = np.arange(first_position, first_position + len(order), dtype=np.int64)
    table = pa.table(
        {
            "position": positions,
            "channel": channel.astype(np.int64),
            "subscription": subscription.astype(np.int64),
            "record": record.astype(np.int64),
            "ordinal": ordinal,
            "executed_us": np.full(len(order), executed_us, dtype=np.int64),
            "payload": payload,
        }
    )
    name = f"tasks-{executed_us}-{task}-{uuid.uuid4().hex}.parquet"
    path = f"{folder}/{name}"
    pq.write_table(table, path, row_group_size=1 << 16, use_dictionary=["channel", "subscription", "executed_us"])
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    columns = [each for each in table.column_names if each != "payload"]
    ends = {each: pc.min_max(table[each]).as_py() for each in columns}
    stats = json.dumps(
        {
            "numRecords": table.num_rows,
            "minValues": {each: end["min"] for each, end in ends.items()},
            "maxValues": {each: end["max"] for each, end in ends.items()},
            "nullCount": dict.fromkeys(table.column_names, 0),
        }
    )
    starts = np.flatnonzero(~same_subscription)
    lasts = np.append(starts[1:], len(order)) - 1
    lengths = pc.binary_length(payload).to_numpy().astype(np.int64)
    count = len(starts)

    def column(file_value: object, values: Any, kind: Any) -> Any:
        return pa.array([file_value, *values], kind)

    long = pa.int64()
    return pa.RecordBatch.from_arrays(
        [
            pa.array([task] * (count + 1), pa.int32()),
            column(name, [None] * count, pa.string()),
            column(Path(path).stat().st_size, [None] * count, long),
            column(stats, [None] * count, pa.string()),
            column(None, channel[starts].tolist(), long),
            column(None, subscription[starts].tolist(), long),
            column(None, (lasts - starts + 1).tolist(), long),
            column(None, np.add.reduceat(lengths, starts).tolist(), long),
            column(None, positions[lasts].tolist(), long),
            column(None, record[starts].tolist(), long),
            column(None, record[lasts].tolist(), long),
        ],
        names=[
            "task",
            "file",
            "size_bytes",
            "stats",
            "channel",
            "subscription",
            "results_count",
            "results_bytes",
            "newest",
            "first_record",
            "last_record",
        ],
    )
