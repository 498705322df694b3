"""The small JSON service of an active-data process, for brokers, feeds and the command line.

What it answers is written down in docs/active-data.md. Bad requests are told with 400 and what was wrong, unknown names
with 404, a disk that takes nothing more with 507: a record is acknowledged only when it is durable.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from trimtab.activedata.active import ActiveData
from trimtab.activedata.definitions.fields import Scalar, ValueMistake
from trimtab.activedata.errors import ActiveDataError, NotFoundError, StatementError, StorageError
from trimtab.activedata.service.status import status
from trimtab.activedata.storage.results import Result

logger = logging.getLogger(__name__)

BODY_MAX_BYTES: Final = 64 * 1024 * 1024
WAIT_MAX_S: Final = 60.0
NEWS_RESULTS_MAX_COUNT: Final = 500
NEWS_MAX_BYTES: Final = 256 * 1024
"""News bring so many results along, if they are not larger than this."""


class WantedSubscription(msgspec.Struct, frozen=True):
    """A back-end subscription that a broker declares."""

    channel: str
    arguments: dict[str, Scalar] = {}


class BrokerDeclaration(msgspec.Struct, frozen=True):
    """All back-end subscriptions that a broker wants; those that it has and does not name end."""

    subscriptions: list[WantedSubscription] = []
    address: str = ""


class WantedResults(msgspec.Struct, frozen=True):
    """Results of a subscription that a broker fetches: those after a position, at most so many."""

    id: int
    after: int = 0
    limit: int = 1_000


class ManyWantedResults(msgspec.Struct, frozen=True):
    """Results of several subscriptions, fetched at once."""

    fetches: list[WantedResults]


class _Request(msgspec.Struct, frozen=True):
    parts: tuple[str, ...]
    options: dict[str, str]
    body: bytes

    def number(self, name: str, default: float) -> float:
        try:
            return float(self.options.get(name, default))
        except ValueError:
            raise ValueMistake(f"{name} must be a number, and is {self.options[name]!r}") from None


class Service:
    """Serves one ActiveData object on a port until it is closed."""

    def __init__(self, active: ActiveData, host: str = "127.0.0.1", port: int = 0) -> None:
        self.active = active
        service = self

        class Handler(_Handler):
            answer = service.answer

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="service", daemon=True)
        self._is_closing = threading.Event()

    @property
    def port(self) -> int:
        """The port that is listened at."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Start to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop to answer."""
        self._is_closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, request: _Request) -> object:
        """What one request gets."""
        routes: list[tuple[str, tuple[str, ...], Callable[[_Request], object]]] = [
            ("GET", ("status",), self._status),
            ("POST", ("statements",), self._statements),
            ("POST", ("feeds", "*"), self._feed),
            ("PUT", ("brokers", "*"), self._declare),
            ("POST", ("brokers", "*", "subscriptions"), self._subscribe),
            ("DELETE", ("brokers", "*", "subscriptions", "*"), self._unsubscribe),
            ("GET", ("brokers", "*", "results"), self._news),
            ("GET", ("results", "*"), self._results),
            ("POST", ("results",), self._results_of_many),
        ]
        for wanted, pattern, answer in routes:
            if wanted == method and len(pattern) == len(request.parts):
                if all(part in ("*", given) for part, given in zip(pattern, request.parts, strict=True)):
                    return answer(request)
        raise NotFoundError(f"there is no {method} /{'/'.join(request.parts)} here")

    def _status(self, request: _Request) -> object:
        return status(self.active)

    def _statements(self, request: _Request) -> object:
        text = _body(request, dict[str, str]).get("text")
        if text is None:
            raise ValueMistake('expected {"text": "statements"}')
        return {"answers": self.active.run(text)}

    def _feed(self, request: _Request) -> object:
        return self.active.feed(request.parts[1], request.body)

    def _declare(self, request: _Request) -> object:
        """A broker registers and declares its whole set: what is new begins, what is missing ends, the rest stays."""
        declared = _body(request, BrokerDeclaration)
        broker = self.active.add_broker(request.parts[1], declared.address)
        self.active.catalog.broker_seen(broker.id, time.time())
        answers = [self._made_or_refused(each, broker.name) for each in declared.subscriptions]
        kept = {each["id"] for each in answers if "id" in each}
        for entry in self.active.catalog.subscriptions(broker_id=broker.id):
            if entry.id not in kept:
                self.active.unsubscribe(entry.id, broker.name)
        return {"subscriptions": answers}

    def _subscribe(self, request: _Request) -> object:
        return self._made(_body(request, WantedSubscription), self.active.catalog.broker(request.parts[1]).name)

    def _made(self, wanted: WantedSubscription, broker: str) -> dict[str, object]:
        """A subscription with its number and the position after which its results come."""
        made = self.active.subscribe_many(wanted.channel, [wanted.arguments], broker)[0]
        return {"id": made.id, "position": self.active.results_store.last_position}

    def _made_or_refused(self, wanted: WantedSubscription, broker: str) -> dict[str, object]:
        """The same, or why it cannot be: one wrong subscription does not keep the others from being made."""
        try:
            return self._made(wanted, broker)
        except (ValueMistake, NotFoundError) as error:
            return {"error": str(error)}

    def _unsubscribe(self, request: _Request) -> object:
        broker = self.active.catalog.broker(request.parts[1])
        number = _whole(request.parts[3])
        if number not in {each.id for each in self.active.catalog.subscriptions(broker_id=broker.id)}:
            raise NotFoundError(f"{broker.name} has no subscription {number}")
        self.active.unsubscribe(number, broker.name)
        return {}

    def _news(self, request: _Request) -> object:
        """Wait until the broker's subscriptions have new results."""
        broker = self.active.catalog.broker(request.parts[1])
        self.active.catalog.broker_seen(broker.id, time.time())
        after = int(request.number("after", 0))
        end_s = time.monotonic() + min(request.number("wait_s", 0.0), WAIT_MAX_S)
        results = self.active.results_store
        while True:
            position = results.last_position  # before who is asked for: what begins after that is told the next time
            mine = self.active.catalog.subscription_ids(broker.id)
            found = results.newest(mine, after)
            left_s = end_s - time.monotonic()
            if found or left_s <= 0 or self._is_closing.is_set():
                said = {str(key): value for key, value in found.items()}
                few = self._if_few(found, after)
                return {"position": max(position, after), "subscriptions": said, "results": few}
            self.active.wait(mine, after, min(1.0, left_s))

    def _if_few(self, found: dict[int, int], after: int) -> dict[str, list[dict[str, object]]]:
        """The results themselves, by subscription, where they are so few that to ask for them would take longer."""
        store = self.active.results_store
        if len(found) > NEWS_RESULTS_MAX_COUNT or not store.is_in_memory(after):
            return {}
        fetched = store.fetch_many(list(found), after, NEWS_RESULTS_MAX_COUNT + 1)
        told = [each for each in fetched if each.position <= found[each.subscription]]
        if len(fetched) > NEWS_RESULTS_MAX_COUNT or sum(len(bytes(each.payload)) for each in told) > NEWS_MAX_BYTES:
            return {}
        few: dict[str, list[dict[str, object]]] = {}
        for each in told:
            few.setdefault(str(each.subscription), []).append(_told(each))
        return few

    def _results(self, request: _Request) -> object:
        return self._fetched(
            WantedResults(
                _whole(request.parts[1]), int(request.number("after", 0)), int(request.number("limit", 1_000))
            )
        )

    def _results_of_many(self, request: _Request) -> object:
        """The results of several subscriptions; one that has ended has an error in place of them."""
        answers: list[object] = []
        for wanted in _body(request, ManyWantedResults).fetches:
            try:
                answers.append(self._fetched(wanted))
            except NotFoundError as error:
                answers.append({"error": str(error)})
        return {"answers": answers}

    def _fetched(self, wanted: WantedResults) -> dict[str, object]:
        return {"results": [_told(each) for each in self.active.results(wanted.id, wanted.after, wanted.limit)]}


