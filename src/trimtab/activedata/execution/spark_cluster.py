"""A standalone Spark master with workers on this machine, started from the installed package pyspark."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from trimtab.activedata.errors import ActiveDataError

START_WITHIN_S: Final = 300.0


class SparkCluster:
    """A master and its workers, each a process with its own log."""

    def __init__(self, directory: Path, memory_mb: int) -> None:
        from pyspark.find_spark_home import _find_spark_home

        from trimtab.activedata.execution.java import java_home

        self._directory = directory
        self._memory_mb = memory_mb
        self._spark_class = Path(_find_spark_home()) / "bin" / "spark-class"
        self._environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = _free_port()

    @property
    def master(self) -> str:
        """The master's address, for --spark."""
        return f"spark://127.0.0.1:{self._port}"

    def start(self, workers_count: int) -> None:
        """Start the master, then the workers, and wait until they have registered."""
        options = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"]
        self._start("org.apache.spark.deploy.master.Master", "master", options)
        self._wait_for("master", "New state: ALIVE", 1)
        for number in range(workers_count):
            options = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", f"{self._memory_mb}m"]
            options += ["--work-dir", str(self._directory / f"work{number}"), self.master]
            self._start("org.apache.spark.deploy.worker.Worker", f"worker{number}", options)
        self._wait_for("master", "Registering worker", workers_count)

    def kill_worker(self, number: int) -> None:
        """Kill a worker and what runs in it, without warning."""
        os.killpg(self._processes[1 + number].pid, signal.SIGKILL)

    def stop(self) -> None:
        """End all processes."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, name: str, log: str, options: list[str]) -> None:
        with (self._directory / f"{log}.log").open("wb") as file:
            command = [str(self._spark_class), name, *options]
            process = subprocess.Popen(
                command, stdout=file, stderr=file, env=self._environment, cwd=self._directory, start_new_session=True
            )
        self._processes.append(process)

    def _wait_for(self, log: str, text: str, count: int) -> None:
        end_s = time.monotonic() + START_WITHIN_S
        while time.monotonic() < end_s:
            said = (self._directory / f"{log}.log").read_text(encoding="utf-8", errors="replace")
            if said.count(text) >= count:
                return
            time.sleep(0.2)
        raise ActiveDataError(f"the Spark cluster did not start within {START_WITHIN_S:g} s: {said[-500:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def spark_cluster(directory: Path, workers_count: int = 2, memory_mb: int = 1_024) -> Iterator[SparkCluster]:
    """A running cluster, which ends with the block."""
    cluster = SparkCluster(directory, memory_mb)
    try:
        cluster.start(workers_count)
        yield cluster
    finally:
        cluster.stop()
