"""A small authority, and certificates for the brokers and the operator of one network, for people who have none.

Certificates are short: elliptic curves, one authority, no intermediate ones. Those of brokers name the hosts at which
they are found, and may serve and call; those of others may only call, so that nobody can pass for a broker with one.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.network.security.certificate_files import AUTHORITY_FILE, CertificateFileError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_KEY_FILE: Final = "authority.key"
VALID_DAYS_COUNT: Final = 397
AUTHORITY_VALID_DAYS_COUNT: Final = 3_650
_BEGINS_BEFORE: Final = datetime.timedelta(minutes=5)
"""Clocks of different hosts differ by a little."""


class Wanted(msgspec.Struct, frozen=True):
    """A certificate that is to be made: the identity, and for brokers the hosts at which they are found."""

    name: str
    hosts: tuple[str, ...] = ()


class Authority:
    """Signs certificates; it stands in a folder as `authority.pem` and `authority.key`."""

    def __init__(self, certificate: x509.Certificate, key: EllipticCurvePrivateKey, folder: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._folder = folder

    @staticmethod
    def in_folder(folder: Path, network: str) -> Authority:
        """The authority of a folder, a new one if there is none; raises `CertificateFileError`."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (folder / AUTHORITY_FILE).exists():
            return Authority._read(folder)
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"authority of {network}"[:64])
        builder = _builder(name, name, key, AUTHORITY_VALID_DAYS_COUNT)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = _signed(builder.add_extension(identifier, critical=False), key)
        authority = Authority(certificate, key, folder)
        authority._write("authority", certificate, key)
        return authority

    @staticmethod
    def _read(folder: Path) -> Authority:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            certificate = x509.load_pem_x509_certificate((folder / AUTHORITY_FILE).read_bytes())
            key = load_pem_private_key((folder / AUTHORITY_KEY_FILE).read_bytes(), None)
        except FileNotFoundError:
            raise CertificateFileError(
                f"{folder}: there is an authority and not its key; bring {AUTHORITY_KEY_FILE} to make certificates"
            ) from None
        except (OSError, ValueError, TypeError) as error:
            raise CertificateFileError(f"{folder}: the authority cannot be read: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise CertificateFileError(f"{folder}: the authority's key is not one that this program makes")
        return Authority(certificate, key, folder)

    def make(self, wanted: Wanted) -> None:
        """Make a certificate with its key, as `NAME.pem` and `NAME.key`."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(wanted.name), self._certificate.subject, key, VALID_DAYS_COUNT)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if wanted.hosts:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            hosts = x509.SubjectAlternativeName(_general_names(wanted.hosts))
            builder = builder.add_extension(hosts, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        issuer = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer)
        builder = builder.add_extension(identifier, critical=False)
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        self._write(wanted.name, _signed(builder.add_extension(own, critical=False), self._key), key)

    def _write(self, name: str, certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_private(self._folder / f"{name}.key", text)
        write_private(self._folder / f"{name}.pem", certificate.public_bytes(Encoding.PEM), mode=0o644)


def write_private(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write a file that nobody else may read, all of it or nothing."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def identity_file(name: str) -> bytes:
    """The identity file of somebody who has a certificate in the same folder."""
    lines = [
        f'name = "{name}"',
        f'authority = "{AUTHORITY_FILE}"',
        f'certificate = "{name}.pem"',
        f'key = "{name}.key"',
    ]
    return "\n".join((*lines, "")).encode()


def _general_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    from cryptography import x509

    found: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            found.append(x509.DNSName(host))
    return found


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days_count: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEGINS_BEFORE)
        .not_valid_after(now + datetime.timedelta(days=days_count))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())
