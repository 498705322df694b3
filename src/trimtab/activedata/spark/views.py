"""What Spark sees of the stored data: views that follow the newest versions of tables, and cached where that pays."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from trimtab.activedata.definitions.fields import Field, Scalar, arrow_type, stored
from trimtab.activedata.execution.channel_queries import parameter_column
from trimtab.activedata.execution.dataset_frames import base_frame, with_changes
from trimtab.activedata.spark.errors import is_spark_gone
from trimtab.activedata.spark.session import SparkSettings, session_beside, start_spark, stop_spark
from trimtab.activedata.storage.dataset_table import DatasetTable
from trimtab.activedata.storage.delta_tables import DeltaStore

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Answer = TypeVar("Answer")

LOCAL_ROWS_COUNT: Final = 3_000
"""Tables of at most so many rows travel inside the query; larger ones are cached in Spark's memory."""

CACHED_ROWS_COUNT: Final = 20_000_000
"""Datasets of more rows are read from their files in every query."""


class _View(msgspec.Struct):
    version: object
    frame: Any
    is_cached: bool


class SparkViews:
    """The Spark session and its views; the session can be started again, and the views then come back by themselves.

    A session that the user has already is lent: a session of its own beside it is used, in the same Spark, and neither
    is stopped here.
    """

    def __init__(self, settings: SparkSettings | SparkSession, work_dir: Path) -> None:
        self._settings = settings if isinstance(settings, SparkSettings) else None
        self._lent = None if isinstance(settings, SparkSettings) else settings
        self.work_dir = work_dir
        self.lock = threading.RLock()
        self._views: dict[str, _View] = {}
        self._functions: dict[str, str] = {}
        """Of SQL, by name in lower case: the statements that make them."""
        self._python_functions: dict[str, tuple[Callable[..., Any], str]] = {}
        self.starts_count = 0
        self.session: SparkSession
        self.start()

    def start(self) -> None:
        """Start Spark, for the first time or after it died."""
        with self.lock:
            self._views.clear()
            if self._settings is not None:
                self.session = start_spark(self._settings, self.work_dir)
            elif self._lent is not None:
                self.session = session_beside(self._lent)
            self.session.sql(
                "CREATE OR REPLACE TEMPORARY FUNCTION distance(x1 DOUBLE, y1 DOUBLE, x2 DOUBLE, y2 DOUBLE) "
                "RETURNS DOUBLE RETURN sqrt((x1 - x2) * (x1 - x2) + (y1 - y2) * (y1 - y2))"
            )
            for name, (function, returns) in self._python_functions.items():
                self.session.udf.register(name, function, returns)
            for text in self._functions.values():
                self.session.sql(text)
            self.starts_count += 1

    @property
    def function_names(self) -> frozenset[str]:
        """The functions that queries may call beside Spark's own, in lower case."""
        return frozenset({"distance", *self._functions, *self._python_functions})

    def add_function(self, name: str, definition: str) -> None:
        """Define a function of SQL by its statement, in this session and in those that come after it."""
        with self.lock:
            self.session.sql(definition)
            self._functions[name.lower()] = definition

    def add_python_function(self, name: str, function: Callable[..., Any], returns: str) -> None:
        """Define a function of Python that returns this type of Spark."""
        with self.lock:
            self.session.udf.register(name.lower(), function, returns)
            self._python_functions[name.lower()] = function, returns

    def remove_function(self, name: str) -> None:
        """Forget a function."""
        with self.lock:
            if self._functions.pop(name.lower(), None) or self._python_functions.pop(name.lower(), None):
                self.session.sql(f"DROP TEMPORARY FUNCTION IF EXISTS `{name}`")

    def stop(self) -> None:
        """Stop Spark, or take the views away from one that was lent; one that is gone already is no error."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        with self.lock:
            if self._settings is None:
                with contextlib.suppress(Py4JError, PySparkException, OSError):
                    self.clear()
                self._views.clear()
            else:
                self._views.clear()
                stop_spark(self.session)

    def is_alive(self) -> bool:
        """Whether Spark's Java process runs, as far as this can be told without asking it."""
        from pyspark import SparkContext

        process = getattr(SparkContext._gateway, "proc", None)
        return process is None or process.poll() is None

    def revive(self) -> bool:
        """Start Spark again if it is gone; whether it was."""
        starts_count = self.starts_count
        with self.lock:
            if self.starts_count != starts_count:
                return True
            try:
                self.session.sql("SELECT 1").collect()
            except Exception as error:
                if not is_spark_gone(error):
                    raise
                self.stop()
                self.start()
                return True
            return False

    def asked(self, ask: Callable[[], Answer]) -> Answer:
        """What a question to Spark answers; if Spark turns out to be gone, it is started again and asked once more."""
        try:
            return ask()
        except Exception as error:
            if not is_spark_gone(error) or not self.revive():
                raise
            return ask()

    def slots_count(self) -> int:
        """How many tasks run at the same time."""
        with self.lock:
            return max(1, int(self.session.sparkContext.defaultParallelism))

    @property
    def master(self) -> str:
        """Where Spark runs."""
        return str(self.session.sparkContext.master) if self._settings is None else self._settings.master

    @property
    def ui_url(self) -> str | None:
        """Where Spark's own pages are, if they are on (`--conf spark.ui.enabled=true`)."""
        from py4j.protocol import Py4JError

        try:
            return self.session.sparkContext.uiWebUrl
        except (Py4JError, OSError, AttributeError):
            return None

    def clear(self) -> None:
        """Forget all views, and functions."""
        for name in list(self._views):
            self.hide(name)
        for name in [*self._functions, *self._python_functions]:
            self.remove_function(name)

    def show_arrow(self, name: str, table: pa.Table, version: object) -> None:
        """Show an Arrow table under a name; large ones are cached."""
        with self.lock:
            self._replace(name, version, self.session.createDataFrame(table), table.num_rows > LOCAL_ROWS_COUNT)

    def show_store(self, name: str, store: DeltaStore, *, cached: bool) -> None:
        """Show the newest version of a Delta table under a name; nothing is done if it is shown already."""
        with self.lock:
            number, files = store.files()
            version = (str(store.path), number)
            known = self._views.get(name)
            if known is not None and known.version == version:
                return
            rows_count = store.rows_count() if cached else CACHED_ROWS_COUNT + 1
            if rows_count <= LOCAL_ROWS_COUNT:
                table = store.read(columns=store.schema.names)
                self._replace(name, version, self.session.createDataFrame(table), False)
            elif isinstance(store, DatasetTable):
                self._show_dataset(name, version, store, rows_count <= CACHED_ROWS_COUNT)
            else:
                self._replace(name, version, self._over_files(store, files), rows_count <= CACHED_ROWS_COUNT)

    def _show_dataset(self, name: str, version: object, store: DatasetTable, cached: bool) -> None:
        """Show a dataset; what is cached of its base stays so while changes stand beside it."""
        snapshot = store.snapshot()
        base_name = f"_base_{name}"
        known = self._views.get(base_name)
        base_version = (str(store.path), snapshot.base)
        if known is None or known.version != base_version:
            self._replace(base_name, base_version, base_frame(self.session, store, snapshot.base), cached)
        base = self.session.table(f"`{base_name}`")
        self._replace(name, version, with_changes(self.session, base, store, snapshot), False)

    def _over_files(self, store: DeltaStore, files: list[str]) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        if not files:
            return self.session.createDataFrame(store.schema.empty_table())
        return self.session.read.schema(from_arrow_schema(store.schema)).parquet(*files)

    def _replace(self, name: str, version: object, frame: DataFrame, cache: bool) -> None:
        if cache:
            frame = frame.cache()
        frame.createOrReplaceTempView(f"`{name}`")
        old = self._views.get(name)
        self._views[name] = _View(version, frame, cache)
        if old is not None and old.is_cached:
            old.frame.unpersist(False)

    def version_of(self, name: str) -> object:
        """The version that a view shows, if there is one."""
        with self.lock:
            view = self._views.get(name)
            return None if view is None else view.version

    def hide(self, name: str) -> None:
        """Remove a view."""
        with self.lock:
            if f"_base_{name}" in self._views:
                self.hide(f"_base_{name}")
            old = self._views.pop(name, None)
            if old is not None:
                self.session.catalog.dropTempView(name)
                if old.is_cached:
                    old.frame.unpersist(False)


