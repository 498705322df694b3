"""Active data beside a session that there is, and on workers that share nothing with it but the storage directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.activedata.test_channels import FEED, OF_TYPE, REPORTS, found_ids, report
from trimtab.activedata import ActiveData, ActiveDataError
from trimtab.activedata.spark.views import SparkViews
from trimtab.activedata.spark.worker_probe import probe_workers


def test_a_session_of_the_user_is_used_and_left_as_it_is(spark: SparkViews, tmp_path: Path) -> None:
    session = spark.session
    session.conf.set("spark.sql.shuffle.partitions", "7")
    session.range(3).createOrReplaceTempView("Reports")
    views = {each.name for each in session.catalog.listTables()}
    with ActiveData(tmp_path / "data", session) as active:
        active.run(REPORTS + FEED + OF_TYPE)
        subscription = active.subscribe("OfType", "B1", event="flood")
        active.feed("reports", [report(1), report(2, "fire")])
        active.settle()
        assert found_ids(active, subscription) == ["r1"]
        assert active.run("SELECT count(*) AS n FROM Reports")[0].rows == [{"n": 2}]
        assert active.frame("SELECT * FROM Reports").count() == 2
    assert session.sql("SELECT count(*) AS n FROM Reports").collect()[0].n == 3
    assert session.conf.get("spark.sql.shuffle.partitions") == "7"
    assert {each.name for each in session.catalog.listTables()} == views
    session.catalog.dropTempView("Reports")


def test_what_is_no_classic_session_is_refused_in_one_line_and_the_directory_let_go(
    spark: SparkViews, tmp_path: Path
) -> None:
    connected = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(ActiveDataError, match="a Spark Connect session cannot be used") as caught:
        ActiveData(tmp_path / "data", connected)
    assert "\n" not in str(caught.value)
    with pytest.raises(ActiveDataError, match="expected SparkSettings or a SparkSession, not int"):
        ActiveData(tmp_path / "data", 5)  # type: ignore[arg-type]
    with ActiveData(tmp_path / "data", spark.session):
        pass


def test_the_probe_leaves_nothing_behind(spark: SparkViews, tmp_path: Path) -> None:
    probe_workers(spark.session, tmp_path)
    assert list((tmp_path / "probe").iterdir()) == []


def isolated(kind: str, shared: Path) -> str:
    command = [sys.executable, "-m", "tests.activedata.execution.isolated_workers", kind, str(shared)]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=550, check=False)
    return done.stdout.strip() or done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")
def test_workers_that_share_only_the_storage_directory_run_channels(tmp_path: Path) -> None:
    assert isolated("shared", tmp_path) == "6001 [{'n': 6001}]"


@pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")
def test_workers_that_take_no_tasks_are_told_at_the_start(tmp_path: Path) -> None:
    said = isolated("small", tmp_path)
    assert said.startswith("no worker took a task within 60 s") and "\n" not in said


@pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")
def test_a_worker_without_the_storage_directory_is_named_at_the_start(tmp_path: Path) -> None:
    said = isolated("nothing", tmp_path)
    assert f"cannot read {tmp_path / 'data'}, which all workers must share with this process" in said
    assert "File does not exist" in said and "\n" not in said
