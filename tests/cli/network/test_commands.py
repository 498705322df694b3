"""The commands up, broker, sub, pub and status, as their users meet them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab import Network
from trimtab.cli.main import app
from trimtab.network.admin.local_network import free_ports, plan_text


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network.of(["B1", "B2"], [("B1", "B2")]) as running:
        yield running


def trimtab(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trimtab", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=30, check=False)


def subscriber(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trimtab", "sub", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "subscribed\n"
    return process


def test_a_publication_is_printed_once_though_two_alternatives_match(network: Network) -> None:
    process = subscriber("--broker", network.address("B2"), "a > 5 OR b > 5", "--count", "2", "--json")
    published = trimtab("pub", "--broker", network.address("B1"), "[a,9],[b,9]", "[a,1],[b,1]", "a = 7")
    assert (published.returncode, published.stdout) == (0, "")
    assert re.fullmatch(r"B1 has accepted 3 publications of client-\w+\n", published.stderr)
    stdout, _ = process.communicate(timeout=20)
    shown = [json.loads(line) for line in stdout.splitlines()]
    assert process.returncode == 0
    assert [each["publication"] for each in shown] == [{"a": 9, "b": 9}, {"a": 7}]
    assert [(each["sequence"], each["hops"]) for each in shown] == [(1, 2), (3, 2)]
    assert set(shown[0]) == {"publication", "publisher", "sequence", "delay_s", "hops"}


def test_deliveries_that_took_longer_than_wanted_are_marked_and_counted(network: Network) -> None:
    process = subscriber("--broker", network.address("B2"), "late > 5", "--count", "1", "--json", "--within", "1us")
    assert trimtab("pub", "--broker", network.address("B1"), "late = 9").returncode == 0
    stdout, stderr = process.communicate(timeout=20)
    assert json.loads(stdout)["late"] is True
    assert stderr == "1 of 1 deliveries took more than 1e-06 s\n"


def test_lines_of_standard_input_are_published(network: Network) -> None:
    process = subscriber("--broker", network.address("B1"), "n > 0", "--count", "300")
    lines = "".join(f"[n,{number}]\n" for number in range(301)) + "# a comment\n\n[other,'kind']\n"
    assert trimtab("pub", "--broker", network.address("B2"), "-", stdin=lines).returncode == 0
    stdout, _ = process.communicate(timeout=20)
    assert [line.split(" ", 2)[2] for line in stdout.splitlines()] == [f"[n,{number}]" for number in range(1, 301)]


def test_a_wrong_line_is_named_after_what_came_before_it_was_published(network: Network) -> None:
    process = subscriber("--broker", network.address("B1"), "n > 0", "--count", "1", "--for", "10")
    answer = trimtab("pub", "--broker", network.address("B1"), "-", stdin="[n,5]\n[n,\n[n,6]\n")
    assert answer.returncode == 2
    assert answer.stderr.startswith("standard input:2:")
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_what_is_not_announced_is_refused_with_exit_code_1(network: Network) -> None:
    answer = trimtab("pub", "--broker", network.address("B1"), "--advertise", "a > 5", "[a,9]", "[a,1]")
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[0] == (
        "refused: [a,1]: no advertisement of this client announces the publication: [a,1] is not announced"
    )
    assert answer.stderr.splitlines()[1].startswith("B1 has accepted 1 publication of client-")


def test_an_open_advertisement_admits_further_attributes_of_nested_json(network: Network) -> None:
    process = subscriber("--broker", network.address("B2"), "address.city = 'Ayr'", "--count", "1", "--json")
    order = '{"class": "ORDER", "address": {"city": "Ayr", "zip": null}, "tags": ["new"]}'
    pub = ("pub", "--broker", network.address("B1"), "--name", "shop", "--advertise", "class = 'ORDER'", "--open")
    published = trimtab(*pub, order)
    assert (published.returncode, published.stderr) == (0, "B1 has accepted 1 publication of shop\n")
    stdout, _ = process.communicate(timeout=20)
    assert json.loads(stdout)["publication"] == {"class": "ORDER", "address.city": "Ayr", "tags.0": "new"}


def test_too_few_deliveries_in_time_are_exit_code_1(network: Network) -> None:
    process = subscriber("--broker", network.address("B1"), "never > 0", "--count", "2", "--for", "0.2")
    _, stderr = process.communicate(timeout=20)
    assert (process.returncode, stderr) == (1, "0 of 2 deliveries came within 0.2 s\n")


def test_sigterm_ends_a_subscriber_cleanly(network: Network) -> None:
    process = subscriber("--broker", network.address("B1"), "a > 0")
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 0


def test_status_tells_links_and_clients(network: Network, tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(plan_text(network.plan), encoding="utf-8")
    process = subscriber("--broker", network.address("B1"), "a > 0", "--for", "20")
    answer = trimtab("status", str(file), "--json")
    shown = json.loads(answer.stdout)
    assert answer.returncode == 0
    assert shown["links"] == [["B1", "B2"]]
    assert shown["brokers"]["B1"]["subscriptions_count"] == 1
    assert sorted(peer["role"] for peer in shown["brokers"]["B1"]["peers"]) == ["broker", "client"]
    assert "B2" in trimtab("status", str(file)).stdout
    process.terminate()
    process.communicate(timeout=20)


def test_status_of_a_network_that_does_not_run_is_exit_code_1(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(plan_text(Network.of(["B1"]).plan), encoding="utf-8")
    answer = trimtab("status", str(file), "--json")
    assert (answer.returncode, json.loads(answer.stdout)["brokers"]) == (1, {"B1": None})


def test_up_reports_a_broker_that_dies_and_stops_on_sigterm(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    plan = Network.of(["B1", "B2"], [("B1", "B2")]).plan
    file.write_text(plan_text(plan), encoding="utf-8")
    command = [sys.executable, "-m", "trimtab", "up", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    pid = json.loads(trimtab("status", str(file), "--json").stdout)["brokers"]["B2"]["pid"]
    subprocess.run(["kill", "-KILL", str(pid)], check=True)
    assert "broker B2 has ended with exit code -9\n" in iter(process.stderr.readline, "")
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 1


def test_a_port_in_use_is_said(network: Network, tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(plan_text(network.plan), encoding="utf-8")
    answer = trimtab("broker", "B1", str(file))
    assert answer.returncode == 1
    assert answer.stderr == f"broker B1 cannot listen at {network.address('B1')}: Address already in use\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["up", "nowhere.toml"], "nowhere.toml: cannot be read: No such file or directory"),
        (["status", "nowhere.toml"], "nowhere.toml: cannot be read"),
        (["sub", "--broker", "here", "a > 1"], "--broker: 'here' is not an address; expected HOST:PORT"),
        (["sub", "--broker", "127.0.0.1:1", "a >"], "FILTER 1, column"),
        (["sub", "--broker", "127.0.0.1:1", "a > 1", "--within", "soon"], "--within: 'soon' is not a duration"),
        (["sub", "--broker", "127.0.0.1:1", "a > 1", "--for", "nan"], "--for: expected a number of seconds above 0"),
        (["pub", "--broker", "127.0.0.1:1", "[a,"], "PUBLICATION 1, column"),
        (["pub", "--broker", "127.0.0.1:1", "--advertise", "a >", "[a,1]"], "--advertise, column"),
        (["pub", "--broker", "127.0.0.1:1", "[a,1]", "--open"], "--open is for --advertise"),
        (["pub", "--broker", "127.0.0.1:1", "[a,1]", "-"], "- (standard input) cannot stand beside other"),
    ],
)
def test_bad_input_is_named_with_exit_code_2(arguments: list[str], expected: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stderr.startswith(expected)) == (2, True), result.stderr


def test_a_broker_that_the_file_does_not_have_is_named(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(f'[[broker]]\nname = "B1"\nlisten = "127.0.0.1:{free_ports(1)[0]}"\n', encoding="utf-8")
    result = CliRunner().invoke(app, ["broker", "B7", str(file)])
    assert (result.exit_code, result.stderr) == (2, f"{file}: no broker is named B7; there are B1\n")


def test_nobody_at_the_address_is_exit_code_1() -> None:
    result = CliRunner().invoke(app, ["pub", "--broker", "127.0.0.1:1", "[a,1]"])
    assert (result.exit_code, result.stderr) == (1, "no broker at 127.0.0.1:1: Connection refused\n")


@pytest.mark.parametrize("command", ["up", "broker", "sub", "pub", "status"])
def test_help_has_an_example(command: str) -> None:
    assert f"trimtab {command}" in CliRunner().invoke(app, [command, "--help"]).stdout.split("Example:")[1]
