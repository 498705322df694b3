"""Runs the statements that change records: INSERT, UPSERT, UPDATE, DELETE, COPY and ALTER DATASET.

Up to 20,000 records that change become changes beside the base, committed by the driver; more are written anew by tasks
of Spark. Files and queries always are. An answer says which way was taken (`path`: "driver" or "spark").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trimtab.activedata.definitions.data_statements import (
    AlterDataset,
    Copy,
    DataStatement,
    Delete,
    Part,
    Put,
    Update,
)
from trimtab.activedata.definitions.fields import ValueMistake
from trimtab.activedata.errors import StatementError
from trimtab.activedata.execution.bulk import BulkLoad, Loaded, cast_frame, files_frame
from trimtab.activedata.execution.queries import Queries
from trimtab.activedata.spark.errors import placed_error
from trimtab.activedata.storage.changes import CHANGES_MAX_COUNT
from trimtab.activedata.storage.datasets import StoredDataset
from trimtab.activedata.storage.dead_letters import DeadLetter, DeadLetters

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class Done(msgspec.Struct, frozen=True):
    """What a statement did, in words and in numbers."""

    said: str
    rows: list[dict[str, Any]] = []


class RecordStatements:
    """Changes the records of datasets."""

    def __init__(
        self,
        dead_letters: DeadLetters,
        queries: Queries,
        changed: Callable[[], None],
    ) -> None:
        self._dead_letters = dead_letters
        self._frame = queries.checked_frame
        self._check_path = queries.limits.check_path
        self._changed = changed

    def run(self, statement: DataStatement, dataset: StoredDataset, text: str) -> Done:
        """Run one statement; a mistake in it is told with its place in the text."""
        match statement:
            case Put(query=None) as each:
                return self._put(each, dataset)
            case Put() as each:
                return self._put_query(each, dataset, text)
            case Update() as each:
                return self._update(each, dataset, text)
            case Delete() as each:
                return self._delete(each, dataset, text)
            case Copy() as each:
                return self._copy(each, dataset, text)
            case AlterDataset() as each:
                return self._alter(each, dataset, text)

    # INSERT and UPSERT

    def _put(self, each: Put, dataset: StoredDataset) -> Done:
        columns = each.columns or tuple(field.name for field in dataset.entry.fields)
        rows = []
        for row in each.rows:
            if len(row) != len(columns):
                raise ValueMistake(f"{len(row)} values for {len(columns)} fields")
            rows.append(dataset.check(dict(zip(columns, row, strict=True))))
        taken = dataset.put(rows, as_new=each.as_new) if each.upsert else dataset.take(rows)
        self._changed()
        if taken.refused:
            raise ValueMistake(taken.refused[0][1])
        return Done(f"{taken.accepted_count:,} records into {dataset.entry.name}")

    def _put_query(self, each: Put, dataset: StoredDataset, text: str) -> Done:
        assert each.query is not None
        frame = self._placed(each.query, text, lambda query: self._frame(query.text))
        names = each.columns or tuple(field.name for field in dataset.entry.fields)
        if len(frame.columns) != len(names):
            said = f"the query has {len(frame.columns)} columns for {len(names)} fields"
            raise StatementError(text, each.query.start, said)
        fields = {field.name for field in dataset.entry.fields}
        unknown = [name for name in names if name not in fields]
        if unknown:
            raise ValueMistake(f"there is no field {unknown[0]!r} in {dataset.entry.name}")
        checked = cast_frame(frame.toDF(*names), dataset.entry.fields)
        if each.upsert and dataset.keys is not None:
            rows = checked.limit(CHANGES_MAX_COUNT + 1).toArrow()
            if rows.num_rows > CHANGES_MAX_COUNT:
                raise ValueMistake(f"at most {CHANGES_MAX_COUNT:,} records of an active dataset are changed at once")
            bad = [reason for reason in rows["_bad"].to_pylist() if reason is not None]
            if bad:
                raise ValueMistake(bad[0])
            table = rows.select([field.name for field in dataset.entry.fields])
            taken = dataset.put_table(dataset.newest_of(table), as_new=each.as_new)
            self._changed()
            return _answer(Loaded(taken.accepted_count, taken.repeated_count, 0, ()), dataset, "driver")
        loaded = self._placed(each.query, text, lambda _: self._load(dataset, checked, "INSERT", 0))
        return _answer(loaded, dataset, "spark")

    # COPY

    def _copy(self, each: Copy, dataset: StoredDataset, text: str) -> Done:
        from pyspark.errors import PySparkException

        self._check_path(each.path)
        try:
            frame = files_frame(self._frame("SELECT 1").sparkSession, each, dataset.entry.fields)
            loaded = self._load(dataset, frame, each.path, _size_bytes(each.path))
        except PySparkException as error:
            raise StatementError(text, each.position, f"{each.path}: {_first_line(error)}") from None
        return _answer(loaded, dataset, "spark")

    def _load(self, dataset: StoredDataset, frame: DataFrame, source: str, input_bytes: int) -> Loaded:
        loaded = BulkLoad(frame.sparkSession, dataset, source).load(frame, input_bytes=input_bytes)
        letters = [DeadLetter(dataset.entry.name, source, 0, reason, line) for reason, line in loaded.letters]
        self._dead_letters.add(letters)
        self._changed()
        return loaded

    # UPDATE and DELETE

    def _update(self, each: Update, dataset: StoredDataset, text: str) -> Done:
        entry = dataset.entry
        fields = {field.name.lower(): field for field in entry.fields}
        values: dict[str, Part] = {}
        for name, part in each.assignments:
            field = fields.get(name.lower())
            if field is None:
                raise ValueMistake(f"there is no field {name!r} in {entry.name}")
            if field.name in entry.keys:
                raise ValueMistake(f"{field.name} is the key of {entry.name} and does not change; DELETE and INSERT do")
            values[field.name] = part
        if each.as_new and dataset.keys is None:
            raise ValueMistake(f"AS NEW is for active datasets with a key, and {entry.name} is none")
        types = {field.name: field.type for field in entry.fields}
        for name, part in values.items():
            self._checked(part, text, "SELECT CAST((", f") AS {types[name]}) FROM `{entry.name}`")
        new = {name: f"CAST(({part.text}) AS {types[name]})" for name, part in values.items()}
        where = self._condition(each.condition, dataset, text)
        with dataset.lock:
            columns = ", ".join(f"{new.get(name, f'`{name}`')} AS `{name}`" for name in dataset.schema.names)
            rows = self._few(dataset, f"SELECT {columns} FROM `{entry.name}` WHERE {where}", each, text)
            if rows is not None:
                self._check_present(dataset, rows)
                if rows.num_rows:
                    dataset.replace_rows(rows, as_new=each.as_new)
                count, path = rows.num_rows, "driver"
            elif each.as_new:
                raise ValueMistake(f"at most {CHANGES_MAX_COUNT:,} records are changed AS NEW at once")
            else:
                count, path = self._rewrite_changed(dataset, new, where), "spark"
        self._changed()
        return Done(f"{count:,} records of {entry.name} changed", [{"changed": count, "path": path}])

    def _rewrite_changed(self, dataset: StoredDataset, new: Mapping[str, str], where: str) -> int:
        name = dataset.entry.name
        count = int(self._frame(f"SELECT count(*) FROM `{name}` WHERE {where}").collect()[0][0])
        columns = ", ".join(
            f"CASE WHEN {where} THEN {new[each]} ELSE `{each}` END AS `{each}`" if each in new else f"`{each}`"
            for each in dataset.schema.names
        )
        self._rewrite(dataset, f"SELECT {columns} FROM `{name}`")
        return count

    def _delete(self, each: Delete, dataset: StoredDataset, text: str) -> Done:
        name = dataset.entry.name
        with dataset.lock:
            if each.condition is None:
                count, path = dataset.store.rows_count(), "driver"
                dataset.clear()
            else:
                where = self._condition(each.condition, dataset, text)
                rows = self._few(dataset, f"SELECT * FROM `{name}` WHERE {where}", each, text)
                if rows is not None:
                    if rows.num_rows:
                        dataset.delete_rows(rows)
                    count, path = rows.num_rows, "driver"
                else:
                    before = dataset.store.rows_count()
                    self._rewrite(dataset, f"SELECT * FROM `{name}` WHERE NOT coalesce({where}, false)")
                    count, path = before - dataset.store.rows_count(), "spark"
        self._changed()
        return Done(f"{count:,} records of {name} deleted", [{"deleted": count, "path": path}])

    def _rewrite(self, dataset: StoredDataset, query: str) -> None:
        frame = self._frame(query)
        BulkLoad(frame.sparkSession, dataset, "").rewrite(frame)

    def _few(self, dataset: StoredDataset, query: str, each: Update | Delete, text: str) -> pa.Table | None:
        """The rows of a query if they are few enough to be changes beside the base."""
        from pyspark.errors import PySparkException

        if not dataset.entry.keys:
            return None
        try:
            found = self._frame(query).limit(CHANGES_MAX_COUNT + 1).toArrow()
        except PySparkException as error:
            raise StatementError(text, each.position, _first_line(error)) from None
        if found.num_rows > CHANGES_MAX_COUNT:
            return None
        return found.select(dataset.schema.names).cast(dataset.schema)

    def _check_present(self, dataset: StoredDataset, rows: pa.Table) -> None:
        for field in dataset.entry.fields:
            if not field.optional and rows[field.name].null_count:
                raise ValueMistake(f"field {field.name!r} would have no value, and is not OPTIONAL")

    def _condition(self, condition: Part | None, dataset: StoredDataset, text: str) -> str:
        if condition is None:
            return "true"
        name = dataset.entry.name
        self._checked(condition, text, f"SELECT 1 FROM `{name}` WHERE ", "")
        return f"({condition.text})"

    def _checked(self, part: Part, text: str, before: str, after: str) -> None:
        """Let Spark look at a part of a statement, within a query."""
        self._placed(part, text, lambda part: self._frame(f"{before}{part.text}{after}"), len(before))

    def _placed(self, part: Part, text: str, work: Callable[[Part], Any], before_count: int = 0) -> Any:
        """Do something with a part of a statement; what Spark says of it is told with the part's place."""
        from pyspark.errors import PySparkException

        try:
            return work(part)
        except StatementError as error:
            raise StatementError(
                text, max(part.start, part.start - before_count + error.position), error.reason
            ) from None
        except PySparkException as error:
            found = placed_error(error, text, part.start - before_count, before_count + len(part.text))
            raise StatementError(text, max(found.position, part.start), found.reason) from None

    # ALTER

    def _alter(self, each: AlterDataset, dataset: StoredDataset, text: str) -> Done:
        entry = dataset.entry
        if each.retain_s is not None:
            dataset.keep_for(each.retain_s)
            return Done(f"dataset {entry.name} keeps its records for {each.retain_s:g} s")
        known = {field.name.lower() for field in entry.fields}
        for field in each.fields:
            if field.name.lower() in known:
                raise StatementError(text, each.position, f"there is a field {field.name!r} in {entry.name} already")
            known.add(field.name.lower())
        dataset.add_fields(each.fields)
        self._changed()
        said = ", ".join(f"{field.name} {field.type}" for field in each.fields)
        return Done(f"dataset {entry.name} has the field {said}")


def _answer(loaded: Loaded, dataset: StoredDataset, path: str) -> Done:
    said = f"{loaded.accepted_count:,} records into {dataset.entry.name}"
    if loaded.repeated_count:
        said += f", {loaded.repeated_count:,} were there"
    if loaded.rejected_count:
        said += f", {loaded.rejected_count:,} went to the dead letters"
    counts = {"accepted": loaded.accepted_count, "repeated": loaded.repeated_count, "rejected": loaded.rejected_count}
    return Done(said, [{**counts, "path": path}])


def _size_bytes(path: str) -> int:
    """How much the files of a path have, if they can be seen from here; what is compressed counts several times."""
    root = Path(path.removeprefix("file://"))
    files = [root] if root.is_file() else [each for each in root.rglob("*") if each.is_file()] if root.is_dir() else []
    return sum(each.stat().st_size * (6 if each.suffix in (".gz", ".bz2", ".zst", ".parquet") else 1) for each in files)


def _first_line(error: Exception) -> str:
    said = str(error).strip().partition("\n")[0]
    return said or type(error).__name__
