"""Talks to the service of an active-data process."""

from __future__ import annotations

import http.client
import json
import os
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from trimtab.cli.input_lines import refuse

AtOption = Annotated[str, typer.Option("--at", metavar="HOST:PORT", help="Where the active-data process listens.")]
TokenOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="The service's token; otherwise TRIMTAB_TOKEN, if it is set."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

LISTEN: Final = "127.0.0.1:7500"
TIMEOUT_S: Final = 600.0
TOKEN_VARIABLE: Final = "TRIMTAB_TOKEN"


class RefusedRequest(Exception):
    """The service cannot be reached or refused a request; the message says why."""


def token_from(file: Path | None) -> str | None:
    """The token in a file, otherwise in the environment; None if there is none."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"{file}: {error}")


class ActiveService:
    """The service at an address."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self._address = address.removeprefix("http://").rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def statements(self, text: str) -> list[dict[str, Any]]:
        """Run statements and give their answers."""
        found: list[dict[str, Any]] = self._ask("POST", "/statements", json.dumps({"text": text}).encode())["answers"]
        return found

    def feed(self, name: str, lines: bytes) -> dict[str, int]:
        """Give JSON lines to a feed."""
        found: dict[str, int] = self._ask("POST", f"/feeds/{name}", lines)
        return found

    def status(self) -> dict[str, Any]:
        """What the process does."""
        return self._ask("GET", "/status", b"")

    def executions(self, limit: int) -> list[dict[str, Any]]:
        """The last executions of channels, newest first."""
        found: list[dict[str, Any]] = self._ask("GET", f"/executions?limit={limit}", b"")["executions"]
        return found

    def _ask(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        try:
            connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_S)
            connection.request(method, path, body, self._headers)
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
            connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise RefusedRequest(
                f"no active data at {self._address} ({reason}); start it with: trimtab active start"
            ) from None
        if response.status != http.HTTPStatus.OK:
            pointer = f"\n{answer['pointer']}" if "pointer" in answer else ""
            raise RefusedRequest(f"{answer.get('error', response.reason)}{pointer}")
        return answer
