"""The sections `[security]` and `[limits]` of a network file."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import msgspec

from trimtab.security.tokens import TokenRules


class SecuritySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may connect, and how; file names are relative to the network file.

    >>> SecuritySettings(permissions="permissions.toml")
    Traceback (most recent call last):
    ...
    ValueError: permissions need certificates = "FOLDER": brokers prove who they are by them; see trimtab certs init
    """

    certificates: str = ""
    """The folder with `authority.pem`, and `NAME.pem` and `NAME.key` of each broker that runs on this host. With it
    every connection is encrypted."""
    permissions: str = ""
    """The permissions file. Without it whoever has a certificate of the authority may do everything."""
    passwords: str = ""
    """The file with names and hashes of passwords (`trimtab password`)."""
    tokens: str = ""
    """A JWKS file with the keys that tokens are signed with."""
    token_rules: TokenRules = TokenRules()
    """What tokens must say."""
    anonymous: bool = False
    """Whether somebody who proves nothing may connect, as the identity `anonymous`."""
    operator: str = ""
    """The identity file of commands that are given this network file, unless `--as` names another."""
    audit: str = ""
    """The folder of the records of administration, one file for each broker; `audit` beside the network file if it is
    empty."""
    brokers: tuple[str, ...] = ()
    """Names of brokers that stand in no `[[broker]]` of this file and may be linked."""
    insecure: bool = False
    """Lets brokers listen at addresses that others reach, without encryption and without identities."""

    def __post_init__(self) -> None:
        for what in ("permissions", "passwords", "tokens", "operator"):
            if getattr(self, what) and not self.certificates:
                reason = f'{what} need certificates = "FOLDER"'
                raise ValueError(f"{reason}: brokers prove who they are by them; see trimtab certs init")
        if self.anonymous and not self.permissions:
            raise ValueError("anonymous = true needs permissions: what may somebody do who proves nothing?")
        if self.insecure and self.certificates:
            raise ValueError("insecure = true is for networks without certificates")

    def beside(self, folder: Path) -> SecuritySettings:
        """The same with file names that do not depend on where a process runs."""
        names = ("certificates", "permissions", "passwords", "tokens", "operator", "audit")
        found = {name: str(folder / getattr(self, name)) for name in names if getattr(self, name)}
        if self.certificates and not self.audit:
            found["audit"] = str(folder / "audit")
        return msgspec.structs.replace(self, **found)

    @property
    def is_on(self) -> bool:
        """Whether identities are asked for."""
        return bool(self.certificates)


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits against strangers, for each broker process.

    >>> LimitSettings(greet_within_s=0)
    Traceback (most recent call last):
    ...
    ValueError: greet_within_s must be above 0
    """

    connections_max_count: int = 20_000
    """Connections at a time; fewer where the process has fewer descriptors."""
    connections_per_address_max_count: int = 1_000
    """Of them from one address that is not this host."""
    ungreeted_max_count: int = 256
    """Of them those that have not greeted; the oldest makes way for a new one."""
    greet_within_s: float = 5.0
    """A connection that has not greeted by then is closed."""
    idle_within_s: float = 30.0
    """So is one over which requests came, this long after the last answer."""
    greeting_max_bytes: int = 65_536
    """A longer frame before a greeting ends its connection; requests and greetings have some hundred bytes."""
    handshakes_per_s: float = 200.0
    """New encrypted connections; each takes some milliseconds of CPU. Others wait to be taken."""
    handshakes_burst_count: int = 200
    handshake_within_s: float = 5.0
    requests_per_s: float = 50.0
    """Requests over one connection that has not greeted; others are not read yet."""
    requests_burst_count: int = 50
    requests_under_way_max_count: int = 16
    """Requests over one connection that wait for their answers."""
    statuses_per_s: float = 20.0
    """A status takes up to a millisecond; who asks beyond this rate hears the last one again."""
    password_checks_max_count: int = 2
    """Checks of passwords at a time, each in a thread; each takes some tens of milliseconds."""
    password_checks_waiting_max_count: int = 64
    strange_brokers_max_count: int = 64
    """Brokers that stand in no file, where brokers prove nothing."""
    strange_broker_lease_s: float = 60.0
    """One that is gone for longer is forgotten, with all that it has told."""
    clients_per_identity_max_count: int = 1_000
    """Clients of one identity at a broker."""

    def __post_init__(self) -> None:
        for name, value in msgspec.structs.asdict(self).items():
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} must be above 0")


def is_loopback(host: str) -> bool:
    """Whether only processes of this host reach an address.

    >>> is_loopback("127.0.0.2"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("::1")
    (True, True, False, True)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
