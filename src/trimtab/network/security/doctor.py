"""Looks through the configuration of a network for what docs/security.md warns of."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from trimtab.network.network_plan import NetworkPlan
from trimtab.network.security.certificate_files import CertificateFileError, client_context, server_context
from trimtab.network.security.certificate_making import AUTHORITY_KEY_FILE
from trimtab.network.security.settings import is_loopback
from trimtab.security.identities import ANONYMOUS
from trimtab.security.passwords import read_passwords
from trimtab.security.permissions import Permissions, PermissionsError, read_permissions
from trimtab.security.tokens import TokenKeys

Level: TypeAlias = Literal["ok", "warning", "wrong"]

RENEW_BEFORE_S: Final = 30 * 86_400.0


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    level: Level
    text: str


def examine(plan: NetworkPlan, wall_s: float) -> Iterator[Finding]:
    """Everything that is right, doubtful or wrong with a network's security, as far as this host can see."""
    security = plan.security
    exposed = [entry.name for entry in plan.brokers if not is_loopback(entry.listen.host)]
    if not security.is_on:
        if exposed:
            yield Finding("wrong", f"{', '.join(exposed)}: whoever reaches them may do and read everything (insecure)")
        else:
            yield Finding("warning", "brokers listen on loopback only, and every user of this host may do everything")
        return
    yield Finding("ok", "every connection is encrypted, and brokers prove who they are")
    yield from _certificates(plan, Path(security.certificates), wall_s)
    yield from _permissions(security.permissions, security.anonymous)
    yield from _secrets(security.passwords, security.tokens)
    if plan.options.back_end and not plan.options.back_end.startswith("https://"):
        yield Finding("warning", f"results of channels come unencrypted from {plan.options.back_end}")
    if plan.protection is None:
        yield Finding("warning", "no section [protection]: one client may send as much as it likes")


def _certificates(plan: NetworkPlan, folder: Path, wall_s: float) -> Iterator[Finding]:
    for entry in plan.brokers:
        if not (folder / f"{entry.name}.pem").exists():
            yield Finding("warning", f"{entry.name} has no certificate in {folder}: it cannot run on this host")
            continue
        try:
            server_context(folder, entry.name)
        except CertificateFileError as error:
            yield Finding("wrong", str(error))
            continue
        yield from _expiry(folder / f"{entry.name}.pem", entry.name, wall_s)
    try:
        client_context(folder / "authority.pem")
    except CertificateFileError as error:
        yield Finding("wrong", str(error))
    if (folder / AUTHORITY_KEY_FILE).exists():
        yield Finding("warning", f"{folder / AUTHORITY_KEY_FILE}: who reads it can be anybody; keep it elsewhere")
    for path in sorted(folder.glob("*.key")):
        yield from _privacy(path)


def _expiry(path: Path, name: str, wall_s: float) -> Iterator[Finding]:
    try:
        from cryptography import x509
    except ImportError:
        return
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    left_s = certificate.not_valid_after_utc.timestamp() - wall_s
    if left_s <= 0:
        yield Finding("wrong", f"the certificate of {name} has expired; trimtab certs init --renew makes new ones")
    elif left_s < RENEW_BEFORE_S:
        yield Finding("warning", f"the certificate of {name} expires in {left_s / 86_400:.0f} days")
    else:
        yield Finding("ok", f"the certificate of {name} is valid for {left_s / 86_400:.0f} days")


def _privacy(path: Path) -> Iterator[Finding]:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return
    if mode & 0o077:
        yield Finding("wrong", f"{path} can be read by others (mode {mode:o}); chmod 600 {path}")


def _permissions(file: str, anonymous: bool) -> Iterator[Finding]:
    if not file:
        yield Finding("warning", "no permissions: whoever has a certificate of the authority may do everything")
        return
    try:
        permissions = read_permissions(Path(file).read_text(encoding="utf-8"), file)
    except OSError as error:
        yield Finding("wrong", f"{file}: cannot be read: {error.strerror}")
        return
    except (PermissionsError, UnicodeDecodeError) as error:
        yield Finding("wrong", str(error))
        return
    yield Finding("ok", f"{len(permissions.roles)} roles, {len(permissions.identities)} identities or patterns of them")
    yield from _doubtful_roles(permissions, anonymous)


def _doubtful_roles(permissions: Permissions, anonymous: bool) -> Iterator[Finding]:
    for name, roles in permissions.identities.items():
        for role in (permissions.roles[each] for each in roles):
            everybody = name == "*" or (name == ANONYMOUS and anonymous)
            if everybody and role.admin:
                yield Finding("wrong", f"{name!r} may {', '.join(role.admin)} as administrators do")
            if everybody and "*" in (*role.publish, *role.subscribe):
                yield Finding("warning", f"{name!r} may publish or read everything")
    if ANONYMOUS in permissions.identities and not anonymous:
        yield Finding(
            "warning", "the permissions name anonymous, and the network file does not allow anonymous clients"
        )
    used = {role for roles in permissions.identities.values() for role in roles}
    for name in permissions.roles:
        if name not in used:
            yield Finding("warning", f"nobody has the role {name} (unless tokens name it)")


def _secrets(passwords: str, tokens: str) -> Iterator[Finding]:
    for file, what in ((passwords, "passwords"), (tokens, "keys of tokens")):
        if not file:
            continue
        try:
            text = Path(file).read_text(encoding="utf-8")
            count = len(read_passwords(text, file)) if what == "passwords" else TokenKeys.read(text).count
        except OSError as error:
            yield Finding("wrong", f"{file}: cannot be read: {error.strerror}")
            continue
        except (ValueError, ssl.SSLError) as error:
            yield Finding("wrong", f"{file}: {error}")
            continue
        yield Finding("ok", f"{count} {what}")
        yield from _privacy(Path(file))
