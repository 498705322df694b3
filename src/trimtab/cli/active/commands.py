"""The commands of active data: start, run, sql, feed, status, backup, restore."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from trimtab.cli.active.backup_commands import backup, restore
from trimtab.cli.active.emergency import scenario
from trimtab.cli.active.inspection import dead_letters, executions, subscriptions
from trimtab.cli.active.service import (
    LISTEN,
    ActiveService,
    AtOption,
    JsonOption,
    RefusedRequest,
    TokenOption,
    token_from,
)
from trimtab.cli.active.start import start
from trimtab.cli.active.tables import print_answers, print_table
from trimtab.cli.input_lines import STDIN, printable, refuse
from trimtab.cli.plain_help import PlainTyper

FEED_BYTES: Final = 1024 * 1024
"""So much of a file is posted at a time."""

STATUS_WIDTH_CHARS: Final = 80
"""Where there is no terminal. The status has the columns that people need; --json has all."""

STATUS_COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    "datasets": {"name": "name", "active": "active", "records": "records_count"},
    "feeds": {
        "name": "name",
        "dataset": "dataset",
        "runs": "running",
        "accepted": "accepted_count",
        "repeated": "repeated_count",
        "rejected": "rejected_count",
        "source": "source",
    },
    "channels": {
        "name": "name",
        "every s": "period_s",
        "subs": "subscriptions_count",
        "behind": "behind_count",
        "results": "results_count",
        "latency s": "last_latency_s",
        "suspended": "suspended_count",
    },
    "brokers": {
        "name": "name",
        "address": "address",
        "subs": "subscriptions_count",
        "silent s": "silent_s",
        "published": "published_count",
    },
}
"""What the status shows of each table, by heading."""

app = PlainTyper(help="Active data on Spark: datasets, feeds, channels and results.")


app.command()(start)
app.command()(subscriptions)
app.command(name="dead-letters")(dead_letters)
app.command()(executions)
app.command()(scenario)
app.command()(backup)
app.command()(restore)


@app.callback()
def _group() -> None:
    pass


@app.command()
def run(
    file: Annotated[str, typer.Argument(metavar="FILE.sql", help="Statements; - for standard input.")],
    at: AtOption = LISTEN,
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the statements of a file one after the other; the first mistake ends it with exit code 2.

    \b
    Example:
      trimtab active run examples/emergency.sql
    """
    from trimtab.activedata.definitions.statements import parse_statements
    from trimtab.activedata.errors import StatementError

    name = "standard input" if file == STDIN else file
    try:
        text = sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"{name}: {error}")
    try:
        statements = parse_statements(text)
    except StatementError as error:
        refuse(f"{name}: {error}\n{error.pointer()}")
    service = ActiveService(at, token_from(token_file))
    with _progress(len(statements), "statements") as advance:
        for placed in statements:
            # Blank lines and spaces before a statement keep its lines and columns those of the file.
            before = "".join(char if char == "\n" else " " for char in text[: placed.start])
            try:
                answers = service.statements(before + text[placed.start : placed.end])
            except RefusedRequest as error:
                refuse(f"{name}: {error}")
            advance(1)
            print_answers(answers, as_json=as_json)


@app.command()
def sql(
    statements: Annotated[str, typer.Argument(metavar="STATEMENTS", help="Statements, separated by semicolons.")],
    at: AtOption = LISTEN,
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run statements and print what they answer; rows as a table, or with --json one object per row.

    \b
    Example:
      trimtab active sql "SELECT event, count(*) FROM Reports GROUP BY event"
      trimtab active sql "SUBSCRIBE TO EmergencyOfType('flood') ON B1"
    """
    try:
        print_answers(ActiveService(at, token_from(token_file)).statements(statements), as_json=as_json)
    except RefusedRequest as error:
        refuse(str(error))


@app.command()
def feed(
    name: Annotated[str, typer.Argument(metavar="FEED", help="A feed from HTTP that is started.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="Records as JSON lines; - for standard input.")],
    at: AtOption = LISTEN,
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give records to a feed. Those that are refused are in dead_letters; exit code 1 if there were any.

    \b
    Example:
      trimtab active feed reports reports.jsonl
    """
    service = ActiveService(at, token_from(token_file))
    totals = {"accepted": 0, "rejected": 0, "repeated": 0}
    try:
        size = None if file == STDIN else Path(file).stat().st_size
        with (
            sys.stdin.buffer if file == STDIN else Path(file).open("rb") as source,
            _progress(size, "bytes") as advance,
        ):
            while lines := source.readlines(FEED_BYTES):
                part = b"".join(lines)
                for key, count in service.feed(name, part).items():
                    totals[key] += count
                advance(len(part))
    except OSError as error:
        refuse(f"{file}: {error.strerror}")
    except RefusedRequest as error:
        refuse(str(error))
    if as_json:
        typer.echo(json.dumps(totals))
    else:
        typer.echo(f"{totals['accepted']:,} accepted, {totals['rejected']:,} rejected")
    if totals["rejected"]:
        raise typer.Exit(1)


@app.command()
def status(at: AtOption = LISTEN, token_file: TokenOption = None, as_json: JsonOption = False) -> None:
    """Feeds, datasets, channels with their last latency and counts, and brokers with their subscriptions.

    \b
    Example:
      trimtab active status --json
    """
    try:
        found = ActiveService(at, token_from(token_file)).status()
    except RefusedRequest as error:
        refuse(str(error))
    if as_json:
        typer.echo(json.dumps(found))
        return
    pages = f", its pages at {found['spark_ui']}" if found["spark_ui"] else ""
    typer.echo(f"{found['directory']} on {found['spark']}{pages}, {found['position']:,} results")
    for title, columns in STATUS_COLUMNS.items():
        rows = found[title]
        shown = [{heading: row[key] for heading, key in columns.items()} for row in rows]
        print_table(title, shown, STATUS_WIDTH_CHARS)
        for row in rows:
            if row.get("error"):
                typer.echo(printable(f"  {row['name']}: {row['error']}"))


@contextmanager
def _progress(total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while work goes on, in a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(unit, total=total)
        yield lambda count: progress.advance(task, count)
