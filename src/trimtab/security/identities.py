"""Identities: who somebody has proven to be, and which names of clients belong to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

Proof: TypeAlias = Literal["certificate", "token", "password", "anonymous", "none"]
"""How somebody has proven who they are; none: nothing is asked for in this network."""

NAME_MAX_CHARS: Final = 128
SEPARATOR: Final = "/"
"""Between an identity's name and what one of its clients calls itself."""

ANONYMOUS: Final = "anonymous"
"""The identity of whoever proves nothing, where that is allowed; nobody else may have this name."""

_NAME: Final = re.compile(rf"[^\x00-\x20\x7f-\x9f/*#$]{{1,{NAME_MAX_CHARS}}}")


class IdentityError(ValueError):
    """Somebody is not who they say, or cannot be told; the message says why, and nothing secret."""


class Identity(msgspec.Struct, frozen=True):
    """Somebody who may do something.

    >>> ann = Identity("ann", "password")
    >>> ann.owns("ann"), ann.owns("ann/phone"), ann.owns("anna")
    (True, True, False)
    """

    name: str
    proof: Proof
    is_broker: bool = False
    """Whether it may greet as a broker, under its name and no other."""
    roles: tuple[str, ...] = ()
    """Roles that the proof itself names, as a token's claim; the permissions file gives others by name."""
    attributes: Mapping[str, str] = {}
    """Variables for permissions besides `name`: the texts among a token's claims."""
    expires_s: float | None = None
    """When the proof ends, in seconds since 1970; live connections end then as well."""

    @property
    def variables(self) -> dict[str, str]:
        """What filters with variables are filled in with."""
        return {**self.attributes, "name": self.name}

    def owns(self, client: str) -> bool:
        """Whether a client's name belongs to it."""
        return client == self.name or client.startswith(self.name + SEPARATOR)

    def is_over(self, wall_s: float) -> bool:
        """Whether its proof has ended."""
        return self.expires_s is not None and wall_s >= self.expires_s


def checked_name(name: object) -> str:
    """A name that an identity may have; raises `IdentityError`.

    >>> checked_name("ann@example.org")
    'ann@example.org'
    >>> checked_name("ann/phone")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    trimtab.security.identities.IdentityError: 'ann/phone' cannot be the name of an identity: ...
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise IdentityError(
            f"{str(name)[:60]!r} cannot be the name of an identity: it has 1 to {NAME_MAX_CHARS} characters, without "
            "spaces and / * # $"
        )
    return name


def subject_of(certificate: Mapping[str, object]) -> str:
    """The common name of a verified certificate, as Python's `ssl` tells it; raises `IdentityError`.

    >>> subject_of({"subject": ((("organizationName", "City"),), (("commonName", "B1"),))})
    'B1'
    """
    subject = certificate.get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]  # type: ignore[attr-defined]
    if len(names) != 1:
        raise IdentityError("the certificate's subject has no common name, or several")
    return checked_name(names[0])


def from_certificate(certificate: Mapping[str, object], brokers: frozenset[str]) -> Identity:
    """The identity of a verified certificate: that of a broker if its name is one of these.

    >>> from_certificate({"subject": ((("commonName", "B1"),),)}, frozenset({"B1"})).is_broker
    True
    """
    name = subject_of(certificate)
    if name == ANONYMOUS:
        raise IdentityError(f"nobody has the name {ANONYMOUS}")
    return Identity(name, "certificate", is_broker=name in brokers)
