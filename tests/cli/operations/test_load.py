"""The command load: what it does on a running network, and what it says about wrong arguments."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from trimtab import Network
from trimtab.cli.main import app
from trimtab.cli.operations.load import most_linked, weakest_edge
from trimtab.network.admin.local_network import plan_text
from trimtab.network.network_file import read_network_file

HOTSPOT = Path(__file__).parents[3] / "examples" / "hotspot.toml"


def trimtab(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_publishers_join_the_head_and_subscribers_the_weakest_edge_broker() -> None:
    plan = read_network_file(HOTSPOT)
    assert (most_linked(plan), weakest_edge(plan)) == ("B0", "B1")


def test_what_arrives_is_counted_and_compared_with_what_must(tmp_path: Path) -> None:
    with Network.of(["B1", "B2"], [("B1", "B2")]) as network:
        file = tmp_path / "two.toml"
        file.write_text(plan_text(network.plan), encoding="utf-8")
        code, output = trimtab(
            "load", str(file), "--subscribers", "10", "--publishers", "2", "--rate", "100", "--join-rate", "50",
            "--for", "1.5", "--json",
        )  # fmt: skip
    report = json.loads(output)
    assert code == 0
    assert (report["lost_count"], report["duplicated_count"], report["reordered_count"]) == (0, 0, 0)
    assert report["other_violations"] == []
    assert report["delivered_count"] >= report["expected_count"] > 0
    assert report["clients"] == {"B1": 10, "B2": 0}


def test_a_broker_that_is_not_in_the_file_is_refused() -> None:
    code, output = trimtab("load", str(HOTSPOT), "--broker", "B9")
    assert (code, output) == (2, "--broker: no broker is named B9; there are B0, B1, B2, B3, B4\n")


def test_a_rate_of_nothing_is_refused() -> None:
    assert trimtab("load", str(HOTSPOT), "--rate", "0") == (2, "--rate: expected a number above 0\n")


def test_a_wrong_policy_ends_every_command_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "net.toml"
    file.write_text('[policy]\nname = "magic"\n[[broker]]\nname = "B1"\nlisten = "127.0.0.1:7001"\n', encoding="utf-8")
    for command in ("up", "status", "load"):
        code, error = trimtab(command, str(file))
        assert code == 2 and error.startswith(f"{file}:1: no policy is called magic; expected one of none, naive")
