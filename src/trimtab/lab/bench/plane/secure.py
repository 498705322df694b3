"""Trimtab with encrypted connections, and with permissions for everybody, beside Trimtab without, in one run."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from trimtab.lab.bench.plane.systems import ANSWER_WITHIN_S, LoadPublisher, LoadSubscriber, PlaneLoad
from trimtab.lab.bench.plane.trimtab import TrimtabSystem, open_publisher, open_subscriber
from trimtab.network.admin.local_network import Network, free_ports
from trimtab.network.security.caller import Caller, IdentityFile
from trimtab.network.security.certificate_making import Authority, Wanted

INSTALL: Final = "pip install 'trimtab[secure]'"

_PERMISSIONS: Final = """
[roles.load]
publish = ["symbol IS NOT NULL AND class = 'STOCK'"]
subscribe = ["*"]
mode = "narrow"

[roles.operator]
admin = ["read"]

[identities]
"publisher" = ["load"]
"sink-*" = ["load"]
"operator" = ["operator"]
"""


class SecureTrimtabSystem(TrimtabSystem):
    """One broker process, whose clients prove who they are by certificates."""

    def __init__(self, *, has_permissions: bool) -> None:
        self.name = "trimtab with permissions" if has_permissions else "trimtab with TLS"
        self._folder = tempfile.TemporaryDirectory(prefix="trimtab-")
        folder = self._certificates = Path(self._folder.name)
        self._authority = Authority.in_folder(folder, "bench")
        self._authority.make(Wanted("B1", ("127.0.0.1",)))
        self._authority.make(Wanted("operator"))
        (folder / "operator.toml").write_text(_identity_text("operator"), encoding="utf-8")
        (folder / "permissions.toml").write_text(_PERMISSIONS, encoding="utf-8")
        permissions = 'permissions = "permissions.toml"\n' if has_permissions else ""
        (folder / "network.toml").write_text(
            f'[[broker]]\nname = "B1"\nlisten = "127.0.0.1:{free_ports(1)[0]}"\n'
            f'[security]\ncertificates = "."\noperator = "operator.toml"\n{permissions}',
            encoding="utf-8",
        )
        self._network = Network.from_file(folder / "network.toml")

    def stop(self) -> None:
        """End the broker."""
        super().stop()
        self._folder.cleanup()

    def _caller(self, name: str) -> Caller:
        if not (self._certificates / f"{name}.pem").exists():
            self._authority.make(Wanted(name))
        identity = IdentityFile(name=name, authority="authority.pem", certificate=f"{name}.pem", key=f"{name}.key")
        return Caller(identity, self._certificates)

    async def open(self, load: PlaneLoad) -> tuple[LoadPublisher, Sequence[LoadSubscriber]]:
        """Connect a publisher and the subscribers, whose subscriptions are then in force."""
        subscribers = [
            await open_subscriber(self.address, name, filters, self._caller(name))
            for name, filters in ((f"sink-{number}", filters) for number, filters in enumerate(load.filters))
        ]
        async with asyncio.timeout(ANSWER_WITHIN_S):
            return await open_publisher(self.address, load, self._caller("publisher")), subscribers


def _identity_text(name: str) -> str:
    return f'name = "{name}"\nauthority = "authority.pem"\ncertificate = "{name}.pem"\nkey = "{name}.key"\n'
