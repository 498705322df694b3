"""Queries that are planned once and run again for each new batch of few records.

Most of a small execution is planning: Spark analyses, optimises and compiles the same query again and again, and sends
the same tables to its workers. So the query of channels that run together is kept with its plan, as long as the
subscriptions and the datasets that it reads have not changed. Its new records come from a file that is written anew for
every run; a plan reads its files when it runs. Everything else in it is broadcast, once, with the first run.

A plan that shuffles would not see the new file (Spark keeps what a shuffle wrote), and one that asks for the time or
for a random number would give the old one: such queries are planned every time.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.spark_views import SparkViews

if TYPE_CHECKING:
    import pyarrow as pa

KEPT_COUNT: Final = 8
"""Plans that are kept; each holds its tables in memory."""

PAIRS_MAX_COUNT: Final = 2_000_000
"""Records times subscriptions up to which a kept plan is used: it joins in an order that suits few records."""

RECORDS_MAX_COUNT: Final = 2_000

_SHUFFLES: Final = re.compile(r"(?<!Broadcast)(?<!Reused)Exchange ")


class PreparedQueries:
    """The plans that are kept, and the files that their new records come from."""

    def __init__(self, views: SparkViews, directory: Path) -> None:
        self._views = views
        self._directory = directory
        self._plans: OrderedDict[object, tuple[object, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def ask(self, name: str, version: object, records: pa.Table, make_text: Callable[[str], str]) -> pa.Table | None:
        """Run the query `name` on new records, planned again if its version is another; None if it cannot be kept.

        `make_text` gives the query for the name of the view that the new records are in.
        """
        file = self._directory / f"new-{threading.get_ident()}.json"
        self._write(file, records)
        key = (name, threading.get_ident())
        version = (version, self._views.starts_count)
        with self._lock:
            known = self._plans.get(key)
        if known is None or known[0] != version:
            frame = self._plan(file, records, make_text)
            with self._lock:
                self._plans[key] = known = (version, frame)
                self._plans.move_to_end(key)
                while len(self._plans) > KEPT_COUNT:
                    self._plans.popitem(last=False)
        if known[1] is None:
            return None
        try:
            found: pa.Table = known[1].toArrow()
        except Exception:
            with self._lock:
                self._plans.pop(key, None)
            raise
        return found

    def _write(self, file: Path, records: pa.Table) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        made = file.with_suffix(".made")
        made.write_bytes(msgspec.json.encode(records.to_pylist()))
        made.replace(file)

    def _plan(self, file: Path, records: pa.Table, make_text: Callable[[str], str]) -> Any:
        """The query as a DataFrame whose plan can be run again, or None if it cannot."""
        from pyspark.sql.pandas.types import from_arrow_schema

        view = f"_prepared_{threading.get_ident()}"
        with self._views.lock:
            session = self._views.session
            reader = session.read.schema(from_arrow_schema(records.schema)).option("multiLine", True)
            reader.option("mode", "FAILFAST").json(str(file)).coalesce(1).createOrReplaceTempView(view)
            frame = session.sql(make_text(f"`{view}`"))
            session.catalog.dropTempView(view)
        plan: Any = frame._jdf
        return None if _SHUFFLES.search(plan.queryExecution().executedPlan().toString()) else frame
