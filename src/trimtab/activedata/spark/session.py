"""Makes the one Spark session of a process: quiet, resident, sized for small and frequent queries."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER: Final = "local[2]"

_QUIET_LOG: Final = """status = error
rootLogger.level = error
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c: %m%n%ex
"""


_SESSION_CONFIGURATION: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",
}
"""What queries count on, in whatever Spark they run: kept plans, mistakes that are raised, times, and no variables of
the environment in statements."""


class SparkSettings(msgspec.Struct, frozen=True):
    """How Spark is started.

    `master` is local mode unless another address is given (spark://host:7077). `memory_mb` is the heap of the driver,
    in local mode of everything. Few shuffle partitions because most executions see few records; a shuffle into 200
    would cost more than the query. `broadcast_bytes` keeps the smaller side of a join whole at every worker.
    `quick_start` makes Java compile less: it starts in half the time and is slower later, which suits tests.
    """

    master: str = LOCAL_MASTER
    memory_mb: int = 1_536
    shuffle_partitions_count: int = 2
    broadcast_bytes: int = 64 * 1024 * 1024
    quick_start: bool = False
    extra: dict[str, str] = {}


def start_spark(settings: SparkSettings, work_dir: Path) -> SparkSession:
    """Start the session; its log goes to `work_dir`/spark.log and not to the screen."""
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession
    except ImportError:
        raise ActiveDataError("active data needs Spark: pip install 'trimtab[active]'") from None
    work_dir = work_dir.absolute()
    work_dir.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if _stays_here(settings.master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log_file = work_dir / "log4j2.properties"
    log_file.write_text(_QUIET_LOG.format(log=work_dir / "spark.log"), encoding="utf-8")
    configuration = SparkConf(loadDefaults=False).setAppName("trimtab").setMaster(settings.master)
    for key, value in {**_configuration(settings, work_dir, log_file), **settings.extra}.items():
        configuration.set(key, value)
    with (work_dir / "java.log").open("ab") as log:
        launch: Any = launch_gateway
        gateway = launch(configuration, popen_kwargs={"stdout": log, "stderr": log})
    context = SparkContext(conf=configuration, gateway=gateway)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)  # what they would print is raised as well
    return SparkSession(context)


def session_beside(session: SparkSession) -> SparkSession:
    """A session with settings and views of its own in the same Spark as one that the user has."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise ActiveDataError(
            "a Spark Connect session cannot be used, because active data needs the Spark in its own process: "
            "give a classic session, or SparkSettings(master=...)"
        )
    if not hasattr(session, "newSession"):
        raise ActiveDataError(f"expected SparkSettings or a SparkSession, not {type(session).__name__}")
    if session.sparkContext._jsc is None:
        raise ActiveDataError("the Spark session that was given is stopped")
    beside = session.newSession()
    for key, value in _SESSION_CONFIGURATION.items():
        beside.conf.set(key, value)
    return beside


def is_local(master: str) -> bool:
    """Whether Spark's tasks run in this process, which sees every file that the driver sees."""
    return master.startswith("local") and not master.startswith("local-cluster")


def _stays_here(master: str) -> bool:
    """Whether Spark needs no other machine, so that it can keep to the loopback address."""
    return master.startswith("local") or "//127.0.0.1" in master or "//localhost" in master


def _configuration(settings: SparkSettings, work_dir: Path, log_file: Path) -> dict[str, str]:
    java_options = (
        f"-Dlog4j2.configurationFile={log_file.as_uri()} -XX:TieredStopAtLevel={1 if settings.quick_start else 4} "
        "-XX:+UseSerialGC -Xss4m --enable-native-access=ALL-UNNAMED"
    )
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {
        **(here if _stays_here(settings.master) else {}),
        "spark.driver.memory": f"{settings.memory_mb}m",
        "spark.driver.extraJavaOptions": java_options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(work_dir / "warehouse"),
        "spark.local.dir": str(work_dir / "local"),
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions_count),
        "spark.sql.leafNodeDefaultParallelism": str(settings.shuffle_partitions_count),
        "spark.sql.autoBroadcastJoinThreshold": str(settings.broadcast_bytes),
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **_SESSION_CONFIGURATION,
        "spark.scheduler.mode": "FAIR",
        "spark.locality.wait": "0",
        "spark.shuffle.readHostLocalDisk": "false",  # workers in containers share a host's name and not its disk
        "spark.cleaner.periodicGC.interval": "10min",
        "spark.sql.codegen.cache.maxEntries": "2000",
    }


def stop_spark(session: SparkSession) -> None:
    """Stop the session and its Java process; a process that died already is no error."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    try:
        session.stop()
    except (Py4JError, OSError):
        SparkSession._instantiatedSession = None
        SparkContext._active_spark_context = None
    if gateway is not None:
        process = getattr(gateway, "proc", None)
        with contextlib.suppress(Py4JError, OSError):
            gateway.shutdown()
        if process is not None:
            process.stdin.close()
            process.wait(timeout=30)
    SparkContext._gateway = None
    SparkContext._jvm = None
