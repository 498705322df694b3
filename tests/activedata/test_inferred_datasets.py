"""Datasets with the fields that Spark finds in files."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.activedata import ActiveData, QueryLimits, StatementError
from trimtab.activedata.spark.views import SparkViews


def test_fields_are_found_in_csv_json_and_parquet(active: ActiveData, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,price,at,open\n1,2.5,2026-05-01T10:00:00Z,true\n2,,,\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"name": "x", "n": 1, "tags": ["a"], "place": {"x": 1.5}}) + "\n")
    pq.write_table(pa.table({"k": pa.array([1], pa.int32()), "v": ["x"]}), tmp_path / "c.parquet")
    answer = active.run(f"CREATE ACTIVE DATASET A FROM '{tmp_path}/a.csv' KEY id")[0]
    assert answer.said == "active dataset A created"
    assert {row["field"]: row["type"] for row in answer.rows} == {
        "id": "INT",
        "price": "DOUBLE",
        "at": "TIMESTAMP",
        "open": "BOOLEAN",
    }
    assert [field.optional for field in active.datasets["a"].entry.fields] == [False, True, True, True]
    active.run(f"CREATE DATASET B FROM '{tmp_path}/b.jsonl' FORMAT JSON KEY name")
    assert [(field.name, field.type) for field in active.datasets["b"].entry.fields] == [
        ("n", "BIGINT"),
        ("name", "STRING"),
        ("place", "STRUCT<x: DOUBLE>"),
        ("tags", "ARRAY<STRING>"),
    ]
    active.run(f"CREATE DATASET C FROM '{tmp_path}/c.parquet' KEY k; COPY INTO C FROM '{tmp_path}/c.parquet'")
    assert active.run("SELECT * FROM C")[0].rows == [{"k": 1, "v": "x"}]
    with pytest.raises(StatementError, match="the key 'nope' is no field of the dataset"):
        active.run(f"CREATE DATASET D FROM '{tmp_path}/a.csv' KEY nope")
    with pytest.raises(StatementError, match="say FORMAT JSON, CSV or PARQUET"):
        active.run(f"CREATE DATASET D FROM '{tmp_path}' KEY id")


def test_files_elsewhere_are_not_looked_at(spark: SparkViews, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    with (
        ActiveData(tmp_path / "data", spark, QueryLimits(file_roots=(str(tmp_path / "in"),))) as active,
        pytest.raises(StatementError, match="is not below"),
    ):
        active.run(f"CREATE DATASET A FROM '{tmp_path}/a.csv' KEY id")
