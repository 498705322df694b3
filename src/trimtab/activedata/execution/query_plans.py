"""Queries that are planned once and run again for each new batch of few records.

Most of a small execution is planning: Spark analyses, optimises and compiles the same query again and again, and sends
the same tables to its workers. So the query of channels that run together is kept with its plan, as long as the
subscriptions and the datasets that it reads have not changed. Its new records come from a file that is written anew for
every run; a plan reads its files when it runs. Everything else in it is broadcast, once, with the first run.

When something changes for a few of the channels, the plan of all is run as before, what it finds for these few is left
out, and a plan for them alone is made beside it: planning two channels costs much less than planning seven. If nothing
more changes for a while, all of them are planned together again.

Broadcasting a large table takes longer than scanning it once, so one of many subscriptions is not kept before it was
seen twice without a change. A plan that compares every record with every subscription is kept for small numbers only.

A plan that shuffles would not see the new file (Spark keeps what a shuffle wrote), and one that asks for the time or
for a random number would give the old one: such queries are planned every time.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from trimtab.activedata.spark.views import SparkViews

if TYPE_CHECKING:
    import pyarrow as pa

KEPT_COUNT: Final = 8
"""Plans that are kept; each holds its tables in memory."""

RECORDS_MAX_COUNT: Final = 2_000
"""Kept plans join in an order that suits few records."""

PAIRS_MAX_COUNT: Final = 2_000_000
"""Records times subscriptions up to which a kept plan may compare all with all."""

MANY_COUNT: Final = 20_000
"""Subscriptions whose plan is kept only if nothing has changed since they were asked for last."""

KEPT_SUBSCRIPTIONS_MAX_COUNT: Final = 2_000_000
"""Subscriptions in all kept plans together, of about 200 bytes each."""

TOGETHER_AGAIN_AFTER_COUNT: Final = 40
"""Runs of two plans without another change before they become one; as many cost about what planning anew does."""

MakeText: TypeAlias = Callable[[list[int], str], str]

_SHUFFLES: Final = re.compile(r"(?<!Broadcast)(?<!Reused)Exchange ")
_LOOPS: Final = re.compile(r"NestedLoopJoin|CartesianProduct")


class _Plan:
    """A query that was planned for channels as they were; no frame if it cannot be kept."""

    def __init__(self, versions: dict[int, object], subscriptions_count: int, frame: Any | None) -> None:
        self.versions = versions
        self.subscriptions_count = subscriptions_count
        self.frame = frame
        self.loops = frame is not None and _LOOPS.search(_physical(frame)) is not None
        """Whether it compares each with each somewhere."""
        self.changed: dict[int, object] = {}
        """Channels that are not any more as they were, and how they were last seen."""
        self.runs_beside_count = 0


class _Asked(msgspec.Struct, frozen=True):
    """New records, in a file of their lane, and how the text of a query over them is made."""

    lane: str
    file: Path
    records: Any
    make_text: MakeText
    subscriptions_count: int


class PreparedQueries:
    """The plans that are kept, and the files that their new records come from."""

    def __init__(self, views: SparkViews, directory: Path) -> None:
        self._views = views
        self._directory = directory
        self._plans: OrderedDict[object, _Plan] = OrderedDict()
        self._seen: dict[object, dict[int, object]] = {}
        """How channels with many subscriptions were when they were asked for last."""
        self._lock = threading.Lock()
        self.plans_count = 0
        """Plans that were made."""

    def ask(
        self,
        versions: Mapping[int, object],
        records: pa.Table,
        make_text: MakeText,
        subscriptions_count: int,
        lane: str = "",
    ) -> pa.Table | None:
        """Run the query of channels on new records, planned again where versions are others; None if it cannot be kept.

        In a `lane` one query runs at a time; its plans and its file are its own.
        `versions` tells for each channel what its plan depends on; `make_text` gives the query of some of the channels
        for the name of the view that the new records are in.
        """
        known: dict[int, object] = {each: (version, self._views.starts_count) for each, version in versions.items()}
        if subscriptions_count > MANY_COUNT and not self._is_resting(known, lane):
            return None
        file = self._directory / f"new-{lane}.json"
        self._write(file, records)
        return self._run(known, _Asked(lane, file, records, make_text, subscriptions_count))

    def _is_resting(self, versions: dict[int, object], lane: str) -> bool:
        key = (lane, tuple(versions))
        before, self._seen[key] = self._seen.get(key), versions
        return before == versions

    def _run(self, versions: dict[int, object], asked: _Asked) -> pa.Table | None:
        records, subscriptions_count = asked.records, asked.subscriptions_count
        key = (asked.lane, tuple(versions))
        with self._lock:
            plan = self._plans.get(key)
        if plan is not None:
            changed = {each: version for each, version in versions.items() if plan.versions[each] != version}
            plan.runs_beside_count = plan.runs_beside_count + 1 if changed and changed == plan.changed else 0
            plan.changed = changed
            if len(changed) == len(versions) or plan.runs_beside_count > TOGETHER_AGAIN_AFTER_COUNT:
                plan = None
        if plan is None:
            self.plans_count += 1
            frame = self._plan(asked, list(versions))
            plan = _Plan(versions, subscriptions_count, frame)
        with self._lock:
            self._plans[key] = plan
            self._plans.move_to_end(key)
            while len(self._plans) > KEPT_COUNT or (
                len(self._plans) > 1
                and sum(each.subscriptions_count for each in self._plans.values()) > KEPT_SUBSCRIPTIONS_MAX_COUNT
            ):
                self._plans.popitem(last=False)
        if plan.frame is None or (plan.loops and records.num_rows * subscriptions_count > PAIRS_MAX_COUNT):
            return None
        try:
            found: pa.Table = plan.frame.toArrow()
            return self._with_changed(plan, found, asked) if plan.changed else found
        except Exception:
            with self._lock:
                self._plans.pop(key, None)
            raise

    def _with_changed(self, plan: _Plan, found: pa.Table, asked: _Asked) -> pa.Table | None:
        """What a plan found, but for the channels that have changed, which are asked anew."""
        import pyarrow as pa
        import pyarrow.compute as pc

        anew = self._run(plan.changed, msgspec.structs.replace(asked, subscriptions_count=plan.subscriptions_count))
        if anew is None:
            return None
        stale = pc.is_in(found["channel"], pa.array(list(plan.changed), pa.int64()))
        return pa.concat_tables([found.filter(pc.invert(stale)), anew.cast(found.schema)])

    def _write(self, file: Path, records: pa.Table) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        made = file.with_suffix(".made")
        made.write_bytes(msgspec.json.encode(records.to_pylist()))
        made.replace(file)

    def _plan(self, asked: _Asked, channels: list[int]) -> Any:
        """The query as a DataFrame whose plan can be run again, or None if it cannot."""
        from pyspark.sql.pandas.types import from_arrow_schema

        view = f"_prepared_{threading.get_ident()}"
        with self._views.lock:
            session = self._views.session
            reader = session.read.schema(from_arrow_schema(asked.records.schema)).option("multiLine", True)
            reader.option("mode", "FAILFAST").json(str(asked.file)).coalesce(1).createOrReplaceTempView(view)
            frame = session.sql(asked.make_text(channels, f"`{view}`"))
            session.catalog.dropTempView(view)
        return None if _SHUFFLES.search(_physical(frame)) else frame


def _physical(frame: Any) -> str:
    """How Spark will do it, in its words."""
    return str(frame._jdf.queryExecution().executedPlan().toString())
