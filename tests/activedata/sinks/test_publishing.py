"""Results published into the overlay: content filters at any broker get each once, also over a killed process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.activedata.feeds.test_feeds import TRIMTAB, trimtab
from tests.activedata.test_channels import FEED, OF_TYPE, REPORTS, report
from trimtab import BlockingClient, Filter, Network
from trimtab.activedata import ActiveData, StatementError
from trimtab.activedata.service.status import status
from trimtab.activedata.spark.views import SparkViews
from trimtab.network.admin.local_network import free_ports
from trimtab.network.client.subscription import Delivery

NEAR = (
    "CREATE CONTINUOUS CHANNEL Near(x DOUBLE) AS SELECT r.reportId, r.event, r.x, collect_list(s.y) AS ys "
    "FROM Reports r, Reports s WHERE is_new(r) AND r.x >= :x GROUP BY r.reportId, r.event, r.x;"
)


class Heard:
    """A subscriber at a broker, and what it has been told."""

    def __init__(self, broker: str, wanted: str) -> None:
        self.deliveries: list[Delivery] = []
        self._client = BlockingClient(broker)
        self._client.subscribe(Filter.parse(wanted), callback=self.deliveries.append)

    def wait(self, count: int) -> list[dict[str, object]]:
        deadline_s = time.monotonic() + 60
        while len(self.deliveries) < count and time.monotonic() < deadline_s:
            time.sleep(0.02)
        return [dict(each.publication) for each in self.deliveries]

    def close(self) -> None:
        self._client.close()


def test_content_filters_match_arguments_and_fields_at_any_broker(spark: SparkViews, tmp_path: Path) -> None:
    with Network.of(["B1", "B2"], [("B1", "B2")]) as network, ActiveData(tmp_path, spark) as active:
        active.run(REPORTS + FEED + OF_TYPE + NEAR)
        active.run(f"CREATE PUBLISHING BROKER net AT '{network.address('B1')}'")
        active.run(
            "SUBSCRIBE TO Near(2) ON net; SUBSCRIBE TO OfType('fire') ON net; SUBSCRIBE TO OfType('flood') ON B1"
        )
        near = Heard(network.address("B2"), "channel = 'Near' AND for_x < 5 AND x > 2.5")
        fires = Heard(network.address("B1"), "channel = 'OfType' AND for_event IS NOT NULL")
        try:
            active.feed("reports", [report(1), report(2, "fire"), report(3), report(4, "fire")])
            found = near.wait(2)
            assert [(each["reportId"], each["x"], each["for_x"], each["subscription"]) for each in found] == [
                ("r3", 3.0, 2.0, 1),
                ("r4", 4.0, 2.0, 1),
            ]
            assert found[0]["ys"] == "[0.0,0.0,0.0,0.0]"
            assert abs(float(str(found[0]["executed_s"])) - time.time()) < 60
            assert [each["reportId"] for each in fires.wait(2)] == ["r2", "r4"]
            (told,) = [each for each in status(active).brokers if each.name == "net"]
            assert (told.published_count, told.subscriptions_count, told.error) == (5, 2, None)
        finally:
            near.close()
            fires.close()
        active.run("DROP BROKER net CASCADE")
        assert [each.name for each in active.catalog.brokers()] == ["B1"]


def test_what_cannot_be_published_is_refused_when_it_is_defined(spark: SparkViews, tmp_path: Path) -> None:
    with ActiveData(tmp_path / "data", spark) as active:
        active.run(REPORTS + FEED)
        with pytest.raises(StatementError, match="line 1, column 33: 'nowhere' is not an address"):
            active.run("CREATE PUBLISHING BROKER net AT 'nowhere'")
        with pytest.raises(StatementError, match="there is a broker 'B1' already, which fetches its results itself"):
            active.run("CREATE PUBLISHING BROKER B1 AT '127.0.0.1:7001'")
        active.run("CREATE PUBLISHING BROKER net AT '127.0.0.1:1'")
        with pytest.raises(StatementError, match="net is a publishing broker; another one needs another name"):
            active.run("CREATE BROKER net AT 'here'")
        active.run("CREATE CONTINUOUS CHANNEL Odd(event STRING) AS SELECT r.x AS subscription FROM Reports r;")
        with pytest.raises(StatementError, match="Odd selects 'subscription', which is an attribute of every"):
            active.run("SUBSCRIBE TO Odd('flood') ON net")
        active.run("SUBSCRIBE TO Odd('flood') ON B1")
        deadline_s = time.monotonic() + 10
        while (error := status(active).brokers[1].error) is None and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert error is not None and "no broker at 127.0.0.1:1" in error


def start(data: str, at: str) -> subprocess.Popen[str]:
    command = [*TRIMTAB, "start", "--dir", data, "--listen", at, "--memory", "1024", "--quick-start"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == f"ready http://{at}\n"
    return process


def test_each_result_is_heard_once_and_in_order_over_killed_processes(tmp_path: Path) -> None:
    data, at = str(tmp_path / "data"), f"127.0.0.1:{free_ports(1)[0]}"
    with Network.of(["B1", "B2"], [("B1", "B2")]) as network:
        definitions = REPORTS + FEED + OF_TYPE + f"CREATE PUBLISHING BROKER net AT '{network.address('B1')}';"
        heard = Heard(network.address("B2"), "channel = 'OfType' AND for_event = 'flood'")
        sent, last = 0, 1
        for life in range(last + 1):
            process = start(data, at)
            if not life:
                answer = trimtab("sql", definitions + "SUBSCRIBE TO OfType('flood') ON net", "--at", at)
                assert answer.exit_code == 0, answer.stderr
            killer = threading.Timer(3.0, lambda pid: os.kill(pid, signal.SIGKILL), [process.pid])
            if life < last:
                killer.start()
            for _ in range(400 if life < last else 5):
                file = tmp_path / "records.jsonl"
                file.write_text("\n".join(json.dumps(report(number)) for number in range(sent, sent + 20)))
                answer = trimtab("feed", "reports", str(file), "--at", at)
                if answer.exit_code:
                    break  # killed: the same records are given to the next life
                sent += 20
            if life == last:
                found = heard.wait(sent)
                process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        ids = [each["reportId"] for each in found]
        assert len(ids) == sent > 200
        assert ids == [f"r{number}" for number in range(sent)]
        sequences = [each.sequence for each in heard.deliveries]
        assert sequences == sorted(set(sequences))
        assert len({each.publisher for each in heard.deliveries}) == 1
        heard.close()
