"""The Spark data source `trimtab`, registered with `register(spark)`.

    register(spark)
    publications = spark.readStream.format("trimtab").option("broker", "127.0.0.1:7001")
    publications.option("filter", "class = 'STOCK'").schema("symbol STRING, price DOUBLE").load()
    results = spark.read.format("trimtab").option("service", "http://127.0.0.1:7500").option("subscription", 1).load()
    stream.writeStream.format("trimtab").option("broker", ...).option("advertisement", "class = 'ALERT'").start()

The options are in docs/active-data.md. Tasks need the package trimtab where they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSource

from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.source.overlay_reader import OverlayOptions, OverlayReader, OverlayStreamReader
from trimtab.activedata.source.overlay_writer import OverlayStreamWriter, OverlayWriter, PublishOptions
from trimtab.activedata.source.results_reader import ResultOptions, ResultsReader, ResultsStreamReader
from trimtab.activedata.source.rows import PUBLICATION_SCHEMA, RESULT_SCHEMA, columns_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        SimpleDataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

Wanted = TypeVar("Wanted")


class TrimtabDataSource(DataSource):
    """Publications that match a filter (options `broker`, `filter`) or results of a channel (`service`)."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "trimtab"

    def schema(self) -> str:
        """The columns unless the user gives others."""
        return RESULT_SCHEMA if "service" in self.options else PUBLICATION_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads once."""
        if "service" in self.options:
            return ResultsReader(ResultOptions.of(self._given()), columns_of(schema))
        return OverlayReader(OverlayOptions.of(self._given()), columns_of(schema))

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Reads on."""
        if "service" in self.options:
            return ResultsStreamReader(ResultOptions.of(self._given()), columns_of(schema))
        return OverlayStreamReader(OverlayOptions.of(self._given()), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Publishes a table."""
        if overwrite:
            raise ActiveDataError('what is published is not overwritten: expected mode("append")')
        return OverlayWriter(PublishOptions.of(self._given()))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        """Publishes a stream."""
        return OverlayStreamWriter(PublishOptions.of(self._given()))

    def _given(self) -> dict[str, Any]:
        return {str(name).lower(): value for name, value in self.options.items()}


def register(session: SparkSession) -> None:
    """Let a session know the format `trimtab`."""
    session.dataSource.register(TrimtabDataSource)
