"""Certificates as files: contexts for TLS that are made from them, and made again when they change.

A folder holds `authority.pem`, and `NAME.pem` (the certificate, with those between it and the authority) and `NAME.key`
of each broker. What is read again counts for new connections; one that stands keeps what it was made with. Files that
cannot be read do not replace those that could.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from trimtab.network.security.errors import SecurityFileError

AUTHORITY_FILE: Final = "authority.pem"

log = logging.getLogger("trimtab.security")

Made = TypeVar("Made")


class CertificateFileError(SecurityFileError):
    """Certificates that cannot be used; the message names the file and what is wrong."""


class WatchedFiles:
    """Something that is made from files, and made again when they have changed.

    `latest` looks at the files no more often than it is asked to by `look`.
    """

    def __init__(self, files: Sequence[Path], make: Callable[[], Made]) -> None:
        """Make it; raises what `make` raises."""
        self._files = tuple(files)
        self._make = make
        self._seen = self._stamp()
        self._latest = make()

    @property
    def latest(self) -> object:
        """What was made last."""
        return self._latest

    def look(self) -> bool:
        """Make it again if the files have changed; whether it was. What cannot be made is logged."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            self._latest = self._make()
        except (OSError, ValueError) as error:
            log.error("what was read before goes on: %s", error)
            return False
        log.info("read again: %s", ", ".join(path.name for path in self._files))
        return True

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        stamps: list[tuple[int, int, int]] = []
        for path in self._files:
            try:
                found = path.stat()
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
            except OSError:
                stamps.append((0, 0, 0))
        return tuple(stamps)


def server_context(folder: Path, name: str) -> ssl.SSLContext:
    """For those who call a broker; they may show certificates of the same authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _prepare(context, folder / AUTHORITY_FILE, folder / f"{name}.pem", folder / f"{name}.key")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    return context


def client_context(
    authority: Path, certificate: Path | None = None, key: Path | None = None, *, checks_host: bool = True
) -> ssl.SSLContext:
    """For whoever calls; with `checks_host` the broker's certificate must name the host that is called."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_host
    _prepare(context, authority, certificate, key)
    return context


def broker_files(folder: Path, name: str) -> tuple[Path, ...]:
    """The files of a broker in a folder."""
    return (folder / AUTHORITY_FILE, folder / f"{name}.pem", folder / f"{name}.key")


def _prepare(context: ssl.SSLContext, authority: Path, certificate: Path | None, key: Path | None) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    path = authority
    try:
        context.load_verify_locations(authority)
        if certificate is not None:
            path = certificate
            certificate.open("rb").close()
            if key is not None:
                path = key
                key.open("rb").close()
            context.load_cert_chain(certificate, key, password=_no_password)
    except FileNotFoundError:
        raise CertificateFileError(f"{path}: there is no such file; trimtab certs init makes certificates") from None
    except ssl.SSLError as error:
        raise CertificateFileError(f"{path}: not usable: {error.reason or 'no certificate, or not its key'}") from None
    except OSError as error:
        raise CertificateFileError(f"{path}: cannot be read: {error.strerror}") from None


def _no_password() -> str:
    raise CertificateFileError("a key with a passphrase: processes that start by themselves cannot ask for it")
