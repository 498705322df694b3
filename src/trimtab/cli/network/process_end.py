"""How a broker's process goes on when its broker has ended: it begins again in its place, or exits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from trimtab.network.failover.replication_settings import ReplicaOrder
    from trimtab.network.server.ending import Ending


def serve_to_the_end(
    serve: Callable[[ReplicaOrder | None], Ending], order: ReplicaOrder | None, network: str, options: Sequence[str]
) -> None:
    """Serve one incarnation after the other, as long as each wants to begin again.

    The next one begins in the program as it is loaded, which takes no time, unless the program on the disk has changed:
    then the process loads that, with the network file and these options.
    """
    from trimtab.network.server.ending import LEFT_EXIT_CODE, command_of
    from trimtab.network.server.program_files import are_unchanged, loaded_files

    files = loaded_files()
    while (ending := serve(order)).how == "begins again":
        order = ending.order
        if not are_unchanged(files):
            command = command_of(ending, network, options)
            os.execv(command[0], command)
    if ending.how == "left":
        raise typer.Exit(LEFT_EXIT_CODE)
