"""Active data on a standalone Spark of two workers, one of which is killed half way: is every notification there, once?

    python -m trimtab.lab.bench.active_cluster

What must be found is computed in plain Python from the same data.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import msgspec

from trimtab.activedata.spark.cluster import spark_cluster
from trimtab.operations.emergency.application import Report, found_by
from trimtab.operations.emergency.city import EmergencyCity, statements


class ClusterFigures(msgspec.Struct, frozen=True):
    """What came of a run."""

    master: str
    records_count: int
    subscriptions_count: int
    expected_count: int
    found_count: int
    missing_count: int
    unexpected_count: int
    twice_count: int


def run_on_cluster(
    directory: Path, seed: int = 1, subscriptions_count: int = 610, batches_count: int = 10, batch_count: int = 50
) -> ClusterFigures:
    """Feed batches of reports, kill a worker after half of them, and compare what was found with what must be."""
    from trimtab.activedata import ActiveData, SparkSettings

    city = EmergencyCity(seed)
    settings = {"spark.executor.memory": "768m", "spark.executor.cores": "1"}
    with spark_cluster(directory) as cluster:
        spark = SparkSettings(master=cluster.master, memory_mb=1_024, quick_start=True, extra=settings)
        with ActiveData(directory / "data", spark) as active:
            active.run(statements(continuous=True))
            active.run("CREATE BROKER B1 AT 'lab'")
            active.feed("locations", city.users)
            active.feed("shelters", city.shelters)
            wanted = city.subscriptions(subscriptions_count)
            numbers = {
                active.subscribe(channel, "B1", **values): (channel, tuple(values.items()))
                for channel, values in wanted
            }
            reports: list[Report] = []
            for batch in range(batches_count):
                new = [city.report() for _ in range(batch_count)]
                if batch == batches_count // 2:
                    active.settle(300.0)
                active.feed("reports", new)
                reports += msgspec.convert(new, list[Report])
                if batch == batches_count // 2:
                    cluster.kill_worker(0)
            active.settle(300.0)
            found = [
                (number, str(result.fields["reportId"]))
                for number in numbers
                for result in active.results(number, limit=10_000)
            ]
    places = {str(user["userId"]): (float(user["x"]), float(user["y"])) for user in city.users}
    expected = {(number, id_) for number, each in numbers.items() for id_ in found_by(each, reports, places)}
    return ClusterFigures(
        master=cluster.master,
        records_count=len(reports),
        subscriptions_count=len(numbers),
        expected_count=len(expected),
        found_count=len(found),
        missing_count=len(expected - set(found)),
        unexpected_count=len(set(found) - expected),
        twice_count=len(found) - len(set(found)),
    )


def main() -> int:
    """Run once and print the figures as JSON; 0 if nothing is missing, unexpected or there twice."""
    with tempfile.TemporaryDirectory() as directory:
        figures = run_on_cluster(Path(directory))
    sys.stdout.write(json.dumps(msgspec.to_builtins(figures), indent=2) + "\n")
    return int(bool(figures.missing_count or figures.unexpected_count or figures.twice_count))


if __name__ == "__main__":
    sys.exit(main())
