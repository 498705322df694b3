"""A bulk load whose process is killed: everything is there or nothing, and what was begun is cleared away."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trimtab.activedata import ActiveData
from trimtab.activedata.spark.views import SparkViews

COPIER = """
import sys
from trimtab.activedata import ActiveData, SparkSettings
with ActiveData(sys.argv[1], SparkSettings(memory_mb=1_024, quick_start=True)) as active:
    active.run("CREATE ACTIVE DATASET D (id STRING, n BIGINT) KEY id; INSERT INTO D VALUES ('r7', 7)")
    print("ready", flush=True)
    active.run(f"COPY INTO D FROM '{sys.argv[2]}'")
    print("done", flush=True)
    sys.stdin.read()
"""
RECORDS_COUNT = 60_000


@pytest.mark.parametrize("moment", ["while tasks write", "when it is done"])
def test_a_copy_that_is_killed_is_there_as_a_whole_or_not_at_all(
    spark: SparkViews, tmp_path: Path, moment: str
) -> None:
    source, data = tmp_path / "records.jsonl", tmp_path / "data"
    source.write_text("".join(json.dumps({"id": f"r{n}", "n": n}) + "\n" for n in range(RECORDS_COUNT)))
    command = [sys.executable, "-c", COPIER, str(data), str(source)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if moment == "when it is done":
            assert process.stdout.readline() == "done\n"
        else:
            end_s = time.monotonic() + 120
            while not list(data.glob("datasets/*/bulk-*")) and time.monotonic() < end_s:
                time.sleep(0.005)
        process.kill()
    with ActiveData(data, spark) as active:
        dataset = active.datasets["d"]
        named = {each.path for each in dataset.store.table_files()}
        assert dataset.store.rows_count() in ((RECORDS_COUNT,) if "done" in moment else (1, RECORDS_COUNT))
        again = active.run(f"COPY INTO D FROM '{source}'")[0].rows[0]
        assert again["accepted"] + again["repeated"] == RECORDS_COUNT
        (row,) = active.run("SELECT count(*) AS n, count(DISTINCT id) AS ids, max(_sequence) AS last FROM D")[0].rows
        assert row == {"n": RECORDS_COUNT, "ids": RECORDS_COUNT, "last": RECORDS_COUNT}
    assert named
