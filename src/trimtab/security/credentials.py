"""What a greeting carries as proof, besides the certificate of its connection."""

from __future__ import annotations

import msgspec

from trimtab.security.passwords import PASSWORD_MAX_BYTES
from trimtab.security.tokens import TOKEN_MAX_CHARS


class Credential(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token, or a name with its password; never shown.

    >>> Credential(user="ann", password="secret")
    Credential(user='ann', ...)
    """

    token: str = ""
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return "Credential(token ...)" if self.token else f"Credential(user={self.user[:100]!r}, ...)"

    def problem(self) -> str:
        """What is wrong with its form, empty if nothing is."""
        if bool(self.token) == bool(self.user):
            return "a credential is either a token, or a user with a password"
        if len(self.token) > TOKEN_MAX_CHARS or len(self.user) > 256 or len(self.password) > PASSWORD_MAX_BYTES:
            return "the credential is too long"
        return ""
