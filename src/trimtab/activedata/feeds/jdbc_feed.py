"""A feed from a table of PostgreSQL, which Spark's JDBC reads again and again.

With a column that grows (`BY id`) only rows from the last value on are read; those with exactly that value come twice
and are left out. Without one, the whole table is read each time, which suits small tables that enrich records.
"""

from __future__ import annotations

import datetime
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.definitions.fields import ValueMistake
from trimtab.activedata.definitions.statements import JdbcSource
from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.feeds.raw_records import RawRecord, row_record
from trimtab.activedata.spark.errors import spark_reason
from trimtab.activedata.spark.views import SparkViews
from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.catalog_entries import FeedEntry
from trimtab.activedata.storage.datasets import StoredDataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTE: Final = "JDBC"
ROWS_COUNT: Final = 20_000
"""At most so many rows become one commit."""

DRIVER: Final = "org.postgresql.Driver"

_URL: Final = re.compile(r"jdbc:postgresql://[\w.:\[\]-]+(?:,[\w.:\[\]-]+)*/[\w%-]+(?:\?(?P<parameters>[^\s]*))?")
_PARAMETERS: Final = frozenset({"ApplicationName", "connectTimeout", "currentSchema", "loginTimeout", "socketTimeout"})
_SECURE: Final = frozenset({"ssl", "sslmode", "sslrootcert", "targetServerType"})
_NAME: Final = re.compile(r'(?:\w+|"[^"]+")(?:\.(?:\w+|"[^"]+"))?')


def check_jdbc(source: JdbcSource) -> None:
    """Refuse an address or a name that cannot be; parameters of a driver can do more than connect, so few are allowed.

    >>> check_jdbc(JdbcSource("jdbc:postgresql://h/shop?loggerFile=/etc/x", "orders"))
    Traceback (most recent call last):
    trimtab.activedata.definitions.types.ValueMistake: the parameter 'loggerFile' is not allowed in an address of JDBC
    """
    found = _URL.fullmatch(source.url)
    if found is None:
        raise ValueMistake(f"{source.url!r}: expected jdbc:postgresql://HOST[:PORT]/DATABASE")
    for each in (found["parameters"] or "").split("&"):
        name = each.partition("=")[0]
        if name and name not in _PARAMETERS | _SECURE:
            raise ValueMistake(f"the parameter {name!r} is not allowed in an address of JDBC")
    for name in (source.table, source.by):
        if name is not None and not _NAME.fullmatch(name):
            raise ValueMistake(f"{name!r} is no name of a table or column")


class JdbcPosition(msgspec.Struct, frozen=True):
    """The last value of the growing column, as SQL writes it."""

    after: str


class JdbcFeed:
    """Reads one table."""

    def __init__(
        self,
        feed: FeedEntry,
        dataset: StoredDataset,
        catalog: Catalog,
        views: SparkViews,
        take: Callable[[list[RawRecord], str, dict[str, int]], None],
    ) -> None:
        assert isinstance(feed.source, JdbcSource)
        self._feed = feed
        self._source = feed.source
        self._fields = {field.name.lower(): field.name for field in dataset.entry.fields}
        self._catalog = catalog
        self._views = views
        self._take = take
        noted = catalog.note(NOTE, feed.id)
        self._position = msgspec.json.decode(noted, type=JdbcPosition) if noted else None
        self._boundary: set[str] = set()
        """The rows with the last value, which are read again."""

    def follow(self, stop: threading.Event) -> None:
        """Read until told to stop."""
        while not stop.is_set():
            count = self._poll()
            if count < ROWS_COUNT or self._source.by is None:
                stop.wait(self._source.every_s)

    def _poll(self) -> int:
        rows = self._rows()
        records = [row_record(self._own(row), number) for number, row in enumerate(rows)]
        new = [each for each in records if each.text not in self._boundary]
        if new:
            self._take(new, self._source.table, {})
        if self._source.by is None:
            self._boundary = {each.text for each in records}  # an unchanged row is not stored again
        elif rows:
            by = self._column(rows[0])
            last = rows[-1][by]
            self._boundary = {each.text for each, row in zip(records, rows, strict=True) if row[by] == last} | (
                self._boundary if rows[0][by] == last else set()
            )
            position = JdbcPosition(_literal(last))
            if position != self._position:
                self._position = position
                self._catalog.set_note(NOTE, self._feed.id, msgspec.json.encode(position).decode())
        return len(new)

    def _column(self, row: dict[str, Any]) -> str:
        wanted = (self._source.by or "").strip('"').lower()
        for name in row:
            if name.lower() == wanted:
                return name
        raise ActiveDataError(f"{self._source.table} has no column {self._source.by}; it has {', '.join(row)}")

    def _own(self, row: dict[str, Any]) -> dict[str, Any]:
        """What the dataset has fields for, whatever the case of the column's name."""
        return {self._fields[name.lower()]: value for name, value in row.items() if name.lower() in self._fields}

    def _rows(self) -> list[dict[str, Any]]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        query = f"SELECT * FROM {self._source.table}"
        if self._source.by is not None:
            after = "" if self._position is None else f" WHERE {self._source.by} >= {self._position.after}"
            # A first row more than once with one value must not fill all of the next part.
            query += f"{after} ORDER BY {self._source.by} LIMIT {ROWS_COUNT + len(self._boundary)}"
        try:
            found: list[dict[str, Any]] = self._frame(query).toArrow().to_pylist()
        except (PySparkException, Py4JError) as error:
            reason = spark_reason(error)
            if DRIVER in str(error) and "ClassNotFound" in str(error):
                reason = "the driver is missing: trimtab active start --jar /usr/share/java/postgresql.jar, for example"
            raise ActiveDataError(f"{self._source.table}: {reason}") from None
        return found

    def _frame(self, query: str) -> DataFrame:
        with self._views.lock:
            reader = self._views.session.read.format("jdbc").option("driver", DRIVER)
        reader = reader.option("url", self._source.url).option("query", query).option("queryTimeout", 60)
        if self._source.user is not None:
            reader = reader.option("user", self._source.user)
        if self._source.password is not None:
            reader = reader.option("password", self._source.password)
        return reader.load()


def _literal(value: object) -> str:
    """A value as SQL writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case datetime.datetime():
            return f"TIMESTAMP WITH TIME ZONE '{value.isoformat()}'"
        case _:
            text = str(value).replace("'", "''")
            return f"'{text}'"
