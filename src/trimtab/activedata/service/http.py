"""The service of an active-data process over HTTP, for brokers, feeds, programs and the command line.

What it answers is written down in docs/active-data.md. Bad requests are told with 400 and what was wrong, unknown names
with 404, a disk that takes nothing more with 507: a record is acknowledged only when it is durable. Waiting (for news,
in streams of events) takes no thread; everything else runs in a bounded number of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.active import ActiveData
from trimtab.activedata.definitions.fields import ValueMistake
from trimtab.activedata.errors import ActiveDataError, NotFoundError, StatementError, StorageError
from trimtab.activedata.service.access import AccessRules, Guarded, rules_for
from trimtab.activedata.service.news_bell import NewsBell
from trimtab.activedata.service.requests import Request, Requests, told_result

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request as HttpRequest
    from starlette.responses import Response

logger = logging.getLogger(__name__)

BODY_MAX_BYTES: Final = 64 * 1024 * 1024
WAIT_MAX_S: Final = 60.0
LOOK_AGAIN_AFTER_S: Final = 1.0
"""A subscription may begin while news are waited for: so often it is looked who is asked for."""

KEEP_ALIVE_S: Final = 120
STREAM_SIGN_EVERY_S: Final = 15.0
"""So often a stream of events without events shows that it is alive."""

THREADS_COUNT: Final = 16
CLOSE_WITHIN_S: Final = 5


class Service:
    """Serves one ActiveData object on a port until it is closed."""

    def __init__(
        self, active: ActiveData, host: str = "127.0.0.1", port: int = 0, rules: AccessRules | None = None
    ) -> None:
        try:
            import uvicorn
        except ImportError:
            raise ActiveDataError("the service needs a web server: pip install 'trimtab[active]'") from None
        self.active = active
        self.rules = rules or rules_for(host, None)
        self.requests = Requests(active)
        self.bell = NewsBell(active.results_store)
        self._threads = ThreadPoolExecutor(THREADS_COUNT, thread_name_prefix="service")
        self._socket = _listening(host, port)
        configuration = uvicorn.Config(
            Guarded(self._application(), self.rules),
            log_config=None,
            access_log=False,
            http="h11",
            ws="none",
            lifespan="off",
            loop="asyncio",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=CLOSE_WITHIN_S,
        )
        self._server = uvicorn.Server(configuration)
        self._is_started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="service", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened at."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Start to answer."""
        self._thread.start()
        self._is_started.wait()

    def close(self) -> None:
        """Stop to answer."""
        self.bell.close()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _run(self) -> None:
        async def serve() -> None:
            self.bell.start(asyncio.get_running_loop())
            self._is_started.set()  # what connects now waits in the socket's queue
            await self._server.serve(sockets=[self._socket])

        asyncio.run(serve())

    def _application(self) -> Starlette:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.routing import Route

        asked = self.requests
        routes: list[tuple[str, str, Callable[[HttpRequest], Awaitable[Response]]]] = [
            ("GET", "/status", self._answering(asked.status)),
            ("GET", "/executions", self._answering(asked.executions)),
            ("POST", "/statements", self._answering(asked.statements)),
            ("POST", "/feeds/{feed}", self._answering(asked.feed)),
            ("PUT", "/brokers/{broker}", self._answering(asked.declare)),
            ("POST", "/brokers/{broker}/subscriptions", self._answering(asked.subscribe)),
            ("DELETE", "/brokers/{broker}/subscriptions/{id}", self._answering(asked.unsubscribe)),
            ("GET", "/brokers/{broker}/results", self._news),
            ("GET", "/results/{id}", self._answering(asked.results)),
            ("POST", "/results", self._answering(asked.results_of_many)),
            ("GET", "/subscriptions/{id}/events", self._events),
        ]
        return Starlette(
            routes=[Route(path, endpoint, methods=[method]) for method, path, endpoint in routes],
            exception_handlers={HTTPException: _no_such},
        )

    def _answering(self, answer: Callable[[Request], object]) -> Callable[[HttpRequest], Awaitable[Response]]:
        async def endpoint(http: HttpRequest) -> Response:
            body = await _whole_body(http)
            if body is None:
                return _response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": f"more than {BODY_MAX_BYTES:,} bytes"})
            code, said = await self._in_thread(partial(_answered, answer, _request(http, body)))
            return _response(code, said)

        return endpoint

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _news(self, http: HttpRequest) -> Response:
        """Wait until a broker's subscriptions have new results."""
        request = _request(http)
        try:
            wait_s = min(request.number("wait_s", 0.0), WAIT_MAX_S)
        except ValueMistake as error:
            return _response(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        end_s = time.monotonic() + wait_s
        while True:
            rung = self.bell.rung
            code, said = await self._in_thread(partial(_answered, self.requests.news, request))
            left_s = end_s - time.monotonic()
            if code != HTTPStatus.OK:
                return _response(code, said)
            if said[0] or left_s <= 0 or self.bell.is_closing:
                return _response(code, said[1])
            await self.bell.wait(rung, min(LOOK_AGAIN_AFTER_S, left_s))

    async def _events(self, http: HttpRequest) -> Response:
        """The results of a subscription as they come, as server-sent events; an event's id is its position."""
        from starlette.responses import StreamingResponse

        request = _request(http)
        last = http.headers.get("last-event-id", "")
        try:
            after = int(last) if last.isdigit() else int(request.number("after", 0))
        except ValueMistake as error:
            return _response(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        code, said = await self._in_thread(partial(_answered, partial(self.requests.events, after=after), request))
        if code != HTTPStatus.OK:
            return _response(code, said)
        return StreamingResponse(
            self._stream(request, after), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _stream(self, request: Request, after: int) -> AsyncIterator[bytes]:
        yield b"retry: 1000\n\n"
        while not self.bell.is_closing:
            rung = self.bell.rung
            try:
                found = await self._in_thread(partial(self.requests.events, request, after))
            except NotFoundError as error:
                yield b"event: ended\ndata: " + msgspec.json.encode({"error": str(error)}) + b"\n\n"
                return
            for each in found:
                yield b"id: %d\nevent: result\ndata: %s\n\n" % (each.position, msgspec.json.encode(told_result(each)))
            if found:
                after = found[-1].position
                continue
            end_s = time.monotonic() + STREAM_SIGN_EVERY_S
            while not rung.is_set() and time.monotonic() < end_s and not self.bell.is_closing:
                await self.bell.wait(rung, LOOK_AGAIN_AFTER_S)
            if not rung.is_set():
                yield b": here\n\n"


def _listening(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(1_024)
    except OSError:
        found.close()
        raise
    return found


def _request(http: HttpRequest, body: bytes = b"") -> Request:
    options = {name: http.query_params.getlist(name)[-1] for name in http.query_params}
    return Request({name: str(value) for name, value in http.path_params.items()}, options, body)


async def _whole_body(http: HttpRequest) -> bytes | None:
    """The body of a request, None if it is too large."""
    said = http.headers.get("content-length", "")
    if said.isdigit() and int(said) > BODY_MAX_BYTES:
        return None
    parts: list[bytes] = []
    size = 0
    async for part in http.stream():
        size += len(part)
        if size > BODY_MAX_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)


def _answered(answer: Callable[[Request], object], request: Request) -> tuple[HTTPStatus, Any]:
    """What a request gets; what it makes the process raise is an answer, too."""
    try:
        return HTTPStatus.OK, answer(request)
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
        logger.exception("a request failed")
        return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"}


def _response(code: HTTPStatus, answer: object) -> Response:
    from starlette.responses import Response

    try:
        data = msgspec.json.encode(answer)
    except TypeError:
        data = json.dumps(msgspec.to_builtins(answer), default=str).encode()
    return Response(data, status_code=int(code), media_type="application/json")


async def _no_such(http: HttpRequest, error: Exception) -> Response:
    said = {"error": f"there is no {http.method} {http.url.path} here"}
    return _response(HTTPStatus(getattr(error, "status_code", HTTPStatus.NOT_FOUND)), said)
