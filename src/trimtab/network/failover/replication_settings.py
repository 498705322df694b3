"""The section [replication] of a network file: how failures are noticed, and who starts replicas."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from trimtab.broker.config import BrokerConfig
from trimtab.broker.replication.config import ReplicationConfig
from trimtab.network.links.address import Address

Provisioner: TypeAlias = Literal["none", "process", "standby", "command"]
PROVISIONERS: Final[tuple[Provisioner, ...]] = get_args(Provisioner)


class ReplicationSettings(ReplicationConfig, frozen=True, forbid_unknown_fields=True):
    """What a broker is told (see `ReplicationConfig`), and what its process does about neighbours that have failed."""

    provisioner: Provisioner = "none"
    """none: nobody starts replicas; process: the broker that asks starts a process on its host; standby: a process that
    waits takes over; command: the operator's command is run."""

    replaces: Literal["automatic", "by-hand"] = "automatic"
    """automatic: a broker that has failed is replaced at once; by-hand: when `trimtab replace` asks for it."""

    command: tuple[str, ...] = ()
    """The operator's command and its arguments, which may contain {broker}, {protocol}, {neighbours}, {listen},
    {session}, {epoch} and {why}; for an assistant it is run with --assist, or --assist --reorder, behind them. No shell
    reads it: each word is one argument, whatever is filled in."""

    start_within_s: float = 10.0
    """A replica that has not greeted after so long is asked for again; a process starts within a second or two."""

    unreachable: Literal["wait", "replace"] = "wait"
    """What to do about a broker on a host that cannot be reached, of which nobody can say whether it runs: wait for the
    operator (or for the host), or replace it if a majority of brokers and stand-bys finds it gone (`fence_after_s`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start_within_s <= 0:
            raise ValueError("every time of replication is positive")
        if self.provisioner == "command" and not self.command:
            raise ValueError('the provisioner "command" needs a command = ["PROGRAM", "ARGUMENT", ...]')
        if self.command and self.provisioner != "command":
            raise ValueError('a command is for provisioner = "command"')
        if unknown := [word for word in self.command if not _is_known(word)]:
            known = ", ".join(f"{{{name}}}" for name in ORDER_FIELDS)
            raise ValueError(f"command: {unknown[0]!r} has a field that is not one of {known}")


ORDER_FIELDS: Final = ("broker", "protocol", "neighbours", "listen", "session", "epoch", "why")
"""What the operator's command can be told; `why` is crash, hang or congestion."""

BROKER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""The names of brokers in network files. What comes over the wire may hold anything, and other names than these get
into no order: neither a command line nor a shell that an operator's command runs can take them for anything else."""

_HOST: Final = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]{0,252}")

ASSISTANT_MARK: Final = "~"
"""Behind a broker's name this makes its assistant's; names of network files do not contain it."""


class ReplicaOrder(msgspec.Struct, frozen=True):
    """What a replica or an assistant is started with."""

    broker: str
    protocol: str
    neighbours: tuple[tuple[str, str], ...]
    """Names and addresses of all brokers that the one before was linked to; the replica calls them."""
    listen: str
    """Where the one before was found; the replica listens there if that is on its host."""
    session: str = ""
    """The incarnation before."""
    why: str = ""
    """How it failed."""
    assists: bool = False
    """Whether the process is not to replace the broker, but to share its load; then the broker itself is the first of
    the neighbours."""
    reorders: bool = False
    """Of an assistant: whether publications are put in order again behind the two."""
    epoch: int = 1
    """The number of the new incarnation, above that of the one before; if it is not, neighbours tell."""

    def filled_in(self, word: str) -> str:
        """A word of the operator's command with its fields filled in.

        >>> ReplicaOrder("B3", "basic", (("B1", "h:1"), ("B4", "h:4")), "h:3").filled_in("{broker} {neighbours}")
        'B3 B1=h:1,B4=h:4'
        """
        values = {name: str(getattr(self, name)) for name in ORDER_FIELDS}
        return word.format(**{**values, "neighbours": neighbours_text(self.neighbours)})

    def config_of(self, config: BrokerConfig, listen: str) -> BrokerConfig:
        """The configuration of the new incarnation, or of the assistant, from that of its broker."""
        return msgspec.structs.replace(
            config,
            name=f"{self.broker}{ASSISTANT_MARK}" if self.assists else self.broker,
            replica=self.protocol,
            neighbours=tuple(neighbour for neighbour, _ in self.neighbours),
            address=listen,
            assists=self.broker if self.assists else "",
            reorders=self.reorders,
        )

    @property
    def options(self) -> list[str]:
        """The options of `trimtab broker` that make it an assistant, none for a replica."""
        return [*(["--assist"] if self.assists else []), *(["--reorder"] if self.reorders else [])]


def well_formed_address(text: str) -> str:
    """An address that a peer told, as it may stand in an order; empty if it may not.

    >>> well_formed_address("node-3:7001"), well_formed_address("$(reboot):7001"), well_formed_address("")
    ('node-3:7001', '', '')
    """
    try:
        address = Address.parse(text)
    except ValueError:
        return ""
    return str(address) if _HOST.fullmatch(address.host) else ""


def neighbours_text(neighbours: tuple[tuple[str, str], ...]) -> str:
    """Neighbours as one word: NAME=HOST:PORT,..."""
    return ",".join(f"{name}={address}" for name, address in neighbours)


def parse_neighbours(text: str) -> tuple[tuple[str, str], ...]:
    """The opposite of `neighbours_text`; raises ValueError.

    >>> parse_neighbours("B1=127.0.0.1:7001,B4=127.0.0.1:7004")
    (('B1', '127.0.0.1:7001'), ('B4', '127.0.0.1:7004'))
    """
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    for name, equals, address in pairs:
        if not name.strip() or not equals or not address.strip():
            raise ValueError(f"{text[:200]!r}: expected NAME=HOST:PORT,NAME=HOST:PORT")
    return tuple((name.strip(), address.strip()) for name, _, address in pairs)


def _is_known(word: str) -> bool:
    try:
        word.format(**dict.fromkeys(ORDER_FIELDS, ""))
    except (KeyError, IndexError, ValueError, AttributeError):
        return False
    return True