class SubscriptionRow(msgspec.Struct, frozen=True):
    """A subscription as the query sees it."""

    id: int
    since: int
    arguments: dict[str, Scalar]


class SubscriptionTable:
    """The subscriptions of one channel as a relation of its query.

    A small table is shown anew when it changes. A large one is cached; what comes later stands in a second, small table
    until it is worth putting together. Results of subscriptions that ended meanwhile are left out afterwards.
    """

    def __init__(self, channel_id: int, parameters: tuple[Field, ...], rows: Iterable[SubscriptionRow]) -> None:
        import pyarrow as pa

        self.name = f"_subscriptions_{channel_id}"
        self._parameters = parameters
        own = [pa.field(parameter_column(each.name), arrow_type(each.type)) for each in parameters]
        self._schema = pa.schema([pa.field("_subscription", pa.int64()), pa.field("_since", pa.int64()), *own])
        self._base = self._arrow(list(rows))
        self._added: list[SubscriptionRow] = []
        self._ended: set[int] = set()
        self._version = 0
        self._base_version = 0
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many subscriptions there are."""
        return int(self._base.num_rows) + len(self._added) - len(self._ended)

    def add(self, rows: list[SubscriptionRow]) -> None:
        """Take in new subscriptions."""
        with self._lock:
            known = {row.id for row in self._added}
            self._added += [row for row in rows if row.id not in known]
            self._version += 1

    def end(self, ids: set[int]) -> None:
        """Take note of subscriptions that ended."""
        with self._lock:
            self._ended |= ids
            self._version += 1

    def resume(self, row: SubscriptionRow) -> None:
        """Take in a subscription again that had ended."""
        with self._lock:
            self._put_together()
            self._added.append(row)
            self._version += 1

    def ids(self) -> list[int]:
        """The subscriptions that there are, in order."""
        with self._lock:
            found = {*self._base["_subscription"].to_pylist(), *(row.id for row in self._added)}
            return sorted(found - self._ended)

    @property
    def version(self) -> int:
        """Grows with every change."""
        with self._lock:
            return self._version

    @property
    def ended(self) -> set[int]:
        """Subscriptions that ended and that the query may still see."""
        with self._lock:
            return set(self._ended)

    def show(self, views: SparkViews, *, without_ended: bool = False) -> tuple[str, dict[str, float]]:
        """Bring the view up to date; answers what to read from, and the largest value of each numeric parameter.

        Subscriptions that ended may still be in it, unless it is to be `without_ended`.
        """
        with self._lock:
            if (
                (without_ended and self._ended)
                or self._base.num_rows <= LOCAL_ROWS_COUNT
                or len(self._added) > max(LOCAL_ROWS_COUNT, self._base.num_rows // 20)
            ):
                self._put_together()
            if views.version_of(self.name) != (id(self), self._base_version):
                views.show_arrow(self.name, self._base, (id(self), self._base_version))
            source = f"`{self.name}`"
            if self._added:
                later = f"{self.name}_later"
                if views.version_of(later) != (id(self), self._version):
                    views.show_arrow(later, self._arrow(self._added), (id(self), self._version))
                source = f"(SELECT * FROM `{self.name}` UNION ALL SELECT * FROM `{later}`)"
            return source, self._largest()

    def _put_together(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._added and not self._ended:
            return
        table = pa.concat_tables([self._base, self._arrow(self._added)]).combine_chunks()
        if self._ended:
            gone = pc.is_in(table["_subscription"], pa.array(sorted(self._ended), pa.int64()))
            table = table.filter(pc.invert(gone))
        self._base = table
        self._added = []
        self._ended = set()
        self._base_version = self._version

    def _largest(self) -> dict[str, float]:
        import pyarrow.compute as pc

        found: dict[str, float] = {}
        for each in self._parameters:
            if each.type in ("INT", "BIGINT", "DOUBLE"):
                largest = pc.max(self._base[parameter_column(each.name)]).as_py()
                later = [float(row.arguments[each.name] or 0) for row in self._added]
                found[each.name] = max([0.0 if largest is None else float(largest), *later])
        return found

    def _arrow(self, rows: list[SubscriptionRow]) -> pa.Table:
        import pyarrow as pa

        columns: list[list[object]] = [[row.id for row in rows], [row.since for row in rows]]
        columns += [[stored(each, row.arguments[each.name]) for row in rows] for each in self._parameters]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self._schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self._schema)
