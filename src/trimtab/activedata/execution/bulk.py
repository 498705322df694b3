"""Bulk loads: files or queries become records of a dataset, in tasks of Spark; the driver commits.

Tasks read, check, leave out duplicates and write Parquet files into the table's folder. One commit makes all of them
visible, or none. The records of an active dataset get their numbers in a second step, when it is known how many there
are. The driver holds the names of files and at most 10,000 dead letters, whatever the size of the load.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.definitions.data_statements import Copy
from trimtab.activedata.definitions.fields import Field, ValueMistake, arrow_type
from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.execution.bulk_tasks import (
    ANSWER,
    BAD,
    FIRST,
    LAST,
    LETTERS_MAX_COUNT,
    LINE,
    ORDER,
    BulkTask,
    NumberingTask,
)
from trimtab.activedata.storage.datasets import StoredDataset
from trimtab.activedata.storage.delta_tables import TableFile
from trimtab.activedata.storage.key_index import find_in, read_run
from trimtab.activedata.storage.parquet_files import WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITION_ROWS_BYTES: Final = 128 * 1024 * 1024
"""So much of the input becomes one partition when records are gathered by key."""


class Loaded(msgspec.Struct, frozen=True):
    """What became of the records of a load."""

    accepted_count: int
    repeated_count: int
    rejected_count: int
    letters: tuple[tuple[str, str], ...]
    """Reason and record of each that was rejected."""


class _Answers(msgspec.Struct):
    files: list[WrittenFile] = []
    runs: list[Path] = []
    letters: list[tuple[str, str]] = []
    counts: dict[str, int] = {}


def files_frame(session: SparkSession, copy: Copy, fields: Sequence[Field]) -> DataFrame:
    """The records of files: the fields, why a record cannot be used (`_bad`), and what it says if it cannot be read."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StringType, StructType

    path = known_path(copy.path)
    types = {field.name: from_arrow_type(arrow_type(field.type)) for field in fields}
    if copy.format == "PARQUET":
        return _parquet_frame(session.read.parquet(path), fields)
    reader = session.read.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", LINE)
    schema = StructType()
    if copy.format == "CSV":
        nested = [field.name for field in fields if field.type.startswith(("ARRAY", "STRUCT"))]
        if nested:
            raise ValueMistake(f"CSV has no arrays or structs, and {nested[0]} is one; use JSON or Parquet")
        names = [field.name for field in fields]
        if copy.header:
            names = session.read.option("header", True).csv(path).columns
            _check_columns(names, fields)
        for name in names:
            schema.add(name, types.get(name, StringType()))
        schema.add(LINE, StringType())
        frame = reader.schema(schema).option("header", copy.header).option("escape", '"').csv(path)
    else:
        for name, kind in types.items():
            schema.add(name, kind)
        frame = reader.schema(schema.add(LINE, StringType())).json(path)
    bad = f.when(f.col(LINE).isNotNull(), f.lit(f"it cannot be read as {copy.format} with the fields of the dataset"))
    return frame.select(
        *(f.col(_quoted(field.name)) for field in fields), _missing(bad, fields).alias(BAD), f.col(LINE)
    )


def known_path(path: str) -> str:
    """A path as Spark reads it; one of this machine must exist."""
    if "://" in path or path.startswith("file:"):
        return path
    if not Path(path).exists():
        raise ValueMistake(f"there is no file or directory {path}")
    return Path(path).absolute().as_uri()


def _check_columns(names: Sequence[str], fields: Sequence[Field]) -> None:
    missing = [field.name for field in fields if not field.optional and field.name not in names]
    if missing:
        raise ValueMistake(f"the files have no field {missing[0]!r}; they have {', '.join(names)}")


def _missing(bad: Any, fields: Sequence[Field]) -> Any:
    from pyspark.sql import functions as f

    for field in fields:
        if not field.optional:
            reason = f.lit(f"field '{field.name}' is missing")
            condition = f.col(_quoted(field.name)).isNull()
            bad = f.when(condition, reason) if bad is None else bad.when(condition, reason)
    return f.lit(None).cast("string") if bad is None else bad


