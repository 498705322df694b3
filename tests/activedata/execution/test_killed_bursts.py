"""A process that is killed while tasks write the results of a burst: each result is there once when it goes on."""

import random
import subprocess
import sys
import time
from pathlib import Path

from tests.activedata.execution.burst_process import COPIES_COUNT, RECORDS_COUNT
from trimtab.activedata import ActiveData
from trimtab.activedata.spark.views import SparkViews


def test_a_burst_that_was_killed_half_way_goes_on_and_every_result_is_there_once(
    spark: SparkViews, tmp_path: Path
) -> None:
    draw = random.Random(7)
    command = [sys.executable, "-m", "tests.activedata.execution.burst_process", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        assert process.stdout is not None
        for _ in range(3):
            assert process.stdout.readline().startswith("committed")
        time.sleep(draw.uniform(0.0, 0.3))  # anywhere within the next batch
        process.kill()
    with ActiveData(tmp_path, spark) as active:
        before = active.engine.channels["copies"].entry.position
        assert 0 < before < RECORDS_COUNT
        active.settle(300.0)
        rows = active.run(
            "SELECT count(*) AS n, count(DISTINCT subscription, record, ordinal) AS once, "
            "count(DISTINCT record) AS records, count(DISTINCT subscription) AS subscriptions FROM results"
        )[0].rows
        count = RECORDS_COUNT * COPIES_COUNT
        assert rows == [{"n": count, "once": count, "records": RECORDS_COUNT, "subscriptions": COPIES_COUNT}]
        positions = [each.position for each in active.results(1, limit=10_000)]
        assert positions == sorted(set(positions)) and len(positions) == RECORDS_COUNT
