"""Names and passwords: scrypt hashes, one line for each name.

A line is `NAME:scrypt$N$R$P$SALT$HASH`, with salt and hash in base64. A check takes some tens of milliseconds of CPU on
purpose; whoever calls it from an event loop does so in a thread, a few at a time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

import msgspec

from trimtab.security.identities import ANONYMOUS, IdentityError, checked_name

COST_COUNT: Final = 2**14
BLOCK_COUNT: Final = 8
LANES_COUNT: Final = 1
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
PASSWORD_MAX_BYTES: Final = 1_024
_COST_MAX_COUNT: Final = 2**17
_MEMORY_MAX_BYTES: Final = 256 * 1024 * 1024


class PasswordHash(msgspec.Struct, frozen=True):
    """What is kept of a password."""

    cost_count: int
    block_count: int
    lanes_count: int
    salt: bytes
    hash: bytes

    def __str__(self) -> str:
        salt, hash = (base64.b64encode(each).decode() for each in (self.salt, self.hash))
        return f"scrypt${self.cost_count}${self.block_count}${self.lanes_count}${salt}${hash}"

    @staticmethod
    def of(password: str, salt: bytes) -> PasswordHash:
        """The hash of a password, with a salt that was drawn for it.

        >>> PasswordHash.of("secret", b"0123456789abcdef").fits("secret")
        True
        """
        blank = PasswordHash(COST_COUNT, BLOCK_COUNT, LANES_COUNT, salt, b"")
        return msgspec.structs.replace(blank, hash=blank.hashed(password))

    def hashed(self, password: str) -> bytes:
        """What a password becomes with this salt and cost."""
        data = password.encode()
        if not data or len(data) > PASSWORD_MAX_BYTES:
            raise IdentityError(f"a password has 1 to {PASSWORD_MAX_BYTES} bytes")
        return hashlib.scrypt(
            data,
            salt=self.salt,
            n=self.cost_count,
            r=self.block_count,
            p=self.lanes_count,
            maxmem=_MEMORY_MAX_BYTES,
            dklen=HASH_BYTES,
        )

    def fits(self, password: str) -> bool:
        """Whether this is the password; takes long on purpose."""
        try:
            return hmac.compare_digest(self.hashed(password), self.hash)
        except IdentityError:
            return False


NOBODY: Final = PasswordHash(COST_COUNT, BLOCK_COUNT, LANES_COUNT, bytes(SALT_BYTES), bytes(HASH_BYTES))
"""No password fits it: who asks for a name that there is not waits as long as for one that there is."""


def read_passwords(text: str, file_name: str = "passwords") -> Mapping[str, PasswordHash]:
    """The hashes of a file by name; raises ValueError with file and line.

    >>> line = f"ann:{PasswordHash.of('secret', b'0123456789abcdef')}"
    >>> read_passwords(line)["ann"].fits("guess")
    False
    """
    found: dict[str, PasswordHash] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, hash = line.strip().rpartition(":")
        try:
            if not colon:
                raise ValueError("expected NAME:scrypt$...")
            if checked_name(name) in found or name == ANONYMOUS:
                raise ValueError(f"{name} has a password already, or cannot have one")
            found[name] = _read_hash(hash)
        except ValueError as error:
            raise ValueError(f"{file_name}:{number}: {error}; make a line with trimtab password") from None
    return found


def _read_hash(text: str) -> PasswordHash:
    try:
        kind, cost, block, lanes, salt, hash = text.split("$")
        numbers = int(cost), int(block), int(lanes)
        decoded = base64.b64decode(salt, validate=True), base64.b64decode(hash, validate=True)
    except (ValueError, binascii.Error):
        raise ValueError("not a hash of a password") from None
    cost_count = numbers[0]
    is_power = cost_count >= 2 and cost_count & (cost_count - 1) == 0
    if kind != "scrypt" or not is_power or cost_count > _COST_MAX_COUNT or not 1 <= numbers[1] <= 16 or numbers[2] != 1:
        raise ValueError("not a hash of a password")
    if len(decoded[0]) < SALT_BYTES or len(decoded[1]) != HASH_BYTES:
        raise ValueError("not a hash of a password")
    return PasswordHash(*numbers, *decoded)
