"""One Spark for all tests of active data, which run in one worker process."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab.activedata import ActiveData, SparkSettings
from trimtab.activedata.spark.views import SparkViews

POSTGRES_JAR = Path("/usr/share/java/postgresql.jar")
"""Where Debian's libpostgresql-jdbc-java puts the driver."""

QUICK = SparkSettings(
    memory_mb=1_024,
    quick_start=True,
    extra={"spark.driver.extraClassPath": str(POSTGRES_JAR)} if POSTGRES_JAR.exists() else {},
)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkViews]:
    with tempfile.TemporaryDirectory() as directory:
        views = SparkViews(QUICK, Path(directory))
        yield views
        views.stop()


@pytest.fixture
def active(spark: SparkViews, tmp_path: Path) -> Iterator[ActiveData]:
    with ActiveData(tmp_path / "data", spark) as data:
        yield data


@pytest.fixture(scope="session")
def active_with_channel(spark: SparkViews) -> Iterator[ActiveData]:
    """Reports, a feed, a broker and a channel that stay as they are."""
    from tests.activedata.test_channels import FEED, OF_TYPE, REPORTS

    with tempfile.TemporaryDirectory() as directory, ActiveData(directory, spark) as data:
        data.run(REPORTS + FEED + OF_TYPE)
        yield data
