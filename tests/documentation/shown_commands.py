"""The commands that pages show, and a shell to run them in: ports of examples are free ones, files are copies."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trimtab.network.admin.local_network import free_ports

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

ELSEWHERE: Final = {
    r"spark://|/shared/|hdfs-or-shared": "needs a Spark cluster",
    r"/backup/|/var/lib/": "needs a broker that an operator has installed",
    r"\bnetwork\.toml|my-|my\.toml|quotes\.csv|-none\.toml|reports\.jsonl": "needs a file of the reader's",
    r"\b(NETWORK\.toml|DIR|STUDY|PID|N|S|FILE)\b|(^| )\[": "is a form to be filled in",
    r"^trimtab (status examples/failover|policy|drain|replace|restart)": "needs a network that runs: tests/network",
}
"""Commands that are parsed here and not run, by what stands in them, and why."""

LONG: Final = re.compile(
    r"^trimtab (bench|demo|lab|load|plan|active|sessions|story|figures|sim replication-table"
    r"|sim fuzz (?!--runs 2 )|sim fuzz --bugs|sim explore --case (?!handover)|sim run (?!figure-2-2|stock-small))"
)
"""Commands that take longer than some seconds, or stand on one that does."""

STAYS: Final = re.compile(r"^trimtab (--as \S+ )?(up|sub|broker|coordinator|standby|active start|dashboard)\b")
"""Commands that go on until they are ended."""

READY_WITHIN_S: Final = 60.0
ANSWERS_WITHIN_S: Final = 300.0


@dataclass(frozen=True)
class ShownCommand:
    """A command as a page shows it."""

    page: str
    text: str
    fails: bool
    """Whether the page says that its exit code is not 0."""

    @property
    def elsewhere(self) -> str:
        """Why it is not run here, if it is not."""
        return next((why for shape, why in ELSEWHERE.items() if re.search(shape, _without_quoted(self.text))), "")

    @property
    def is_long(self) -> bool:
        """Whether it takes longer than some seconds."""
        return LONG.search(self.text) is not None


def shown_commands(page: Path) -> list[list[ShownCommand]]:
    """The commands of each block of a page; `tests/test_readme.py` runs those that are shown with their output."""
    blocks: list[list[ShownCommand]] = []
    is_in_block = False
    for line in _joined(page.read_text(encoding="utf-8").splitlines()):
        if not line.startswith("    "):
            is_in_block = is_in_block and not line.strip()
            continue
        if not is_in_block:
            blocks.append([])
            is_in_block = True
        line, _, remark = line.removeprefix("    ").partition("  #")
        if line.startswith("$ ") and page.name == "README.md":
            continue
        for text in line.removeprefix("$ ").split(" && "):
            if text.startswith("trimtab "):
                name = page.relative_to(ROOT).as_posix()
                blocks[-1].append(ShownCommand(name, text.strip(), fails="exit code 1" in remark))
    return [block for block in blocks if block]


def _joined(lines: list[str]) -> Iterator[str]:
    """Lines, with those that a backslash ends and their following ones as one."""
    held = ""
    for line in lines:
        if line.endswith("\\"):
            held += f"{line.removesuffix(chr(92))} " if not held else f"{line.strip().removesuffix(chr(92))} "
            continue
        yield held + line.strip() if held else line
        held = ""


def _without_quoted(text: str) -> str:
    return re.sub(r"\"[^\"]*\"|'[^']*'", "''", text)


class Shell:
    """Runs the commands of a page, one after the other; what stays runs until the end of its block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.copytree(ROOT / "examples", folder / "examples")
        self._ports: dict[str, str] = {}
        for file in sorted((folder / "examples").glob("*.toml")):
            file.write_text(self._with_free_ports(file.read_text(encoding="utf-8")), encoding="utf-8")
        self._running: list[subprocess.Popen[str]] = []

    def run(self, command: ShownCommand) -> None:
        """Run a command as it stands there, or start it if it stays."""
        arguments = [sys.executable, "-m", *shlex.split(self._with_free_ports(command.text))]
        if STAYS.search(command.text):
            self._start(arguments)
            return
        answer = subprocess.run(
            arguments, cwd=self._folder, capture_output=True, text=True, check=False, timeout=ANSWERS_WITHIN_S
        )
        ends = f"{answer.stdout[-2000:]}{answer.stderr[-2000:]}"
        said = f"{command.page}: {command.text}: exit code {answer.returncode}\n{ends}"
        assert answer.returncode == (1 if command.fails else 0), said
        assert "Traceback" not in answer.stderr, said

    def _start(self, arguments: list[str]) -> None:
        process = subprocess.Popen(
            arguments,
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self._running.append(process)
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, f"{shlex.join(arguments)} said nothing and ended with exit code {process.wait()}"
        assert "rror" not in first, f"{shlex.join(arguments)}: {first}"

    def end_block(self) -> None:
        """End what still runs, the last first, as Ctrl-C does."""
        while self._running:
            process = self._running.pop()
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=READY_WITHIN_S)
            finally:
                process.kill()

    def _with_free_ports(self, text: str) -> str:
        def free(found: re.Match[str]) -> str:
            if found[0] not in self._ports:
                self._ports[found[0]] = f"127.0.0.1:{free_ports(1)[0]}"
            return self._ports[found[0]]

        return re.sub(r"127\.0\.0\.1:7\d\d\d", free, text)
