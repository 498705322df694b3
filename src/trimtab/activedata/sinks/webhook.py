"""Results that are posted to an address: signed, retried, and put aside if they are refused.

Requests are signed as the specification "Standard Webhooks" says: `webhook-id`, `webhook-timestamp` and
`webhook-signature: v1,BASE64`, an HMAC-SHA256 over `id.timestamp.body`. A receiver may get the same results twice,
after a timeout for example; their ids tell.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import logging
import ssl
import threading
import time
from typing import Final
from urllib.parse import urlsplit

import msgspec

from trimtab.activedata.definitions.fields import ValueMistake
from trimtab.activedata.sinks.result_cursor import ResultCursor, SunkResult
from trimtab.activedata.storage.dead_letters import DeadLetter, DeadLetters

logger = logging.getLogger(__name__)

AT_ONCE_COUNT: Final = 100
"""Results in one request."""

ANSWER_WITHIN_S: Final = 10.0
LOOK_UP_EVERY_S: Final = 0.25
RETRY_MIN_S: Final = 0.5
RETRY_MAX_S: Final = 60.0
ATTEMPTS_MAX_COUNT: Final = 8
"""A result that the receiver fails on so often, while it answers, is put aside. One that is away is called again."""

_AGAIN: Final = frozenset({408, 425, 429})
_SECRET_PREFIX: Final = "whsec_"


class WebhookBody(msgspec.Struct, frozen=True):
    """What is posted."""

    broker: str
    results: list[SunkResult]


def check_url(url: str) -> None:
    """Refuse an address that cannot be called."""
    parts = urlsplit(url)
    try:
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_right = False
    if not is_right or parts.username or parts.fragment or any(char.isspace() for char in url):
        raise ValueMistake(f"{url!r} is no address that can be called: expected https://HOST[:PORT]/PATH")


def signature(secret: str, message_id: str, timestamp_s: int, body: bytes) -> str:
    """What stands in `webhook-signature`.

    >>> signature("whsec_c2VjcmV0", "m1", 1, b"{}")
    'v1,k0V+nUcNucZ1ZZ336clVYZH0ibBBudJfvCDTRZZ9COA='
    """
    if secret.startswith(_SECRET_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
        except binascii.Error:
            key = secret.encode()
    else:
        key = secret.encode()
    digest = hmac.new(key, f"{message_id}.{timestamp_s}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


class _Refused(Exception):
    """The receiver refuses what was posted, and would again."""


class _Failed(Exception):
    """The receiver answered that it failed; it may not the next time."""


class Webhook:
    """Posts one broker's results."""

    def __init__(self, cursor: ResultCursor, dead_letters: DeadLetters) -> None:
        self.cursor = cursor
        self._dead_letters = dead_letters
        self._url = urlsplit(cursor.entry.address)
        self._connection: http.client.HTTPConnection | None = None
        self.sent_count = 0
        self.error: str | None = None

    def work(self, stop: threading.Event) -> None:
        """Post until told to stop."""
        try:
            while not stop.is_set():
                results, position = self.cursor.next(LOOK_UP_EVERY_S, AT_ONCE_COUNT)
                if results and not self._deliver(results, stop):
                    return
                if position != self.cursor.position:
                    self.cursor.passed_on(position, noted=bool(results))
        finally:
            self._hang_up()

    def _deliver(self, results: list[SunkResult], stop: threading.Event) -> bool:
        """Post results until they are taken or put aside; False if it was told to stop before."""
        attempts_count = 0
        wait_s = RETRY_MIN_S
        while True:
            try:
                self._post(results)
                self.sent_count += len(results)
                self.error = None
                return True
            except _Refused as error:
                return self._apart(results, str(error), stop)
            except _Failed as error:
                attempts_count += 1
                self.error = str(error)
                if attempts_count >= ATTEMPTS_MAX_COUNT:
                    return self._apart(results, str(error), stop)
            except (OSError, http.client.HTTPException, ssl.SSLError) as error:
                self._hang_up()
                self.error = f"{self.cursor.entry.address}: {error}"
            logger.info("broker %s: %s", self.cursor.entry.name, self.error)
            if stop.wait(wait_s):
                return False
            wait_s = min(RETRY_MAX_S, 2 * wait_s)

    def _apart(self, results: list[SunkResult], reason: str, stop: threading.Event) -> bool:
        """Half of the results at a time, until the one that is not taken is alone and becomes a dead letter."""
        if len(results) == 1:
            each = results[0]
            letter = DeadLetter(
                self.cursor.entry.name, "webhook", each.position, reason, msgspec.json.encode(each).decode()
            )
            self._dead_letters.add([letter], {f"webhook {self.cursor.entry.id}": each.position})
            self.error = reason
            return True
        half = len(results) // 2
        return self._deliver(results[:half], stop) and self._deliver(results[half:], stop)

    def _post(self, results: list[SunkResult]) -> None:
        body = msgspec.json.encode(WebhookBody(self.cursor.entry.name, results))
        message_id = f"{self.cursor.entry.name}-{results[0].position}-{results[-1].position}"
        now_s = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "trimtab",
            "webhook-id": message_id,
            "webhook-timestamp": str(now_s),
            "webhook-signature": signature(self.cursor.note.secret, message_id, now_s, body),
        }
        connection = self._connection or self._call()
        self._connection = connection
        path = self._url.path or "/"
        connection.request("POST", f"{path}?{self._url.query}" if self._url.query else path, body, headers)
        with connection.getresponse() as response:
            said = response.read(2_000)
            code = response.status
            if response.will_close:
                self._hang_up()
        if 200 <= code < 300:
            return
        reason = f"{self.cursor.entry.address} answered {code}: {said[:200].decode(errors='replace')}"
        raise _Failed(reason) if code >= 500 or code in _AGAIN else _Refused(reason)

    def _call(self) -> http.client.HTTPConnection:
        host = self._url.hostname or ""
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(
                host, self._url.port, timeout=ANSWER_WITHIN_S, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(host, self._url.port, timeout=ANSWER_WITHIN_S)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def checked_secret(given: str | None, made: str) -> str:
    """The secret to sign with: the given one, which must be long enough, or a new one."""
    if given is None:
        return made
    if len(given) < 16:
        raise ValueMistake("a secret has at least 16 characters")
    return given