def _told(result: Result) -> dict[str, object]:
    return {
        "position": result.position,
        "id": result.id,
        "values": result.payload,
        "executed_s": result.executed_us / 1e6,
    }


def _whole(text: str) -> int:
    if not text.isdigit():
        raise NotFoundError(f"there is no subscription {text!r}")
    return int(text)


def _body(request: _Request, kind: Any) -> Any:
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueMistake(f"the request's body: {error}") from None


class _Handler(BaseHTTPRequestHandler):
    """One connection: reads requests, and turns errors into answers."""

    protocol_version = "HTTP/1.1"
    server_version = "trimtab"
    wbufsize = -1  # an answer is one write: in two, the second waits until the first is acknowledged
    disable_nagle_algorithm = True
    timeout = 120
    answer: Callable[[str, _Request], object]

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def log_message(self, format: str, *args: object) -> None:
        logger.debug(format, *args)

    def _serve(self, method: str) -> None:
        try:
            length = int(self.headers.get("Content-Length") or 0)
            if length < 0 or length > BODY_MAX_BYTES:
                self.close_connection = True
                self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": f"more than {BODY_MAX_BYTES:,} bytes"})
                return
            url = urlsplit(self.path)
            parts = tuple(unquote(part) for part in url.path.split("/") if part)
            options = {name: values[-1] for name, values in parse_qs(url.query).items()}
            self._send(*self._answered(method, _Request(parts, options, self.rfile.read(length))))
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def _answered(self, method: str, request: _Request) -> tuple[HTTPStatus, object]:
        try:
            return HTTPStatus.OK, type(self).answer(method, request)
        except StatementError as error:
            told = {"error": str(error), "position": error.position, "pointer": error.pointer()}
            return HTTPStatus.BAD_REQUEST, told
        except ValueMistake as error:
            return HTTPStatus.BAD_REQUEST, {"error": str(error)}
        except NotFoundError as error:
            return HTTPStatus.NOT_FOUND, {"error": str(error)}
        except StorageError as error:
            return HTTPStatus.INSUFFICIENT_STORAGE, {"error": str(error)}
        except ActiveDataError as error:
            return HTTPStatus.CONFLICT, {"error": str(error)}
        except Exception as error:
            logger.exception("%s /%s", method, "/".join(request.parts))
            return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"}

    def _send(self, code: HTTPStatus, answer: object) -> None:
        try:
            data = msgspec.json.encode(answer)
        except TypeError:
            data = json.dumps(msgspec.to_builtins(answer), default=str).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()
