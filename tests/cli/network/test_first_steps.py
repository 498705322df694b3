"""What a newcomer types first: up without a file, init, examples, and what happens the second time."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console
from typer.testing import CliRunner

from trimtab import Network
from trimtab.cli.main import app
from trimtab.cli.network.balancing_table import balancing_table
from trimtab.cli.network.up import next_steps, peers_table, status_table
from trimtab.network.admin.examples import network_examples, one_broker
from trimtab.network.admin.local_network import NetworkError, free_ports, plan_text
from trimtab.network.links.address import Address
from trimtab.network.network_file import NetworkOptions, NetworkPlan, read_network_file

ENDS_WITHIN_S = 30.0


def trimtab(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trimtab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=ENDS_WITHIN_S, cwd=cwd)


@contextmanager
def up(*arguments: str) -> Iterator[list[str]]:
    """`trimtab up` as long as it is needed, and the lines that it printed until what to type next."""
    command = [sys.executable, "-m", "trimtab", "up", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        if "--example" in arguments or not arguments:
            lines += [process.stdout.readline() for _ in range(5)]
        try:
            yield lines
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=ENDS_WITHIN_S)


def write(plan: NetworkPlan, folder: Path) -> str:
    file = folder / "network.toml"
    file.write_text(plan_text(plan), encoding="utf-8")
    return str(file)


def pids(network: Network) -> dict[str, int]:
    return {name: status.pid for name, status in network.status().items() if status is not None}


# ---- a second network at the same addresses ----


def test_a_second_network_at_the_same_addresses_fails_and_touches_nobody(tmp_path: Path) -> None:
    with Network.of(["B1", "B2"], [("B1", "B2")]) as first:
        before = pids(first)
        answer = trimtab("up", write(first.plan, tmp_path))
        assert (answer.returncode, answer.stdout) == (1, "")
        assert answer.stderr.splitlines() == [
            f"broker B1 cannot listen at {first.address('B1')}: broker B1 (process {before['B1']}) does. "
            "Does this network run already? Nothing was started or ended."
        ]
        assert pids(first) == before


def test_another_program_at_an_address_is_said(tmp_path: Path) -> None:
    with Network.of(["B1"]) as other:
        address = Address.parse(other.address("B1"))
        plan = Network.of(["A", "B"], [("A", "B")]).plan
        taken = replace(plan, brokers=(plan.brokers[0], replace(plan.brokers[1], listen=address)))
        with pytest.raises(NetworkError, match=rf"broker B cannot listen at {address}: broker B1 \(process"):
            Network(taken).start()


def test_brokers_that_another_network_has_started_since_are_left_alone() -> None:
    """All brokers of a network die, and somebody starts others at their addresses: they are not ended with it."""
    first = Network.of(["B1"])
    first.start()
    first.kill_broker("B1")
    with Network(first.plan) as second:
        before = pids(second)
        first.stop()
        assert pids(second) == before


# ---- without a file ----


def test_what_to_type_next_works_as_it_is_printed(tmp_path: Path) -> None:
    plan = Network.of(["B1"]).plan
    assert next_steps(one_broker(), None).splitlines()[0] == "B1 listens at 127.0.0.1:7001. In other terminals:"
    subscribe, publish, status = (line.strip() for line in next_steps(plan, None).splitlines()[1:4])
    with up(write(plan, tmp_path)) as lines:
        assert lines == ["ready\n"]
        reading = ["sh", "-c", f"exec {sys.executable} -m {subscribe} --count 1"]
        with subprocess.Popen(reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
            assert reader.stderr is not None and reader.stderr.readline() == "subscribed\n"
            subprocess.run(["sh", "-c", f"{sys.executable} -m {publish}"], check=True, timeout=ENDS_WITHIN_S)
            assert "[class,'STOCK'],[volume,412000]" in reader.communicate(timeout=ENDS_WITHIN_S)[0]
        assert status == "trimtab status"


def test_an_example_is_started_by_its_name() -> None:
    assert {"seven", "hotspot", "failover"} <= set(network_examples())
    assert "own_scenario" not in network_examples()
    result = CliRunner().invoke(app, ["up", "--example", "eight"])
    assert (result.exit_code, result.stderr.startswith("--example: no network is named eight; there are")) == (2, True)
    result = CliRunner().invoke(app, ["status", "--example", "seven", "--json"])
    assert sorted(json.loads(result.stdout)["brokers"]) == [f"B{number}" for number in range(1, 8)]


def test_examples_are_listed_printed_and_copied(tmp_path: Path) -> None:
    assert "seven" in trimtab("examples").stdout
    assert trimtab("examples", "seven").stdout == network_examples()["seven"].read_text(encoding="utf-8")
    assert trimtab("examples", "--copy-to", "mine", cwd=tmp_path).returncode == 0
    assert read_network_file(tmp_path / "mine" / "seven.toml") == read_network_file(network_examples()["seven"])
    assert trimtab("examples", "--copy-to", "mine", cwd=tmp_path).stdout == "0 examples copied to mine\n"


def test_init_writes_a_network_that_starts_and_never_twice(tmp_path: Path) -> None:
    assert trimtab("init", cwd=tmp_path).stdout == (
        "network.toml describes three brokers. Start them with: trimtab up network.toml\n"
    )
    file = tmp_path / "network.toml"
    text = file.read_text(encoding="utf-8")
    assert [entry.name for entry in read_network_file(file).brokers] == ["B1", "B2", "B3"]
    again = trimtab("init", cwd=tmp_path)
    assert (again.returncode, file.read_text(encoding="utf-8")) == (2, text)
    assert again.stderr == "network.toml: is there already, and stays as it is; give another name\n"
    defaults = NetworkOptions()
    for key, value in re.findall(r"^# (\w+) = (\S+) ", text.split("[[broker]]", maxsplit=1)[0], re.MULTILINE):
        assert getattr(defaults, key) == json.loads(value), key
    for port, taken in zip(free_ports(3), ("7001", "7002", "7003"), strict=True):
        text = text.replace(taken, str(port))
    file.write_text(text, encoding="utf-8")
    with up(str(file)) as lines:
        assert lines == ["ready\n"]


def test_a_network_in_two_pieces_gets_a_warning(tmp_path: Path) -> None:
    plan = Network.of(["B1", "B2", "B3"], [("B1", "B3")]).plan
    result = CliRunner().invoke(app, ["status", write(plan, tmp_path)])
    assert result.stderr == "warning: the network is in 2 pieces without a link between them: B1, B3 | B2\n"


# ---- 80 columns ----


def test_the_tables_of_status_fit_80_columns() -> None:
    with Network.of(["Broker-1", "B2", "B3"], [("Broker-1", "B2"), ("B2", "B3")]) as network:
        found = network.status()
    busy = {
        name: replace(
            status, publications_in_per_s=12_345.0, publications_out_per_s=98_765.0, subscriptions_count=10_000
        )
        for name, status in found.items()
        if status is not None
    }
    console = Console(width=80, record=True, file=StringIO())
    for table in (status_table(busy), balancing_table(busy), peers_table(busy)):
        console.print(table)
    shown = console.export_text()
    assert "…" not in shown and "12,345" in shown and "98,765" in shown and "10,000" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert all(line.count("up") == 1 for line in shown.splitlines() if "12,345" in line)