def _parquet_frame(frame: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """Columns of Parquet files as the fields; a value that is not of the field's type is told."""
    from pyspark.sql import functions as f

    _check_columns(frame.columns, fields)
    return cast_frame(frame, fields).withColumn(LINE, f.lit(None).cast("string"))


def cast_frame(frame: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """Columns that are named as fields, in the types of the fields, and what is wrong with each record (`_bad`)."""
    from pyspark.sql import functions as f

    columns, bad = [], None
    for field in fields:
        if field.name not in frame.columns:
            if not field.optional:
                raise ValueMistake(f"field {field.name!r} must be given")
            columns.append(f.lit(None).cast(field.type).alias(field.name))
            continue
        source = f.col(_quoted(field.name))
        cast = source.try_cast(field.type)
        columns.append(cast.alias(field.name))
        tests = [(source.isNotNull() & cast.isNull(), f"field '{field.name}' is no {field.type}")]
        if not field.optional:
            tests.append((source.isNull(), f"field '{field.name}' is missing"))
        for condition, reason in tests:
            bad = (f if bad is None else bad).when(condition, f.lit(reason))
    return frame.select(*columns, (f.lit(None).cast("string") if bad is None else bad).alias(BAD))


def _quoted(name: str) -> str:
    return f"`{name}`"


class BulkLoad:
    """One load into one dataset."""

    def __init__(self, session: SparkSession, dataset: StoredDataset, source: str) -> None:
        self._session = session
        self._dataset = dataset
        self._source = source
        self._parallelism_count = session.sparkContext.defaultParallelism

    def load(self, frame: DataFrame, *, input_bytes: int = 0) -> Loaded:
        """Add the records of a frame (fields, `_bad`, `_line`), or let them replace those with their keys."""
        dataset = self._dataset
        if LINE not in frame.columns:
            from pyspark.sql import functions as f

            frame = frame.withColumn(LINE, f.lit(None).cast("string"))
        if dataset.entry.active:
            return self._add_numbered(frame, input_bytes)
        if dataset.entry.keys:
            return self._replace(frame, input_bytes)
        found = self._run(frame, self._task(""))
        return self._committed(found, lambda: dataset.adopt(found.files, [], found.counts["accepted"]))

    def rewrite(self, frame: DataFrame) -> int:
        """Let the records of a frame (all visible columns) be all that the dataset has; the lock must be held."""
        dataset = self._dataset
        removed = dataset.store.table_files()
        found = self._run(frame, self._task(""))
        self._committed(found, lambda: dataset.adopt(found.files, removed, 0))
        return found.counts["accepted"]

    def _partitions_count(self, input_bytes: int) -> int:
        return max(2 * self._parallelism_count, -(-input_bytes // PARTITION_ROWS_BYTES))

    def _add_numbered(self, frame: DataFrame, input_bytes: int) -> Loaded:
        dataset = self._dataset
        keys = dataset.keys
        before = dataset.last_sequence
        if keys is None:
            found = self._run(frame, self._task(""))
        else:
            gathered = frame.repartition(self._partitions_count(input_bytes), *map(_quoted, dataset.entry.keys))
            with dataset.lock:
                before = dataset.last_sequence
                holding = keys.index.held(before, dataset.store.changes.last_change)
                runs = holding.__enter__()
            try:
                found = self._run(gathered, self._task(FIRST, tuple(str(each.path) for each in runs)))
            finally:
                holding.__exit__(None, None, None)

        def commit() -> None:
            with dataset.lock:
                if keys is not None and dataset.last_sequence != before:
                    self._check_no_rivals(found, before)
                staged = found.files
                found.files = self._numbered(staged, dataset.last_sequence + 1)
                dataset.adopt(found.files, [], found.counts["accepted"])
                if keys is not None:
                    keys.index.adopt(found.runs, dataset.last_sequence, dataset.store.changes.last_change)

        return self._committed(found, commit)

    def _check_no_rivals(self, found: _Answers, before: int) -> None:
        """Records that came while the tasks worked must not have the keys of the load."""
        import pyarrow.compute as pc

        assert self._dataset.keys is not None
        runs = [run for path in found.runs if (run := read_run(path)) is not None]
        for batch in self._dataset.store.batches(pc.field("_sequence") > before):
            entries = self._dataset.keys.entries(batch)
            if any(len(find_in(run, entries.keys, entries.more)[0]) for run in runs):
                raise ActiveDataError(
                    f"records with the same {', '.join(self._dataset.entry.keys)} came into {self._dataset.entry.name} "
                    "while the load was under way; nothing was loaded, run it again"
                )

    def _numbered(self, files: list[WrittenFile], first: int) -> list[WrittenFile]:
        """The same files with the numbers of the records in them."""
        rows = []
        for each in files:
            rows.append((msgspec.json.encode(each).decode(), first))
            first += each.rows_count
        if not rows:
            return []
        task = NumberingTask(str(self._dataset.store.path), self._schema())
        frame = self._session.createDataFrame(rows, "file STRING, first BIGINT").repartition(len(rows))
        return self._collected(frame, task).files

    def _replace(self, frame: DataFrame, input_bytes: int) -> Loaded:
        """Old and new records gathered by key; the last of each stays."""
        from pyspark.sql import functions as f

        dataset = self._dataset
        keys = [_quoted(each) for each in dataset.entry.keys]
        frame = frame.withColumn(ORDER, f.monotonically_increasing_id())
        with dataset.lock:
            removed: list[TableFile] = dataset.store.table_files()
            old_count = dataset.store.rows_count() if removed else 0
            if removed:
                old = self.old_frame().withColumn(BAD, f.lit(None).cast("string"))
                old = old.withColumn(LINE, f.lit(None).cast("string")).withColumn(ORDER, f.lit(-1).cast("bigint"))
                frame = frame.unionByName(old)
                input_bytes += sum(each.size_bytes * 4 for each in removed)
            gathered = frame.repartition(self._partitions_count(input_bytes), *keys).sortWithinPartitions(*keys, ORDER)
            found = self._run(gathered, self._task(LAST))
            count = found.counts["accepted"]
            loaded = self._committed(found, lambda: dataset.adopt(found.files, removed, count))
        return msgspec.structs.replace(loaded, accepted_count=max(0, count - old_count) or count)

    def old_frame(self) -> DataFrame:
        """The dataset as it is now."""
        from trimtab.activedata.execution.dataset_frames import dataset_frame

        return dataset_frame(self._session, self._dataset.store)

    def _schema(self) -> bytes:
        return bytes(self._dataset.store.table_schema.serialize().to_pybytes())

    def _task(self, duplicates: str, runs: tuple[str, ...] = ()) -> BulkTask:
        dataset = self._dataset
        return BulkTask(
            folder=str(dataset.store.path.absolute()),
            schema=self._schema(),
            fields=tuple(field.name for field in dataset.entry.fields),
            keys=dataset.entry.keys,
            seed=dataset.entry.seed,
            duplicates=duplicates,
            runs=runs,
            runs_folder="" if dataset.keys is None else str(dataset.keys.index.folder.absolute()),
            source=self._source,
            partition_by=tuple(dataset.store.partition_by),
        )

    def _run(self, frame: DataFrame, task: BulkTask) -> _Answers:
        return self._collected(frame, task)

    def _collected(self, frame: DataFrame, task: BulkTask | NumberingTask) -> _Answers:
        found = _Answers([], [], [], {"accepted": 0, "repeated": 0, "rejected": 0})
        for row in frame.mapInArrow(task, ANSWER).toLocalIterator():
            match row["kind"]:
                case "file":
                    found.files.append(msgspec.json.decode(row["text"], type=WrittenFile))
                case "run":
                    found.runs.append(Path(row["text"]))
                case "letter":
                    if len(found.letters) <= LETTERS_MAX_COUNT:
                        reason, line = json.loads(row["text"])
                        found.letters.append((reason, line))
                case kind:
                    found.counts[kind] += row["count"]
        return found

    def _committed(self, found: _Answers, commit: Any) -> Loaded:
        """Commit what tasks wrote; if that is not to be, it is removed."""
        try:
            if found.counts["rejected"] > LETTERS_MAX_COUNT:
                reason, line = found.letters[0]
                raise ActiveDataError(
                    f"{found.counts['rejected']:,} records cannot be used, more than {LETTERS_MAX_COUNT:,}: nothing "
                    f"was loaded. The first: {reason}: {line[:200]}"
                )
            commit()
        except BaseException:
            for each in found.files:
                (self._dataset.store.path / each.name).unlink(missing_ok=True)
            for path in found.runs:
                path.unlink(missing_ok=True)
            raise
        counts = found.counts
        return Loaded(counts["accepted"], counts["repeated"], counts["rejected"], tuple(found.letters))
