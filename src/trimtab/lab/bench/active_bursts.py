"""A burst of records that concern many subscriptions: how fast it is done, and what a quick channel feels of it.

The figures are those of the demand on active data: 200,000 records, each of which concerns 60 of 480 subscriptions,
with the default memory; meanwhile a channel over another dataset gets a record now and then. Beside that, how well the
counts that brokers are told of agree with the records that were fed, and with what Spark finds in the results.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from trimtab.activedata import ActiveData

EVENTS_COUNT: Final = 8
SUBSCRIPTIONS_COUNT: Final = 480
FED_AT_ONCE_COUNT: Final = 20_000
ALONE_COUNT: Final = 40
PAUSE_S: Final = 0.1
RATE_KINDS_COUNT: Final = 200

STATEMENTS: Final = (
    "CREATE ACTIVE DATASET Reports (reportId STRING, event STRING, x DOUBLE, y DOUBLE, message STRING) KEY reportId;"
    "CREATE FEED reports INTO Reports FROM HTTP; START FEED reports;"
    "CREATE ACTIVE DATASET Quick (id STRING, kind STRING) KEY id;"
    "CREATE FEED quick INTO Quick FROM HTTP; START FEED quick; CREATE BROKER B1 AT 'bench';"
    "CREATE CONTINUOUS CHANNEL Fast(kind STRING) AS SELECT q.id FROM Quick q WHERE q.kind = :kind;"
    "CREATE CONTINUOUS CHANNEL Many(event STRING, copy INT) AS "
    "SELECT r.* FROM Reports r WHERE r.event = :event AND :copy >= 0;"
)


class BurstFigures(msgspec.Struct, frozen=True):
    """What a burst came to, and how rates agree with the truth."""

    records_count: int
    results_count: int
    missing_count: int
    results_per_s: float
    quick_alone_median_s: float
    quick_during_median_s: float
    counted_correlation: float
    """Bytes of each subscription as brokers are told of them, against those of the records that were fed."""
    spark_correlation: float
    """The same of `ActiveData.rates()`."""


def measure_burst(records_count: int = 200_000, seed: int = 1) -> BurstFigures:
    """Measure it on a Spark of its own with the default memory."""
    from trimtab.activedata import ActiveData

    with tempfile.TemporaryDirectory() as directory, ActiveData(directory) as active:
        active.run(STATEMENTS)
        quick = _Quick(active)
        alone = [quick.delay_s() for _ in range(ALONE_COUNT)][ALONE_COUNT // 4 :]
        counted, spark = _correlations(active, random.Random(seed))
        wanted: list[Any] = [{"event": f"e{n % EVENTS_COUNT}", "copy": n} for n in range(SUBSCRIPTIONS_COUNT)]
        many = active.engine.channels["many"]
        many.retry_after_s = time.monotonic() + 3_600.0  # until all records are waiting
        active.subscribe_many("Many", wanted, "B1")
        for first in range(0, records_count, FED_AT_ONCE_COUNT):
            active.feed("reports", [_report(n) for n in range(first, min(records_count, first + FED_AT_ONCE_COUNT))])
        last = active.datasets["reports"].last_sequence
        results_before = many.meters.results_count
        many.retry_after_s = 0.0
        begun_s = time.perf_counter()
        active.engine.wake()
        during = []
        while many.position < last:
            during.append(quick.delay_s())
            time.sleep(PAUSE_S)
        took_s = time.perf_counter() - begun_s
        found = active.run("SELECT count(*) AS n FROM results WHERE channel = 2")[0].rows[0]["n"]
    results_count = many.meters.results_count - results_before
    expected_count = records_count * SUBSCRIPTIONS_COUNT // EVENTS_COUNT
    return BurstFigures(
        records_count=records_count,
        results_count=results_count,
        missing_count=expected_count - int(found),
        results_per_s=results_count / took_s,
        quick_alone_median_s=statistics.median(alone),
        quick_during_median_s=statistics.median(during) if during else 0.0,
        counted_correlation=counted,
        spark_correlation=spark,
    )


def _report(number: int) -> dict[str, Any]:
    event = f"e{number % EVENTS_COUNT}"
    return {"reportId": f"r{number}", "event": event, "x": float(number), "y": 2.0, "message": "m" * 60}


class _Quick:
    """A channel that gets one record at a time."""

    def __init__(self, active: ActiveData) -> None:
        self._active = active
        self._subscription = active.subscribe("Fast", "B1", kind="k")
        self._count = 0

    def delay_s(self) -> float:
        """From the acknowledgement of a record to its result."""
        store = self._active.results_store
        self._count += 1
        self._active.feed("quick", [{"id": f"q{self._count}", "kind": "k"}])
        acknowledged_s = time.perf_counter()
        while store.count_of(self._subscription).results_count < self._count:
            with store.news:
                store.news.wait(0.02)
        return time.perf_counter() - acknowledged_s


def _correlations(active: ActiveData, draw: random.Random) -> tuple[float, float]:
    """Feed records of many kinds with skewed rates, and compare what is counted and measured with them."""
    kinds = [f"kind{number}" for number in range(RATE_KINDS_COUNT)]
    weights = [1.0 / (1 + number) for number in range(RATE_KINDS_COUNT)]
    draw.shuffle(weights)
    made = active.subscribe_many("Fast", [{"kind": kind} for kind in kinds], "B1")
    before = active.counts_of([each.id for each in made])
    truth = dict.fromkeys(kinds, 0)
    for batch in range(10):
        drawn = draw.choices(kinds, weights, k=300)
        active.feed("quick", [{"id": f"rate-{batch}-{n}", "kind": kind} for n, kind in enumerate(drawn)])
        for n, kind in enumerate(drawn):
            truth[kind] += len(f'{{"id":"rate-{batch}-{n}"}}')
        active.settle(300.0)
    after = active.counts_of([each.id for each in made])
    counted = [float(after[str(each.id)][1] - before[str(each.id)][1]) for each in made]
    measured = {each.subscription: each.bytes_per_s for each in active.rates()}
    wanted = [float(truth[str(each.arguments["kind"])]) for each in made]
    return (
        statistics.correlation(counted, wanted),
        statistics.correlation([measured.get(each.id, 0.0) for each in made], wanted),
    )
