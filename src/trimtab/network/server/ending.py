"""How a broker's process ends: for good, to begin again in its place, or as one that has left the network."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from trimtab.network.failover.replication_settings import ReplicaOrder, neighbours_text
from trimtab.network.network_file import NetworkFileError, read_network_file

LEFT_EXIT_CODE: Final = 3
"""The exit code of a broker that was drained, for supervisors that start whatever ends again."""


class Ending(msgspec.Struct, frozen=True):
    """What becomes of a process when its broker has ended."""

    how: Literal["ended", "begins again", "left"] = "ended"
    order: ReplicaOrder | None = None
    """What it begins again as, if it is a replica."""


def objection_to_return(file: str | Path | None, name: str, *, is_replica: bool) -> str:
    """Why a broker could not begin again by its network file as that is by now; empty if it could."""
    if file is None:
        return ""
    try:
        plan = read_network_file(file)
    except NetworkFileError as error:
        return str(error)
    if name not in [entry.name for entry in plan.brokers]:
        return f"{file} has no broker {name} any more"
    if is_replica and plan.replication is None:
        return f"{file} has no section [replication] any more, and this process is a replica"
    return ""


def next_order(order: ReplicaOrder, epoch: int, addresses: Mapping[str, str], listen: str) -> ReplicaOrder:
    """What a replica begins again as: the next incarnation, with the neighbours that it has at the end."""
    return msgspec.structs.replace(
        order,
        neighbours=tuple((name, address) for name, address in addresses.items() if address),
        listen=listen,
        epoch=epoch + 1,
    )


def command_of(ending: Ending, file: str, options: Sequence[str]) -> list[str]:
    """The command with which a process begins again: its own, or that of the next incarnation of a replica."""
    order = ending.order
    if order is None:
        return [sys.executable, *sys.orig_argv[1:]]
    return [
        *(sys.executable, "-m", "trimtab", "broker", order.broker, file, "--replica", order.protocol),
        *("--neighbours", neighbours_text(order.neighbours), "--listen", order.listen, "--epoch", str(order.epoch)),
        *options,
    ]


Files: TypeAlias = dict[str, tuple[int, int, int]]
"""Files by path: when each was written, its size and its number on the disk."""


def loaded_files() -> Files:
    """The files of all modules that are loaded, and the interpreter, as they are on the disk."""
    paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())} | {sys.executable}
    return {path: found for path in paths if path and (found := _seen(path)) is not None}


def are_unchanged(files: Files) -> bool:
    """Whether these files are on the disk as they were.

    >>> are_unchanged(loaded_files())
    True
    >>> are_unchanged({"/no/such/file.py": (0, 0, 0)})
    False
    """
    return all(_seen(path) == found for path, found in files.items())


def _seen(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
