"""Brokers and feeds talk to active data over HTTP."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.activedata.test_channels import FEED, OF_TYPE, REPORTS, report
from trimtab.activedata import ActiveData
from trimtab.activedata.service.http import Service


@pytest.fixture
def service(active: ActiveData) -> Iterator[Service]:
    active.run(REPORTS + FEED + OF_TYPE)
    service = Service(active)
    service.start()
    yield service
    service.close()


def ask(service: Service, method: str, path: str, body: object = None) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.request(method, path, data)
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


def declare(service: Service, *events: str) -> list[int]:
    wanted = [{"channel": "OfType", "arguments": {"event": event}} for event in events]
    code, answer = ask(service, "PUT", "/brokers/B2", {"subscriptions": wanted, "address": "127.0.0.1:7002"})
    assert code == 200
    return [each["id"] for each in answer["subscriptions"]]


def lines(*records: object) -> bytes:
    return b"\n".join(json.dumps(each).encode() for each in records)


def test_a_broker_declares_its_subscriptions_is_told_of_results_and_fetches_them(service: Service) -> None:
    flood, fire = declare(service, "flood", "fire")
    told: list[Any] = []
    waiting = threading.Thread(target=lambda: told.append(ask(service, "GET", "/brokers/B2/results?after=0&wait_s=20")))
    waiting.start()
    records = lines(report(1), report(2, "fire"), report(3), {"reportId": 5})
    assert ask(service, "POST", "/feeds/reports", records) == (200, {"accepted": 3, "rejected": 1, "repeated": 0})
    waiting.join()
    ((code, news),) = told
    assert code == 200
    assert set(news["subscriptions"]) == {str(flood), str(fire)}
    brought = {id: [each["values"]["reportId"] for each in results] for id, results in news["results"].items()}
    assert brought == {str(flood): ["r1", "r3"], str(fire): ["r2"]}
    code, answer = ask(service, "GET", f"/results/{flood}?after=0&limit=1")
    assert [each["values"] for each in answer["results"]] == [{"reportId": "r1"}]
    after = answer["results"][0]["position"]
    code, answer = ask(service, "GET", f"/results/{flood}?after={after}")
    assert [each["values"] for each in answer["results"]] == [{"reportId": "r3"}]
    assert ask(service, "GET", f"/brokers/B2/results?after={news['position']}&wait_s=0")[1]["subscriptions"] == {}


def test_news_bring_results_only_if_they_are_few_and_in_memory(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    (flood,) = declare(service, "flood")
    ask(service, "POST", "/feeds/reports", lines(*(report(number) for number in range(1, 6))))
    service.active.settle()
    store = service.active.results_store
    for after, limit, in_memory_after, count in ((0, 5, 0, 5), (0, 4, 0, 0), (3, 4, 0, 2), (2, 5, 3, 0), (3, 5, 3, 2)):
        monkeypatch.setattr("trimtab.activedata.service.requests.NEWS_RESULTS_MAX_COUNT", limit)
        monkeypatch.setattr(store, "_recent_after", in_memory_after)
        _, news = ask(service, "GET", f"/brokers/B2/results?after={after}&wait_s=0")
        assert news["subscriptions"] == {str(flood): 5}
        assert [each["position"] for each in news["results"].get(str(flood), [])] == list(range(6 - count, 6))
    monkeypatch.setattr("trimtab.activedata.service.requests.NEWS_MAX_BYTES", 10)
    assert ask(service, "GET", "/brokers/B2/results?after=4&wait_s=0")[1]["results"] == {}


def test_declaring_again_keeps_what_is_wanted_and_ends_the_rest(service: Service) -> None:
    flood, fire = declare(service, "flood", "fire")
    assert declare(service, "fire", "storm")[0] == fire
    assert ask(service, "GET", f"/results/{flood}")[0] == 404
    code, made = ask(
        service, "POST", "/brokers/B2/subscriptions", {"channel": "OfType", "arguments": {"event": "flood"}}
    )
    assert code == 200
    assert made["id"] not in (flood, fire)
    assert ask(service, "DELETE", f"/brokers/B2/subscriptions/{made['id']}") == (200, {})
    assert ask(service, "DELETE", f"/brokers/B1/subscriptions/{fire}")[0] == 404


def test_a_broker_that_vanished_finds_its_results_when_it_returns(service: Service) -> None:
    (flood,) = declare(service, "flood")
    ask(service, "POST", "/feeds/reports", lines(report(1), report(2)))
    service.active.settle()
    (broker,) = [each for each in ask(service, "GET", "/status")[1]["brokers"] if each["name"] == "B2"]
    assert broker["subscriptions_count"] == 1
    assert broker["silent_s"] is not None
    code, answer = ask(service, "POST", "/statements", {"text": "DROP BROKER B2"})
    assert code == 400
    assert "1 subscriptions (CASCADE ends them)" in answer["error"]
    assert declare(service, "flood") == [flood]
    assert len(ask(service, "GET", f"/results/{flood}")[1]["results"]) == 2


@pytest.mark.parametrize(
    ("request_line", "body", "code", "said"),
    [
        ("POST /statements", {"text": "SELECT 1 FROM Nothing"}, 400, "Nothing"),
        ("POST /statements", b"{", 400, "body"),
        ("POST /statements", {}, 400, "text"),
        ("POST /feeds/nothing", b"", 404, "there is no feed 'nothing'"),
        (
            "POST /brokers/B1/subscriptions",
            {"channel": "OfType", "arguments": {"event": 5}},
            400,
            "argument 'event' must be a string, and is 5",
        ),
        (
            "POST /brokers/B1/subscriptions",
            {"channel": "OfType", "arguments": {"event": "a", "more": 5}},
            400,
            "no parameter 'more'; it takes event STRING",
        ),
        ("POST /brokers/B9/subscriptions", {"channel": "OfType", "arguments": {"event": "a"}}, 404, "B9"),
        ("GET /results/x", None, 404, "there is no subscription 'x'"),
        ("GET /brokers/B1/results?after=x", None, 400, "after must be a number"),
        ("GET /brokers/B1/results?after=nan", None, 400, "after must be a number"),
        ("GET /brokers/B1/results?after=0&wait_s=inf", None, 400, "wait_s must be a number"),
        ("DELETE /status", None, 405, "there is no DELETE /status"),
        ("GET /nothing", None, 404, "there is no GET /nothing"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(
    service: Service, request_line: str, body: object, code: int, said: str
) -> None:
    method, path = request_line.split()
    found, answer = ask(service, method, path, body)
    assert (found, said in answer["error"]) == (code, True), answer
    if path == "/statements" and "text" in (body if isinstance(body, dict) else {}):
        assert answer["position"] == 14


def test_the_status_tells_of_feeds_and_channels(service: Service) -> None:
    declare(service, "flood")
    ask(service, "POST", "/feeds/reports", lines(report(1), report(1), {"reportId": 5}))
    service.active.settle()
    _, found = ask(service, "GET", "/status")
    (feed,) = found["feeds"]
    assert (feed["accepted_count"], feed["repeated_count"], feed["rejected_count"]) == (1, 1, 1)
    (channel,) = found["channels"]
    assert (channel["results_count"], channel["behind_count"], channel["error"]) == (1, 0, None)
    assert channel["last_latency_s"] > 0
    assert found["datasets"] == [{"name": "Reports", "active": True, "records_count": 1}]
    rate = service.active.rates(window_s=100.0)[0]
    assert rate.notifications_per_s == pytest.approx(0.01)
    assert rate.bytes_per_s == pytest.approx(len('{"reportId":"r1"}') / 100)


def test_a_wrong_subscription_is_told_and_keeps_no_other_from_being_made(service: Service) -> None:
    wanted = [{"channel": "No"}, {"channel": "OfType"}, {"channel": "OfType", "arguments": {"event": "flood"}}]
    code, answer = ask(service, "PUT", "/brokers/B3", {"subscriptions": wanted})
    assert code == 200
    no, missing, made = answer["subscriptions"]
    assert "there is no channel 'No'" in no["error"] and "'event' is missing" in missing["error"]
    assert set(made) == {"id", "position", "counts"}


def test_results_of_a_subscription_that_begins_while_news_are_waited_for_are_told(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an earlier subscription may come behind them and end the wait."""
    (flood,) = declare(service, "flood")
    active, wait = service.active, service.bell.wait
    made: list[int] = []

    async def wait_while_another_begins(rung: asyncio.Event, wait_s: float) -> None:
        if not made:
            made.append(active.subscribe("OfType", "B2", event="fire"))
            columns = {"channel": [1, 1], "subscription": [made[0], flood], "record": [1, 2], "payload": ["{}", "{}"]}
            active.results_store.commit(pa.table(columns), {})
        await wait(rung, wait_s)

    monkeypatch.setattr(service.bell, "wait", wait_while_another_begins)
    told: dict[str, int] = {}
    after = 0
    for _ in range(2):
        _, news = ask(service, "GET", f"/brokers/B2/results?after={after}&wait_s=2")
        told |= news["subscriptions"]
        after = news["position"]
    assert told == {str(flood): 2, str(made[0]): 1}
    assert after == 2


