"""A dataset as a DataFrame: its base from files, and the changes beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.activedata.storage.changes import DELETED
from trimtab.activedata.storage.dataset_table import DatasetTable, Snapshot

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession


def dataset_frame(session: SparkSession, store: DatasetTable) -> DataFrame:
    """The newest version of a dataset."""
    snapshot = store.snapshot()
    return with_changes(session, base_frame(session, store, snapshot.base), store, snapshot)


def base_frame(session: SparkSession, store: DatasetTable, files: tuple[str, ...]) -> DataFrame:
    """The rows of the base as they are in its files."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if not files:
        return session.createDataFrame(store.schema.empty_table())
    reader = session.read.schema(from_arrow_schema(store.table_schema))
    if store.partition_by:
        reader = reader.option("basePath", str(store.path.absolute()))
    return reader.parquet(*files).select(*(_column(field, store) for field in store.schema))


def _column(field: pa.Field, store: DatasetTable) -> Column:
    """A column of the base; Spark takes the bytes of a text in a partition's path for characters of their own."""
    import pyarrow as pa
    from pyspark.sql import functions as f

    column = f.col(f"`{field.name}`")
    if field.name in store.partition_by and pa.types.is_string(field.type):
        return f.decode(f.encode(column, "ISO-8859-1"), "UTF-8").alias(field.name)
    return column


def with_changes(session: SparkSession, base: DataFrame, store: DatasetTable, snapshot: Snapshot) -> DataFrame:
    """The base without what has changed, and what it has become."""
    import pyarrow.compute as pc
    from pyspark.sql import functions as f

    changes: pa.Table | None = snapshot.changes
    if changes is None:
        return base
    changed = f.broadcast(session.createDataFrame(changes.select(list(store.keys))))
    left = base.join(changed, list(store.keys), "left_anti").select(*map("`{}`".format, base.columns))
    live = changes.filter(pc.invert(pc.fill_null(changes[DELETED], False))).select(store.schema.names)
    return left.unionByName(session.createDataFrame(live)) if live.num_rows else left
