"""A host at its limits: a broker process without descriptors."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from trimtab import Client, Filter
from trimtab.network.client.client import ClientError
from trimtab.network.loops import run as run_loop

WITHIN_S = 30.0
FILE = """
[[broker]]
name = "B1"
listen = "127.0.0.1:{port}"
"""


def test_a_broker_without_descriptors_serves_who_is_there_and_says_why_others_wait(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    file = tmp_path / "network.toml"
    file.write_text(FILE.format(port=port), encoding="utf-8")
    address = f"127.0.0.1:{port}"

    async def work() -> None:
        async with await connected(address) as client:
            subscription = await client.subscribe(Filter.parse("a > 0"))
            await client.advertise(Filter.parse("a > 0"))
            with ExitStack() as stack:
                for _ in range(100):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
                ends_s = time.monotonic() + WITHIN_S
                while "no descriptor left" not in log.read_text(encoding="utf-8"):
                    assert time.monotonic() < ends_s
                    await asyncio.sleep(0.05)
                await client.publish({"a": 1})
                assert (await anext(subscription)).publication["a"] == 1
                await client.drain()
            async with await connected(address) as other:  # as soon as there is room again
                assert other.is_connected

    log = tmp_path / "log"
    with log.open("wb") as writing:
        process = subprocess.Popen(
            [sys.executable, "-m", "trimtab", "broker", "B1", str(file), "--quiet"],
            stderr=writing,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)),  # noqa: PLW1509
        )
        try:
            run_loop(asyncio.wait_for(work(), 2 * WITHIN_S))
        finally:
            process.terminate()
            process.wait(WITHIN_S)
    said = log.read_text(encoding="utf-8")
    assert "B1 has no descriptor left (its limit is 60): new connections wait until others end" in said
    assert "Traceback" not in said


async def connected(address: str) -> Client:
    """A client, as soon as the broker takes it."""
    ends_s = time.monotonic() + WITHIN_S
    while True:
        try:
            return await asyncio.wait_for(Client.connect(address), 5)
        except (ClientError, OSError, TimeoutError):
            assert time.monotonic() < ends_s
            await asyncio.sleep(0.1)
