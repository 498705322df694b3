"""Who may ask a service over HTTP: checks of Host, Origin and a token, in front of any ASGI application.

A browser on this machine is made to ask by any page that its user looks at. Such a request names a foreign Origin, or,
when the page has pointed its own name at this machine, a foreign Host; both are refused. A service that is reached from
other machines asks everybody for a token.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from trimtab.activedata.errors import ActiveDataError

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN_MIN_CHARS: Final = 16
TOKEN_VARIABLE: Final = "TRIMTAB_TOKEN"
"""The environment variable that names a token where no file does."""


class AccessError(ActiveDataError):
    """A service would be open to everybody."""


class AccessRules(msgspec.Struct, frozen=True):
    """What a request must bring: a token if there is one; a Host that is an address, `localhost` or one of these names.

    A request with an Origin must come from this service's own pages or from one of `origins` (`https://example.org`).
    """

    token: str | None = None
    host_names: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    def refusal(self, headers: dict[bytes, bytes]) -> tuple[HTTPStatus, str] | None:
        """Why a request is refused, None if it is not.

        >>> rules = AccessRules()
        >>> rules.refusal({b"host": b"127.0.0.1:7500"})
        >>> rules.refusal({b"host": b"evil.example"})
        (<HTTPStatus.MISDIRECTED_REQUEST: 421>, "this service is not called 'evil.example'")
        >>> rules.refusal({b"host": b"localhost:1", b"origin": b"http://evil.example"})[1]
        "requests from 'http://evil.example' are not allowed"
        """
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._is_own(host):
            return HTTPStatus.MISDIRECTED_REQUEST, f"this service is not called {host!r}"
        origin = headers.get(b"origin")
        if origin is not None:
            text = origin.decode("latin-1").lower()
            if text not in self.origins and urlsplit(text).netloc != host:
                return HTTPStatus.FORBIDDEN, f"requests from {text!r} are not allowed"
        if headers.get(b"sec-fetch-site") == b"cross-site" and origin is None:
            return HTTPStatus.FORBIDDEN, "requests from other sites are not allowed"
        if self.token is not None and not self._is_token(headers.get(b"authorization", b"")):
            return HTTPStatus.UNAUTHORIZED, "a token is needed: Authorization: Bearer TOKEN"
        return None

    def _is_own(self, host: str) -> bool:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name in self.host_names or is_address(name)

    def _is_token(self, said: bytes) -> bool:
        scheme, _, given = said.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), (self.token or "").encode())


def is_address(name: str) -> bool:
    """Whether a name is the number of a host, which no page can point elsewhere."""
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host.partition("%")[0]).is_loopback)


def rules_for(host: str, token: str | None, host_names: Iterable[str] = (), origins: Iterable[str] = ()) -> AccessRules:
    """The rules for a service that listens at a host; elsewhere than on the loopback address it needs a token."""
    if token is None and not is_loopback(host):
        raise AccessError(
            f"a service at {host} can be reached from other machines and needs a token: --token-file FILE, "
            f"or {TOKEN_VARIABLE} in the environment"
        )
    if token is not None and len(token) < TOKEN_MIN_CHARS:
        raise AccessError(f"a token has at least {TOKEN_MIN_CHARS} characters; this would be one: {new_token()}")
    return AccessRules(token, frozenset(each.lower() for each in (host, *host_names)), frozenset(origins))


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(24)


class Guarded:
    """An ASGI application behind rules."""

    def __init__(self, application: Application, rules: AccessRules) -> None:
        self._application = application
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer that it is refused."""
        if scope["type"] == "http":
            refusal = self._rules.refusal({name.lower(): value for name, value in scope["headers"]})
            if refusal is not None:
                await _refuse(send, *refusal)
                return
        await self._application(scope, receive, send)


async def _refuse(send: Send, code: HTTPStatus, reason: str) -> None:
    body = msgspec.json.encode({"error": reason})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers.append((b"connection", b"close"))  # its body is not read
    if code == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": int(code), "headers": headers})
    await send({"type": "http.response.body", "body": body})
