"""Results that are posted to an address or written into files: signed, retried, each once, and put aside if refused."""

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.activedata.test_channels import FEED, OF_TYPE, REPORTS, report
from trimtab.activedata import ActiveData, QueryLimits, StatementError
from trimtab.activedata.service.status import BrokerStatus, status
from trimtab.activedata.sinks import webhook
from trimtab.activedata.sinks.webhook import signature
from trimtab.activedata.spark.views import SparkViews


class Receiver:
    """A web server that takes what is posted, answering as it is told."""

    def __init__(self, port: int = 0) -> None:
        receiver = self
        self.taken: list[dict[str, Any]] = []
        self.asked: list[tuple[dict[str, str], bytes]] = []
        self.answer: Callable[[dict[str, Any]], int] = lambda _: 200

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.asked.append((dict(self.headers.items()), body))
                code = receiver.answer(json.loads(body))
                if code == 200:
                    receiver.taken += json.loads(body)["results"]
                said = b"because" if code != 200 else b""
                self.send_response(code)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def ids(self) -> list[str]:
        return [each["values"]["reportId"] for each in self.taken]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def broker_status(active: ActiveData, name: str) -> BrokerStatus:
    return next(each for each in status(active).brokers if each.name == name)


def test_results_are_posted_with_a_signature_that_the_receiver_can_check(
    active: ActiveData, receiver: Receiver
) -> None:
    active.run(REPORTS + FEED + OF_TYPE)
    made = active.run(f"CREATE BROKER hook AT 'http://127.0.0.1:{receiver.port}/in?x=1'")[0].rows
    (secret,) = [row["secret"] for row in made]
    subscription = active.run("SUBSCRIBE TO OfType('flood') ON hook")[0].rows[0]["subscription"]
    active.feed("reports", [report(1), report(2, "fire"), report(3)])
    wait_until(lambda: len(receiver.taken) == 2)
    assert receiver.ids() == ["r1", "r3"]
    (first, _) = receiver.taken
    assert (first["channel"], first["subscription"], first["arguments"]) == ("OfType", subscription, {"event": "flood"})
    for headers, body in receiver.asked:
        at = int(headers["webhook-timestamp"])
        assert headers["webhook-signature"] == signature(secret, headers["webhook-id"], at, body)
    told = broker_status(active, "hook")
    assert (told.published_count, told.error) == (2, None)
    active.run("CREATE BROKER hook AT 'http://127.0.0.1:1/' SECRET 'another secret of mine'")
    with pytest.raises(StatementError, match="another one needs another name"):
        active.run("CREATE BROKER hook AT 'here'")
    active.run("DROP BROKER hook CASCADE")
    assert [each.name for each in status(active).brokers] == ["B1"]


def test_a_receiver_that_is_away_or_fails_gets_everything_later_also_from_the_next_process(
    spark: SparkViews, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "RETRY_MIN_S", 0.05)
    receiver = Receiver()
    with ActiveData(tmp_path, spark) as active:
        active.run(REPORTS + FEED + OF_TYPE + f"CREATE BROKER hook AT 'http://127.0.0.1:{receiver.port}/'")
        active.run("SUBSCRIBE TO OfType('flood') ON hook")
        failures = iter([503, 429])
        receiver.answer = lambda _: next(failures, 200)
        active.feed("reports", [report(1)])
        wait_until(lambda: receiver.ids() == ["r1"])
        receiver.close()
        active.feed("reports", [report(2)])
        wait_until(lambda: "refused" in (broker_status(active, "hook").error or ""))
    again = Receiver(receiver.port)
    with ActiveData(tmp_path, spark) as active:
        active.feed("reports", [report(3)])
        wait_until(lambda: again.ids() == ["r2", "r3"])
        assert broker_status(active, "hook").error is None
    again.close()


def test_a_result_that_the_receiver_refuses_becomes_a_dead_letter_and_the_others_get_through(
    active: ActiveData, receiver: Receiver
) -> None:
    active.run(REPORTS + FEED + OF_TYPE + f"CREATE BROKER hook AT 'http://127.0.0.1:{receiver.port}/'")
    active.run("SUBSCRIBE TO OfType('flood') ON hook")
    receiver.answer = lambda body: 422 if any(each["values"]["reportId"] == "r3" for each in body["results"]) else 200
    active.feed("reports", [report(number) for number in range(6)])
    wait_until(lambda: len(receiver.taken) == 5)
    assert receiver.ids() == ["r0", "r1", "r2", "r4", "r5"]
    (letter,) = active.run("SELECT feed, source, reason, record FROM dead_letters")[0].rows
    assert (letter["feed"], letter["source"]) == ("hook", "webhook")
    assert "answered 422: because" in letter["reason"]
    assert '"r3"' in letter["record"]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE BROKER x AT 'https:///nowhere'", "expected https://HOST"),
        ("CREATE BROKER x AT 'http://user@host/'", "expected https://HOST"),
        ("CREATE BROKER x AT 'http://host:port/'", "expected https://HOST"),
        ("CREATE BROKER x AT 'http://host/' SECRET 'short'", "a secret has at least 16 characters"),
        ("CREATE BROKER x AT 'file:relative'", "expected file:/FOLDER"),
        ("CREATE BROKER x AT 'file:/x' SECRET 'a secret of a length'", "files are not signed"),
        ("CREATE BROKER x AT 'here' SECRET 'a secret of a length'", "SECRET is for brokers at an http address"),
        ("CREATE BROKER B1 AT 'http://host/'", "there is a broker 'B1' already"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(active_with_channel: ActiveData, statement: str, said: str) -> None:
    with pytest.raises(StatementError) as caught:
        active_with_channel.run(statement)
    assert said in caught.value.reason


def test_files_hold_each_result_once_over_a_restart_and_a_torn_end(spark: SparkViews, tmp_path: Path) -> None:
    limits = QueryLimits(file_roots=(str(tmp_path),))
    out = tmp_path / "out"

    def written() -> list[str]:
        text = "".join(file.read_text() for file in sorted(out.glob("*.jsonl")))
        return [json.loads(line)["values"]["reportId"] for line in text.splitlines() if line.endswith("}")]

    with ActiveData(tmp_path / "data", spark, limits) as active:
        active.run(REPORTS + FEED + OF_TYPE + f"CREATE BROKER files AT 'file:{out}'")
        active.run("SUBSCRIBE TO OfType('flood') ON files")
        with pytest.raises(StatementError, match="is not below"):
            active.run("CREATE BROKER other AT 'file:/etc'")
        active.feed("reports", [report(1), report(2)])
        wait_until(lambda: out.exists() and len(written()) == 2)
        note = active.catalog.note("SINK", active.catalog.broker("files").id)
        active.feed("reports", [report(3)])
        wait_until(lambda: len(written()) == 3)
        broker_id = active.catalog.broker("files").id
    (file,) = out.glob("*.jsonl")
    file.write_text(file.read_text() + '{"id": "torn')
    with ActiveData(tmp_path / "data", spark, limits) as active:
        active.sinks.stop()
        active.catalog.set_note("SINK", broker_id, note)  # as if the last note had been lost
        active.sinks.start()
        active.feed("reports", [report(4)])
        wait_until(lambda: len(written()) == 4)
        assert written() == ["r1", "r2", "r3", "r4"]
