"""`trimtab sim replication-table` and `trimtab sim fuzz --with replication`."""

import json

from typer.testing import CliRunner

from trimtab.cli.main import app

RUNNER = CliRunner()


def test_the_table_is_printed_with_the_seed_of_each_cross() -> None:
    result = RUNNER.invoke(app, ["sim", "replication-table", "--runs", "1", "--json"])
    table = json.loads(result.stdout)
    assert table["mistakes"] == []
    assert len(table["cells"]) == 20
    assert [cell["violated_count"] for cell in table["cells"] if cell["is_promised"]] == [0] * 13
    assert all(cell["first_seed"] is not None for cell in table["cells"] if cell["violated_count"])
    assert result.exit_code == (0 if table["is_reproduced"] else 1)


def test_brokers_die_in_random_networks() -> None:
    result = RUNNER.invoke(app, ["sim", "fuzz", "--runs", "2", "--with", "replication", "--json"])
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["violations"] == []
    assert report["details"]["faults"]["crash"] >= 2


def test_what_is_not_known_is_refused() -> None:
    result = RUNNER.invoke(app, ["sim", "fuzz", "--with", "wishes"])
    assert result.exit_code == 2


def test_a_bug_of_replication_is_found_and_replayed_with_its_command() -> None:
    arguments = ["sim", "fuzz", "--runs", "4", "--with", "replication", "--bug", "tell-no-subscriptions"]
    result = RUNNER.invoke(app, arguments)
    assert result.exit_code == 1
    assert "--bug tell-no-subscriptions --with replication" in result.stdout
