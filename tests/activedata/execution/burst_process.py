"""Executes a burst by tasks in small batches, and says each time that a batch is committed, until it is killed.

Run as `python -m tests.activedata.execution.burst_process DIRECTORY`.
"""

import sys
import time

from trimtab.activedata import ActiveData, SparkSettings
from trimtab.activedata.execution import batch_sizes, executions

RECORDS_COUNT = 2_000
COPIES_COUNT = 10
BATCH_COUNT = 100


def main(directory: str) -> None:
    from tests.activedata.test_channels import FEED, REPORTS, report

    executions.TASKS_FROM_RESULTS_COUNT = 1  # type: ignore[misc]
    batch_sizes.RECORDS_MAX_COUNT = BATCH_COUNT  # type: ignore[misc]
    with ActiveData(directory, SparkSettings(memory_mb=512, quick_start=True)) as active:
        active.run(REPORTS + FEED)
        active.run(
            "CREATE CONTINUOUS CHANNEL Copies(event STRING, copy INT) AS "
            "SELECT r.reportId FROM Reports r WHERE r.event = :event AND :copy >= 0"
        )
        active.subscribe_many("Copies", [{"event": "flood", "copy": copy} for copy in range(COPIES_COUNT)], "B1")
        active.feed("reports", [report(number) for number in range(RECORDS_COUNT)])
        told = 0
        while True:
            done = active.engine.channels["copies"].meters.executions_count
            if done > told:
                told = done
                print(f"committed {done}", flush=True)
            time.sleep(0.002)


if __name__ == "__main__":
    main(sys.argv[1])
