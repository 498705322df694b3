"""A network of two brokers that asks who you are, with certificates, passwords and tokens of several people."""

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jwt

from trimtab.network.admin.local_network import Network, free_ports
from trimtab.network.security.caller import Caller, IdentityFile
from trimtab.network.security.certificate_making import Authority, Wanted
from trimtab.security.passwords import PasswordHash

SECRET = b"0123456789abcdef0123456789abcdef"
PASSWORD = "correct horse battery"

PERMISSIONS = """
[roles.citizen]
publish = ["class = 'REPORT' AND owner = '${name}'"]
subscribe = ["class = 'ALERT'", "class = 'REPORT' AND owner = '${name}'"]

[roles.crew]
subscribe = ["class = 'REPORT' AND confidential = false"]
mode = "narrow"

[roles.monitor]
admin = ["read"]

[roles.operator]
publish = ["*"]
subscribe = ["*"]
channels = ["*"]
admin = ["read", "change"]

[roles.visitor]
subscribe = ["class = 'ALERT'"]

[identities]
"ann" = ["citizen"]
"bob" = ["citizen"]
"crew" = ["crew"]
"monitor" = ["monitor"]
"operator" = ["operator"]
"anonymous" = ["visitor"]
"""


class SecureNetwork:
    """Brokers B1 and B2, linked, and everything that callers need."""

    def __init__(self, folder: Path, more: str = "", *, anonymous: bool = False) -> None:
        self.folder = folder
        self.certificates = folder / "certs"
        self.ports = free_ports(2)
        authority = Authority.in_folder(self.certificates, "test")
        for name in ("B1", "B2"):
            authority.make(Wanted(name, ("127.0.0.1",)))
        for name in ("ann", "bob", "crew", "monitor", "operator", "eve", "B3"):
            authority.make(Wanted(name))
        self.other_certificates = folder / "other"
        stranger = Authority.in_folder(self.other_certificates, "others")
        for name in ("operator", "B1"):
            stranger.make(Wanted(name, ("127.0.0.1",)))
        self.permissions = folder / "permissions.toml"
        self.permissions.write_text(PERMISSIONS)
        key = json.loads(jwt.algorithms.HMACAlgorithm.to_jwk(SECRET))
        (folder / "keys.json").write_text(json.dumps({"keys": [{**key, "alg": "HS256", "kid": "1"}]}))
        self.passwords = folder / "passwords.txt"
        self.passwords.write_text(f"ann:{PasswordHash.of(PASSWORD, secrets.token_bytes(16))}\n")
        self.file = folder / "net.toml"
        self.file.write_text(
            f"""
            [[broker]]
            name = "B1"
            listen = "127.0.0.1:{self.ports[0]}"

            [[broker]]
            name = "B2"
            listen = "127.0.0.1:{self.ports[1]}"

            [[link]]
            between = ["B1", "B2"]

            [security]
            certificates = "certs"
            permissions = "permissions.toml"
            passwords = "passwords.txt"
            tokens = "keys.json"
            anonymous = {"true" if anonymous else "false"}
            operator = "certs/operator.toml"
            {more}
            """
        )
        (self.certificates / "operator.toml").write_text(
            'name = "operator"\nauthority = "authority.pem"\ncertificate = "operator.pem"\nkey = "operator.key"\n'
        )

    @contextmanager
    def running(self) -> Iterator[Network]:
        """All brokers as processes."""
        network = Network.from_file(self.file)
        network.start()
        try:
            yield network
        finally:
            network.stop()

    def certificate(self, name: str) -> Caller:
        """Somebody with a certificate of this network's authority."""
        identity = IdentityFile(name=name, authority="authority.pem", certificate=f"{name}.pem", key=f"{name}.key")
        return Caller(identity, self.certificates)

    def stranger(self, name: str) -> Caller:
        """Somebody with a certificate of another authority, who believes our brokers all the same."""
        authority = str(self.certificates / "authority.pem")
        identity = IdentityFile(name=name, authority=authority, certificate=f"{name}.pem", key=f"{name}.key")
        return Caller(identity, self.other_certificates)

    def nobody(self) -> Caller:
        """Somebody who believes our brokers and proves nothing."""
        return Caller(IdentityFile(name="x", authority="authority.pem"), self.certificates)

    def password(self, name: str, password: str) -> Caller:
        """Somebody with a password."""
        return Caller(IdentityFile(name=name, authority="authority.pem", password=password), self.certificates)

    def token(
        self, name: str, expires_in_s: float = 600, *, key: bytes = SECRET, roles: list[str] | None = None
    ) -> Caller:
        """Somebody with a token."""
        claims = {"sub": name, "exp": time.time() + expires_in_s, "roles": roles or []}
        text = jwt.encode(claims, key, "HS256", headers={"kid": "1"})
        return Caller(IdentityFile(name=name, authority="authority.pem", token=text), self.certificates)

    def identity_file(self, name: str, text: str = "") -> Path:
        """An identity file in the folder of certificates."""
        path = self.certificates / f"{name}.toml"
        proof = text or f'certificate = "{name}.pem"\nkey = "{name}.key"'
        path.write_text(f'name = "{name}"\nauthority = "authority.pem"\n{proof}\n')
        return path
