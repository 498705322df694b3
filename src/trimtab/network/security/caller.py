"""Who this process is when it calls a broker: how the connection is encrypted, and what proves who calls.

An identity file says it for people and programs:

    name = "ann"
    authority = "authority.pem"      # whose certificates are believed; without it nothing is encrypted
    certificate = "ann.pem"          # one of: a certificate with its key, a password, a token
    key = "ann.key"

The environment variable `TRIMTAB_AS` names the file, as does the option `--as` of the command line. Secrets may stand
in the file (`password`, `token`) or in files of their own (`password_file`, `token_file`); a token file is read for
every connection, so that a new token counts without a restart. A broker's process is that broker.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import ssl
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar, cast

import msgspec

from trimtab.network.links.address import Address
from trimtab.network.security.certificate_files import (
    AUTHORITY_FILE,
    CertificateFileError,
    WatchedFiles,
    client_context,
)
from trimtab.network.security.errors import IdentityFileError
from trimtab.protocol.frames import Hello
from trimtab.security.credentials import Credential

VARIABLE: Final = "TRIMTAB_AS"
HANDSHAKE_WITHIN_S: Final = 5.0
SHUTDOWN_WITHIN_S: Final = 1.0

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)


class IdentityFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who somebody is, as a file says it; file names in it are relative to it."""

    name: str
    authority: str = ""
    certificate: str = ""
    key: str = ""
    password: str = ""
    password_file: str = ""
    token: str = ""
    token_file: str = ""

    def __repr__(self) -> str:
        return f"IdentityFile(name={self.name!r}, ...)"

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("certificate and key go together")
        secrets = [each for each in ("password", "password_file", "token", "token_file") if getattr(self, each)]
        if len(secrets) > 1:
            raise ValueError(f"expected one of {' and '.join(secrets)}")
        if (self.certificate or secrets) and not self.authority:
            raise ValueError("a proof is sent over encrypted connections only; name the authority")


class Caller:
    """How this process calls."""

    def __init__(
        self, identity: IdentityFile | None = None, folder: Path = Path(), *, checks_host: bool = True
    ) -> None:
        self._identity = identity
        self._folder = folder
        self._context: WatchedFiles | None = None
        if identity is not None and identity.authority:
            authority = folder / identity.authority
            certificate = folder / identity.certificate if identity.certificate else None
            key = folder / identity.key if identity.key else None
            files = [path for path in (authority, certificate, key) if path is not None]
            self._context = WatchedFiles(
                files, lambda: client_context(authority, certificate, key, checks_host=checks_host)
            )

    @property
    def name(self) -> str:
        """Whose proof it has, empty if it has none."""
        identity = self._identity
        has_proof = identity is not None and (
            identity.certificate or identity.password or identity.password_file or identity.token or identity.token_file
        )
        return identity.name if identity is not None and has_proof else ""

    @property
    def is_encrypted(self) -> bool:
        """Whether connections are encrypted."""
        return self._context is not None

    @staticmethod
    def read(path: str | Path) -> Caller:
        """Who an identity file says; raises `IdentityFileError`."""
        file = Path(path)
        try:
            identity = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), IdentityFile)
            return Caller(identity, file.resolve().parent)
        except OSError as error:
            raise IdentityFileError(f"{path}: cannot be read: {error.strerror}") from None
        except CertificateFileError as error:
            raise IdentityFileError(str(error)) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValueError) as error:
            raise IdentityFileError(f"{path}: {error}") from None

    @staticmethod
    def of_broker(certificates: str, name: str) -> Caller:
        """A broker, by its certificate. Whom it calls must have a certificate of that name, wherever it is."""
        identity = IdentityFile(name=name, authority=AUTHORITY_FILE, certificate=f"{name}.pem", key=f"{name}.key")
        return Caller(identity, Path(certificates), checks_host=False)

    def credential(self) -> Credential | None:
        """What greetings carry besides the certificate; raises OSError if its file cannot be read."""
        identity = self._identity
        if identity is None:
            return None
        if identity.password or identity.password_file:
            return Credential(user=identity.name, password=identity.password or self._secret(identity.password_file))
        if identity.token or identity.token_file:
            return Credential(token=identity.token or self._secret(identity.token_file))
        return None

    def _secret(self, file: str) -> str:
        return (self._folder / file).read_text(encoding="utf-8").strip()

    async def dial(self, factory: Callable[[], ProtocolT], address: Address) -> tuple[asyncio.BaseTransport, ProtocolT]:
        """Make a connection; raises OSError."""
        loop = asyncio.get_running_loop()
        if self._context is None:
            return await loop.create_connection(factory, address.host, address.port)
        self._context.look()
        try:
            return await loop.create_connection(
                factory,
                address.host,
                address.port,
                ssl=cast(ssl.SSLContext, self._context.latest),
                server_hostname=address.host,
                ssl_handshake_timeout=HANDSHAKE_WITHIN_S,
                ssl_shutdown_timeout=SHUTDOWN_WITHIN_S,
            )
        except ssl.SSLCertVerificationError as error:
            raise ConnectionError(f"its certificate is not believed: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise ConnectionError(f"no encrypted connection: {error.reason or error}") from None


_PLAIN: Final = Caller()
_known: dict[str, Caller] = {}
"""By identity file, and under an empty name who this process has become."""


def own_name(caller: Caller) -> str:
    """A name that no other client has and that belongs to the identity of whoever calls."""
    return f"{caller.name}/{secrets.token_hex(6)}" if caller.name else f"client-{secrets.token_hex(6)}"


def with_credential(hello: Hello, caller: Caller) -> Hello:
    """A greeting that proves who calls; raises OSError if the proof cannot be read."""
    credential = caller.credential()
    return hello if credential is None else msgspec.structs.replace(hello, credential=credential)


def become(caller: Caller) -> None:
    """From now on this process calls so, unless a call says otherwise."""
    _known[""] = caller


def default_to(identity_file: str) -> None:
    """Call as this identity file says, where nothing else says it."""
    if not os.environ.get(VARIABLE) and Path(identity_file).exists():
        os.environ[VARIABLE] = identity_file


def commander(operator: str) -> Caller:
    """Who asks the brokers of a network: its operator, unless this process is somebody already."""
    who = present()
    return Caller.read(operator) if who is _PLAIN and operator and Path(operator).exists() else who


def present() -> Caller:
    """Who this process is; raises `IdentityFileError`."""
    if "" in _known:
        return _known[""]
    path = os.environ.get(VARIABLE, "")
    if not path:
        return _PLAIN
    if path not in _known:
        _known[path] = Caller.read(path)
    return _known[path]
