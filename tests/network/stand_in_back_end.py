"""A back end in the test's own process that speaks the interface of docs/active-data.md, without Spark."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Stream = tuple[str, str]


class StandInBackEnd:
    """Streams with results; `stop` and `start` at the same port play a back end that is started again."""

    def __init__(self, channels: tuple[str, ...], brought_max_count: int = 0) -> None:
        """News bring results along if there are no more than so many."""
        self.channels = channels
        self.brought_max_count = brought_max_count
        self.news = threading.Condition()
        self.ids: dict[Stream, int] = {}
        self.results: dict[int, list[dict[str, Any]]] = {}
        self.interested: dict[int, dict[str, None]] = {}
        self.position = 0
        self.fetches_count = 0
        self.port = 0
        self.is_stopped = False
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> str:
        handler = type("Handler", (_Handler,), {"back_end": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.is_stopped = False
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        assert self._server is not None
        with self.news:
            self.is_stopped = True
            self.news.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def happen(self, channel: str, arguments: dict[str, Any], values: dict[str, Any]) -> None:
        with self.news:
            id = self.ids[channel, json.dumps(arguments, sort_keys=True)]
            self.position += 1
            self.results[id].append({"position": self.position, "values": values, "executed_s": time.time()})
            self.news.notify_all()

    def subscribe(self, broker: str, said: dict[str, Any]) -> dict[str, Any]:
        if said["channel"] not in self.channels:
            return {"error": f"there is no channel {said['channel']}"}
        stream = (said["channel"], json.dumps(said["arguments"], sort_keys=True))
        id = self.ids.setdefault(stream, len(self.ids) + 1)
        self.results.setdefault(id, [])
        self.interested.setdefault(id, {})[broker] = None
        return {"id": id, "position": self.position}

    def wait_for_news(self, broker: str, after: int, wait_s: float) -> dict[str, Any]:
        def newer() -> dict[str, int]:
            mine = (id for id, brokers in self.interested.items() if broker in brokers and self.results[id])
            newest = {str(id): int(self.results[id][-1]["position"]) for id in mine}
            return {id: position for id, position in newest.items() if position > after}

        self.news.wait_for(lambda: newer() or self.is_stopped, wait_s)
        brought = {
            id: [each for each in self.results[int(id)] if after < each["position"] <= position]
            for id, position in newer().items()
        }
        if sum(map(len, brought.values())) > self.brought_max_count:
            brought = {}
        return {"position": self.position, "subscriptions": newer(), "results": brought}


class _Handler(BaseHTTPRequestHandler):
    back_end: StandInBackEnd
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        said = self._body()
        broker = self.path.split("/")[2]
        self._answer({"subscriptions": [self.back_end.subscribe(broker, each) for each in said["subscriptions"]]})

    def do_POST(self) -> None:
        if self.path == "/results":
            self._answer({"answers": [self._found(each) for each in self._body()["fetches"]]})
            return
        self._answer(self.back_end.subscribe(self.path.split("/")[2], self._body()))

    def do_DELETE(self) -> None:
        _, _, broker, _, id = self.path.split("/")
        self.back_end.interested[int(id)].pop(broker, None)
        self._answer({})

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        path = parts.path.split("/")
        with self.back_end.news:
            self._answer(self.back_end.wait_for_news(path[2], int(asked["after"]), float(asked["wait_s"])))

    def _found(self, wanted: dict[str, int]) -> dict[str, Any]:
        with self.back_end.news:
            self.back_end.fetches_count += 1
            found = [each for each in self.back_end.results[wanted["id"]] if each["position"] > wanted["after"]]
        return {"results": found[: wanted["limit"]]}

    def _body(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return said

    def _answer(self, said: dict[str, Any]) -> None:
        if self.back_end.is_stopped:
            self.close_connection = True
            return
        content = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass
