"""A standalone Spark master with workers on this machine, started from the installed package pyspark."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from trimtab.activedata.errors import ActiveDataError

START_WITHIN_S: Final = 300.0

TEMPORARY: Final = Path(tempfile.gettempdir()).resolve()

_ISOLATED: Final = f"""
kept=$(mktemp -d /var/tmp/trimtab-XXXXXX)
mount -t tmpfs none "$kept"
number=0
for folder in "$@"; do
    [ "$folder" = -- ] && break
    number=$((number + 1)); mkdir "$kept/$number"; mount --bind "$folder" "$kept/$number"
done
mount -t tmpfs none {TEMPORARY}
number=0
while [ "$1" != -- ]; do
    number=$((number + 1)); mkdir -p "$1"; mount --bind "$kept/$number" "$1"; shift
done
shift
exec "$@"
"""
"""Mounts are those of this command alone and end with it."""


class SparkCluster:
    """A master and its workers, each a process with its own log.

    With `shares`, each worker has a temporary folder of its own (a mount namespace, for which one must be root), in
    which it sees these folders and nothing else that this process has there: as on another machine.
    """

    def __init__(self, directory: Path, memory_mb: int, shares: Sequence[Path] | None = None) -> None:
        from pyspark.find_spark_home import _find_spark_home

        from trimtab.activedata.spark.java import java_home

        self._directory = directory
        self._isolation = [] if shares is None else _isolation([*shares, Path(sys.prefix), *_packages()])
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
            self._start("org.apache.spark.deploy.worker.Worker", f"worker{number}", options, self._isolation)
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

    def _start(self, name: str, log: str, options: list[str], before: Sequence[str] = ()) -> None:
        with (self._directory / f"{log}.log").open("wb") as file:
            command = [*before, str(self._spark_class), name, *options]
            process = subprocess.Popen(
                command, stdout=file, stderr=file, env=self._environment, cwd="/", start_new_session=True
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


def _packages() -> list[Path]:
    """Where the source of this package is, if that is not within the environment."""
    return [Path(__file__).parents[3]]


def _isolation(shares: Sequence[Path]) -> list[str]:
    """What stands before a command so that it has a temporary folder of its own, with these folders in it."""
    inside = [str(each.resolve()) for each in shares if each.resolve().is_relative_to(TEMPORARY)]
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", _ISOLATED, "sh", *inside, "--"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def spark_cluster(
    directory: Path, workers_count: int = 2, memory_mb: int = 1_024, shares: Sequence[Path] | None = None
) -> Iterator[SparkCluster]:
    """A running cluster, which ends with the block."""
    cluster = SparkCluster(directory.absolute(), memory_mb, shares)
    try:
        cluster.start(workers_count)
        yield cluster
    finally:
        cluster.stop()
