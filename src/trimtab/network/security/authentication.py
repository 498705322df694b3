"""Who somebody is who has connected: certificates, tokens and passwords against the files of the operator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from trimtab.network.security.certificate_files import WatchedFiles
from trimtab.network.security.settings import LimitSettings, SecuritySettings
from trimtab.security.credentials import Credential
from trimtab.security.identities import ANONYMOUS, Identity, IdentityError, from_certificate
from trimtab.security.passwords import NOBODY, PasswordHash, read_passwords
from trimtab.security.permissions import Permissions, read_permissions
from trimtab.security.rights import ALL, Rights
from trimtab.security.tokens import TokenKeys


class Authentication:
    """The operator's files, read again when they change."""

    def __init__(self, settings: SecuritySettings, limits: LimitSettings, brokers: frozenset[str]) -> None:
        """Read the files; raises ValueError or OSError with what is wrong."""
        self._settings = settings
        self._brokers = brokers
        self._permissions = _watched(settings.permissions, read_permissions)
        self._passwords = _watched(settings.passwords, read_passwords)
        self._tokens = _watched(settings.tokens, lambda text, _: TokenKeys.read(text))
        self._checks = asyncio.Semaphore(limits.password_checks_max_count)
        self._waiting_max_count = limits.password_checks_waiting_max_count
        self._waiting_count = 0

    @property
    def permissions_file(self) -> str:
        """Where permissions come from."""
        return self._settings.permissions

    def look(self) -> bool:
        """Read files again that have changed; whether rights may have changed."""
        watched = [each for each in (self._permissions, self._passwords, self._tokens) if each is not None]
        changed = [each.look() for each in watched]
        return any(changed)

    def rights_of(self, identity: Identity) -> Rights:
        """What an identity may do."""
        if self._permissions is None:
            return ALL
        return cast(Permissions, self._permissions.latest).rights_of(identity)

    def of_certificate(self, certificate: Mapping[str, object]) -> Identity:
        """The identity of a verified certificate; raises `IdentityError`."""
        return from_certificate(certificate, self._brokers)

    def of_nobody(self) -> Identity | None:
        """The identity of whoever proves nothing, if that is allowed."""
        return Identity(ANONYMOUS, "anonymous") if self._settings.anonymous else None

    def is_known(self, identity: Identity) -> bool:
        """Whether a proof that was given once counts still."""
        if identity.proof == "password":
            return self._passwords is not None and identity.name in cast(Mapping[str, object], self._passwords.latest)
        return not identity.is_over(time.time())

    async def of_credential(self, credential: Credential) -> Identity:
        """The identity that a credential proves; raises `IdentityError`. A password takes a while."""
        if problem := credential.problem():
            raise IdentityError(problem)
        if credential.token:
            if self._tokens is None:
                raise IdentityError("tokens are not accepted here")
            return cast(TokenKeys, self._tokens.latest).identity(
                credential.token, self._settings.token_rules, time.time()
            )
        if self._passwords is None:
            raise IdentityError("passwords are not accepted here")
        if self._waiting_count >= self._waiting_max_count:
            raise IdentityError("too many passwords are being checked; try again")
        hash = cast(Mapping[str, PasswordHash], self._passwords.latest).get(credential.user, NOBODY)
        self._waiting_count += 1
        try:
            async with self._checks:
                fits = await asyncio.to_thread(hash.fits, credential.password)
        finally:
            self._waiting_count -= 1
        if not fits:
            raise IdentityError("the name or the password is wrong")
        return Identity(credential.user, "password")


def _watched(file: str, read: object) -> WatchedFiles | None:
    if not file:
        return None
    path = Path(file)

    def make() -> object:
        try:
            return read(path.read_text(encoding="utf-8"), path.name)  # type: ignore[operator]
        except OSError as error:
            raise ValueError(f"{path}: cannot be read: {error.strerror}") from None

    return WatchedFiles([path], make)
