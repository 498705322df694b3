"""A network of processes that is started and ended by a program."""

from __future__ import annotations

import asyncio

from trimtab import Network
from trimtab.network.failover.process_identity import ProcessIdentity


def test_a_network_can_be_used_where_an_event_loop_runs_as_in_a_notebook() -> None:
    async def in_a_loop() -> list[ProcessIdentity]:
        with Network.of(["B1", "B2"], [("B1", "B2")]) as network:
            assert all(status is not None for status in network.status().values())
            lives = [ProcessIdentity.of_process(network.pid(name)) for name in ("B1", "B2")]
            network.kill_broker("B1")  # at the end it is asked whether another process is that broker by now
        return lives

    assert not any(life.is_running() for life in asyncio.run(in_a_loop()))
