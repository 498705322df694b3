"""Ctrl-C while Spark starts ends the command, and Spark with it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from trimtab.network.admin.local_network import free_ports
from trimtab.network.failover.process_identity import ProcessIdentity

WITHIN_S = 60.0


def children_of(pid: int) -> list[ProcessIdentity]:
    """The processes that a process has started and that run."""
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return (
        [ProcessIdentity.of_process(int(each)) for each in found.read_text(encoding="ascii").split()]
        if found.exists()
        else []
    )


def test_ctrl_c_while_spark_starts_ends_it(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, "-m", "trimtab", "active", "start", "--dir", str(tmp_path / "data"), "--listen", listen]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ends_s = time.monotonic() + WITHIN_S
    while not (java := children_of(process.pid)) and time.monotonic() < ends_s:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, stdout) == (130, "")
    assert stderr.splitlines()[-1] == "stopped while Spark was starting"
    assert "Traceback" not in stderr
    while any(each.is_running() for each in java) and time.monotonic() < ends_s:
        time.sleep(0.05)
    assert not any(each.is_running() for each in java)
