"""Plain queries of users: over datasets, results, dead letters and subscriptions, analysed first and limited."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from trimtab.activedata.definitions.fields import ValueMistake
from trimtab.activedata.definitions.tokens import split_tokens
from trimtab.activedata.errors import ActiveDataError, StatementError
from trimtab.activedata.execution.query_analysis import check_query
from trimtab.activedata.spark.errors import placed_error
from trimtab.activedata.spark.views import SparkViews
from trimtab.activedata.storage.datasets import StoredDataset
from trimtab.activedata.storage.delta_tables import DeltaStore

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

SUBSCRIPTIONS: Final = "subscriptions"


class QueryLimits(msgspec.Struct, frozen=True):
    """What a user's statements may take.

    So many characters of statements at once; rows and bytes of an answer (the rest is left out, which the answer
    says); seconds of Spark's time for a query, after which it is cancelled; queries that run at the same time, while
    others wait.
    """

    statements_max_chars: int = 2_000_000
    rows_max_count: int = 100_000
    answer_max_bytes: int = 64 * 1024 * 1024
    time_max_s: float = 60.0
    at_once_count: int = 4
    file_roots: tuple[str, ...] | None = None
    """Folders below which statements may read files, None for everywhere: the process may read more than those who
    ask it."""

    def check_path(self, path: str) -> None:
        """Refuse a path that statements may not read.

        >>> QueryLimits(file_roots=("/data",)).check_path("/data/../etc")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        trimtab.activedata.definitions.types.ValueMistake: /data/../etc is not below /data, ...
        """
        if self.file_roots is None:
            return
        roots = self.file_roots
        scheme, colon, _ = path.partition(":")
        if colon and scheme != "file":  # an object store knows no way up
            is_below = any(f"{path}/".startswith(f"{each.rstrip('/')}/") for each in roots)
        else:
            found = Path(unquote(urlsplit(path).path) if colon else path).resolve()
            is_below = any(found.is_relative_to(Path(each).resolve()) for each in roots if ":" not in each)
        if not is_below:
            said = ", ".join(roots) or "any folder"
            raise ValueMistake(f"{path} is not below {said}, where statements may read files (--files DIR)")


class QueryAnswer(msgspec.Struct, frozen=True):
    """Rows, and whether there are more than these."""

    rows: list[dict[str, Any]]
    is_cut: bool


class Queries:
    """Runs users' queries."""

    def __init__(
        self,
        views: SparkViews,
        datasets: Mapping[str, StoredDataset],
        own_tables: Mapping[str, DeltaStore],
        subscriptions: Callable[[], pa.Table],
        limits: QueryLimits,
    ) -> None:
        self._views = views
        self._datasets = datasets
        self._own_tables = own_tables
        self._subscriptions = subscriptions
        self.limits = limits
        self._places = threading.BoundedSemaphore(limits.at_once_count)

    @property
    def relations(self) -> set[str]:
        """The names that a query may read from, in lower case."""
        return {*self._datasets, *self._own_tables, SUBSCRIPTIONS}

    def answer(self, query: str, text: str, start: int) -> QueryAnswer:
        """Run a query that stands in a text of statements, and give its rows within the limits."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        with self._place(), self._cancelled_in_time() as is_late:
            try:
                rows_max_count = self.limits.rows_max_count + 1
                table = self._views.asked(lambda: self.checked_frame(query).limit(rows_max_count).toArrow())
            except StatementError as error:
                raise StatementError(text, start + error.position, error.reason) from None
            except Exception as error:
                if is_late.is_set():
                    said = f"the query took longer than {self.limits.time_max_s:g} s and was cancelled"
                    raise StatementError(text, start, said) from None
                if isinstance(error, Py4JJavaError):
                    said = str(error.java_exception.toString()).partition("\n")[0]
                    raise ActiveDataError(f"Spark could not answer the query: {said}") from None
                if not isinstance(error, PySparkException):
                    raise
                raise placed_error(error, text, start, len(query)) from None
        rows_count = min(table.num_rows, self.limits.rows_max_count)
        if table.nbytes > self.limits.answer_max_bytes:
            rows_count = min(rows_count, table.num_rows * self.limits.answer_max_bytes // table.nbytes)
        return QueryAnswer(table.slice(0, rows_count).to_pylist(), rows_count < table.num_rows)

    def checked_frame(self, query: str) -> DataFrame:
        """A query of a user as a DataFrame; a StatementError says what is not allowed, and where in the query."""
        check_query(self._views.session, query, self.relations, self._views.function_names)
        return self.frame(query)

    def frame(self, query: str) -> DataFrame:
        """A query as a DataFrame of Spark, as it is: for the owner of the process, who may do anything."""
        words = {token.text.strip("`").lower() for token in split_tokens(query) if token.kind != "string"}
        with self._views.lock:
            for name, dataset in self._datasets.items():
                if name in words:
                    self._views.show_store(dataset.entry.name, dataset.store, cached=not dataset.entry.active)
            for name, store in self._own_tables.items():
                if name in words:
                    self._views.show_store(name, store, cached=False)
            if SUBSCRIPTIONS in words:
                self._views.show_arrow(SUBSCRIPTIONS, self._subscriptions(), None)
            return self._views.session.sql(query)

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._places.acquire(timeout=self.limits.time_max_s):
            raise ActiveDataError(f"{self.limits.at_once_count} queries are running already; ask again later")
        try:
            yield
        finally:
            self._places.release()

    @contextmanager
    def _cancelled_in_time(self) -> Iterator[threading.Event]:
        """Cancel what Spark does in this thread when its time is over; tells whether it was."""
        context = self._views.session.sparkContext
        tag = f"query-{uuid.uuid4()}"
        is_late = threading.Event()

        def cancel() -> None:
            is_late.set()
            context.cancelJobsWithTag(tag)

        timer = threading.Timer(self.limits.time_max_s, cancel)
        timer.daemon = True
        context.addJobTag(tag)
        timer.start()
        try:
            yield is_late
        finally:
            timer.cancel()
            context.removeJobTag(tag)
