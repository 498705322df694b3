"""Commands without the libraries that extras bring: one line says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.cli.extras import EXTRAS

RUN_WITHOUT = """
import sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None  # as if it were not installed
sys.argv = ["trimtab", *sys.argv[2:]]
from trimtab.cli.main import main
main()
"""


def without_extras(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN_WITHOUT, ",".join(EXTRAS), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("sim list", "lab"),
        ("sim run stock-small", "lab"),
        ("sim fuzz --runs 2", "lab"),
        ("plan examples/seven.toml", "lab"),
        ("figures results", "lab"),
        ("lab list", "active,lab"),
        ("story S1 --records RECORDS", "lab"),
        ("sessions --records RECORDS", "lab"),
        ("active start --dir RECORDS/active", "active"),
        ("coordinator examples/coordinated.toml", "coordinator"),
        ("demo --minutes 1", "active,lab"),
        ("up --records RECORDS/new", "lab"),
        ("load examples/hotspot.toml", "lab"),
        ("bench match", "lab"),
    ],
)
def test_one_line_says_what_to_install(command: str, extra: str, tmp_path: Path) -> None:
    (tmp_path / "moves").mkdir()
    answer = without_extras(*command.replace("RECORDS", str(tmp_path)).split())
    assert answer.returncode in (1, 2)
    assert answer.stdout == ""
    assert len(answer.stderr.splitlines()) == 1
    assert f"pip install 'trimtab[{extra}]'" in answer.stderr


@pytest.mark.parametrize("command", ["--help", "examples", "tour", "relate a>1 a>2", "sub --help"])
def test_what_needs_no_extra_works_without(command: str) -> None:
    assert without_extras(*command.split()).returncode == 0
