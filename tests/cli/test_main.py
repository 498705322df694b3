"""What the `trimtab` command does before any of its subcommands runs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab import __version__
from trimtab.cli.main import app
from trimtab.matching.engines import ENGINE_VARIABLE


def test_version_prints_the_name_and_the_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"trimtab {__version__}\n")


def test_an_unknown_command_is_refused_with_exit_code_2() -> None:
    assert CliRunner().invoke(app, ["no-such-command"]).exit_code == 2


def test_python_m_trimtab_is_the_same_command() -> None:
    answer = subprocess.run([sys.executable, "-m", "trimtab", "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout == f"trimtab {__version__}\n"


def test_a_reader_that_leaves_early_is_met_with_silence(tmp_path: Path) -> None:
    filters = tmp_path / "filters.txt"
    filters.write_text("[v,>,5]\n" * 20_000, encoding="utf-8")
    publications = tmp_path / "publications.txt"
    publications.write_text("[v,6]\n" * 20, encoding="utf-8")
    command = [sys.executable, "-m", "trimtab", "match", "--filters", str(filters), "--publications", str(publications)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


def test_interrupting_ends_quietly_with_130() -> None:
    command = [sys.executable, "-m", "trimtab", "cover", "--filters", "-"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    # More than a pipe holds: once it is written, the command is reading.
    process.stdin.write(b"# comment\n" * 100_000)
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()
    assert (process.returncode, stdout, stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    "arguments",
    [
        ("cover", "--filters", "-"),
        ("match", "--filters", "-", "--publications", os.devnull),
        ("bench", "match", "--filters", "10"),
        ("tour",),
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_an_engine_that_there_is_not_is_refused_without_a_traceback(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "trimtab", *arguments]
    environment = {**os.environ, ENGINE_VARIABLE: "steam"}
    answer = subprocess.run(command, input="", capture_output=True, text=True, check=False, env=environment)
    reason = "unknown matching engine 'steam'; use auto, kernel or python\n"
    assert (answer.returncode, answer.stderr) == (2, reason)


def test_brackets_in_arguments_are_not_markup() -> None:
    result = CliRunner().invoke(app, ["[bold]no-such-command[/bold]"])
    assert result.exit_code == 2
    assert "[bold]no-such-command[/bold]" in result.stderr


def test_help_lists_the_commands() -> None:
    help_text = CliRunner().invoke(app, ["--help"]).stdout
    for command in ("match", "relate", "cover", "bench", "tour"):
        assert command in help_text


def test_starting_loads_nothing_heavy() -> None:
    script = "import json, sys, trimtab.cli.main; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = json.loads(answer.stdout)
    assert [
        name for name in ("numpy", "asyncio", "trimtab.lab", "trimtab.simulation", "rich.console") if name in loaded
    ] == []
