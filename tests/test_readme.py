"""What README.md shows is what a new user sees."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def shown_sessions() -> list[tuple[str, str]]:
    """Each shell command of the page with the output that is shown below it."""
    sessions: list[tuple[str, list[str]]] = []
    output: list[str] | None = None
    blank_lines: list[str] = []
    for line in README.read_text(encoding="utf-8").splitlines():
        if line.startswith("    $ "):
            output = []
            sessions.append((line.removeprefix("    $ "), output))
        elif line.startswith("    ") and output is not None:
            output += [*blank_lines, line.removeprefix("    ")]
        elif not line and output is not None:
            blank_lines.append(line)
            continue
        else:
            output = None
        blank_lines.clear()
    return [(command, "".join(f"{line}\n" for line in output)) for command, output in sessions]


def test_the_commands_print_what_is_shown(tmp_path: Path) -> None:
    commands = []
    for command, output in shown_sessions():
        name, *arguments = shlex.split(command)
        if name == "cat":  # the files that the reader is to imagine
            (tmp_path / arguments[0]).write_text(output, encoding="utf-8")
            continue
        assert name in ("trimtab", "python")
        answer = subprocess.run(
            [sys.executable, *(["-m", "trimtab"] if name == "trimtab" else []), *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert answer.stdout == output, command
        commands.append(arguments[0])
    assert {"hello.py", "match", "relate", "cover"} <= set(commands)


def test_it_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 110


def test_every_page_that_is_linked_exists() -> None:
    """Those under reference/ are made from the code when the site is built, which checks its links itself."""
    pages = [README, *sorted((README.parent / "docs").glob("**/*.md")), README.parent / "CONTRIBUTING.md"]
    missing = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists() and "reference/" not in target
    ]
    assert missing == []