def test_a_declaration_ends_what_the_broker_declared_and_nothing_that_others_made_for_its_name(
    service: Service,
) -> None:
    active = service.active
    active.run("CREATE BROKER B2 AT '127.0.0.1:7002'")
    mine = active.subscribe("OfType", "B2", event="storm")
    flood, fire = declare(service, "flood", "fire")
    assert declare(service, "flood") == [flood]
    assert set(active.catalog.subscription_ids(active.catalog.broker("B2").id)) == {mine, flood}
    code, _ = ask(service, "PUT", "/brokers/B2", {"subscriptions": []})
    assert (code, active.catalog.broker("B2").address) == (200, "127.0.0.1:7002")
    assert active.catalog.subscription_ids(active.catalog.broker("B2").id) == [mine]
    assert ask(service, "GET", f"/results/{fire}")[0] == 404


def test_events_of_a_subscription_come_as_they_are_committed_and_go_on_after_the_last(service: Service) -> None:
    (flood,) = declare(service, "flood")
    ask(service, "POST", "/feeds/reports", lines(report(1)))

    def events(count: int, last: str | None = None) -> list[tuple[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
        connection.request("GET", f"/subscriptions/{flood}/events", headers={"Last-Event-ID": last} if last else {})
        response = connection.getresponse()
        assert response.headers["content-type"].startswith("text/event-stream")
        found: list[tuple[str, Any]] = []
        position = ""
        while len(found) < count:
            line = response.readline().decode().rstrip()
            if line.startswith("id: "):
                position = line[4:]
            if line.startswith("data: "):
                found.append((position, json.loads(line[6:])))
                if len(found) == 1:
                    ask(service, "POST", "/feeds/reports", lines(report(2), report(3)))
        connection.close()
        return found

    found = events(3)
    assert [(position, event["values"]) for position, event in found] == [
        ("1", {"reportId": "r1"}),
        ("2", {"reportId": "r2"}),
        ("3", {"reportId": "r3"}),
    ]
    assert [event["values"]["reportId"] for _, event in events(1, last="2")] == ["r3"]
    assert ask(service, "GET", "/subscriptions/99/events")[0] == 404
    assert ask(service, "GET", f"/subscriptions/{flood}/events?after=nan")[0] == 400


def test_more_brokers_may_wait_for_news_than_there_are_threads(service: Service) -> None:
    (flood,) = declare(service, "flood")
    told: list[Any] = []
    path = "/brokers/B2/results?after=0&wait_s=20"
    waiting = [threading.Thread(target=lambda: told.append(ask(service, "GET", path))) for _ in range(60)]
    for thread in waiting:
        thread.start()
    ask(service, "POST", "/feeds/reports", lines(report(1)))
    for thread in waiting:
        thread.join()
    assert [(code, set(news["subscriptions"])) for code, news in told] == [(200, {str(flood)})] * 60


def test_news_count_the_results_of_each_subscription_and_tell_of_suspended_ones(service: Service) -> None:
    service.active.run("CREATE CONTINUOUS CHANNEL Ratio(d INT) AS SELECT r.reportId, r.x / :d AS z FROM Reports r")
    wanted = [{"channel": "Ratio", "arguments": {"d": d}} for d in (0, 2)]
    _, made = ask(service, "PUT", "/brokers/B2", {"subscriptions": wanted, "address": "127.0.0.1:7002"})
    bad, good = (each["id"] for each in made["subscriptions"])
    assert [each["counts"] for each in made["subscriptions"]] == [[0, 0], [0, 0]]
    ask(service, "POST", "/feeds/reports", lines(*(report(number) for number in range(1, 4))))
    service.active.settle()
    _, news = ask(service, "GET", "/brokers/B2/results?after=0&wait_s=0")
    sizes = [len(bytes(each.payload)) for each in service.active.results(good)]
    assert ask(service, "GET", "/brokers/B2/results?after=9&wait_s=0&suspended=0")[1]["suspended"].keys() == {str(bad)}
    assert news["counts"] == {str(good): [3, sum(sizes)]}
    assert "DIVIDE_BY_ZERO" in news["suspended"][str(bad)]
    _, again = ask(service, "PUT", "/brokers/B2", {"subscriptions": wanted, "address": "127.0.0.1:7002"})
    assert "is suspended" in again["subscriptions"][0]["error"]
    assert again["subscriptions"][1]["counts"] == [3, sum(sizes)]
    _, status = ask(service, "GET", "/status")
    (ratio,) = [each for each in status["channels"] if each["name"] == "Ratio"]
    assert (ratio["suspended_count"], ratio["runs_apart"]) == (0, True)
