"""Run by `test_anywhere`: active data on standalone workers that see of the temporary folder what the arguments say."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.activedata.test_channels import FEED, OF_TYPE, REPORTS, report
from trimtab.activedata import ActiveData, ActiveDataError, SparkSettings
from trimtab.activedata.spark.cluster import spark_cluster


def main(kind: str, shared: Path) -> None:
    """Print what comes of it."""
    data = shared / "data"
    data.mkdir(parents=True, exist_ok=True)
    memory_mb = 100 if kind == "small" else 1_024
    shares = [data] if kind != "nothing" else []
    with tempfile.TemporaryDirectory() as own, spark_cluster(Path(own), 2, memory_mb, shares) as cluster:
        try:
            settings = SparkSettings(master=cluster.master, memory_mb=700, quick_start=True)
            with ActiveData(data, settings) as active:
                active.run(REPORTS + FEED + OF_TYPE)
                subscription = active.subscribe("OfType", "B1", event="flood")
                for first in range(0, 6_000, 3_000):  # more than a kept plan takes, and than travels in a query
                    active.feed("reports", [report(number) for number in range(first, first + 3_000)])
                    active.settle(timeout_s=300)
                active.feed("reports", [report(6_000)])
                active.settle(timeout_s=300)
                count = len({each.fields["reportId"] for each in active.results(subscription, limit=10_000)})
                print(count, counted(active))
        except ActiveDataError as error:
            print(error)
    sys.stdout.flush()
    os._exit(0)


def counted(active: ActiveData) -> list[dict[str, Any]]:
    """A query of a user; unlike channels it is not tried again by itself where a worker is too slow for Spark."""
    for _ in range(2):
        try:
            return active.run("SELECT count(*) AS n FROM Reports")[0].rows
        except ActiveDataError as error:
            print(error, file=sys.stderr)
    return active.run("SELECT count(*) AS n FROM Reports")[0].rows


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
