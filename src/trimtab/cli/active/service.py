"""Talks to the service of an active-data process."""

from __future__ import annotations

import http.client
import json
from typing import Any, Final

TIMEOUT_S: Final = 600.0


class RefusedRequest(Exception):
    """The service cannot be reached or refused a request; the message says why."""


class ActiveService:
    """The service at an address."""

    def __init__(self, address: str) -> None:
        self._address = address.removeprefix("http://")

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

    def _ask(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        try:
            connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_S)
            connection.request(method, path, body)
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
            connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RefusedRequest(
                f"no active data at {self._address} ({error}); start it with: trimtab active start"
            ) from None
        if response.status != http.HTTPStatus.OK:
            pointer = f"\n{answer['pointer']}" if "pointer" in answer else ""
            raise RefusedRequest(f"{answer.get('error', response.reason)}{pointer}")
        return answer
