"""Subscriptions are listed, paused and resumed; dead letters and executions are shown."""

import json

import pytest
from typer.testing import CliRunner

from tests.activedata.test_channels import FEED, OF_TYPE, REPORTS, found_ids, report
from trimtab.activedata import ActiveData, StatementError
from trimtab.activedata.service.http import Service
from trimtab.activedata.spark.views import SparkViews
from trimtab.cli.main import app


def test_a_paused_subscription_gets_no_results_until_it_is_resumed_also_over_a_restart(
    active: ActiveData, spark: SparkViews
) -> None:
    active.run(REPORTS + FEED + OF_TYPE)
    flood, fire = (active.subscribe("OfType", "B1", event=event) for event in ("flood", "fire"))
    active.feed("reports", [report(1), report(2, "fire")])
    active.settle()
    assert active.run(f"PAUSE SUBSCRIPTION {flood}")[0].said == f"subscription {flood} paused"
    active.feed("reports", [report(3), report(4, "fire")])
    active.settle()
    active.close()
    again = ActiveData(active.directory, spark)
    rows = again.run("SELECT id, channel, arguments, brokers, last_position, state FROM subscriptions ORDER BY id")[
        0
    ].rows
    assert rows == [
        {
            "id": flood,
            "channel": "OfType",
            "arguments": '{"event":"flood"}',
            "brokers": "B1",
            "last_position": 1,
            "state": "paused",
        },
        {
            "id": fire,
            "channel": "OfType",
            "arguments": '{"event":"fire"}',
            "brokers": "B1",
            "last_position": 3,
            "state": "active",
        },
    ]
    again.feed("reports", [report(5)])
    again.settle()
    again.run(f"RESUME SUBSCRIPTION {flood}")
    again.feed("reports", [report(6)])
    again.settle()
    assert found_ids(again, flood) == ["r1", "r6"]
    assert found_ids(again, fire) == ["r2", "r4"]
    with pytest.raises(StatementError, match=f"subscription {flood} is neither paused nor suspended"):
        again.run(f"RESUME SUBSCRIPTION {flood}")
    with pytest.raises(StatementError, match="there is no subscription 99"):
        again.run("PAUSE SUBSCRIPTION 99")
    again.close()


def test_the_commands_show_subscriptions_dead_letters_and_executions(active: ActiveData) -> None:
    active.run(REPORTS + FEED + OF_TYPE)
    active.subscribe("OfType", "B1", event="it's")
    service = Service(active)
    service.start()
    try:

        def trimtab(*arguments: str) -> str:
            answer = CliRunner().invoke(app, ["active", *arguments, "--at", f"127.0.0.1:{service.port}"])
            assert answer.exit_code == 0, answer.output
            return answer.stdout

        active.feed("reports", [report(1, "it's"), {"reportId": "r2"}])
        active.settle()
        (subscription,) = trimtab("subscriptions", "--channel", "oftype", "--json").splitlines()
        assert json.loads(subscription)["arguments"] == '{"event":"it\'s"}'
        assert "OfType" in trimtab("subscriptions")
        (letter,) = trimtab("dead-letters", "--from", "reports", "--json").splitlines()
        assert json.loads(letter)["reason"] == "field 'event' is missing"
        assert trimtab("dead-letters", "--from", "it's") == "dead letters: none\n"
        (execution,) = trimtab("executions", "--json").splitlines()
        assert json.loads(execution)["channels"] == ["OfType"]
        assert (json.loads(execution)["records_count"], json.loads(execution)["results_count"]) == (1, 1)
        assert "OfType" in trimtab("executions", "--plans")
    finally:
        service.close()
