"""`trimtab active subscriptions`, `dead-letters` and `executions`: what stands behind the counts of the status."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from trimtab.cli.active.service import (
    LISTEN,
    ActiveService,
    AtOption,
    JsonOption,
    RefusedRequest,
    TokenOption,
    token_from,
)
from trimtab.cli.active.tables import print_table
from trimtab.cli.input_lines import printable, refuse

LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, metavar="N", help="How many at most.")]


def subscriptions(
    channel: Annotated[str | None, typer.Option("--channel", metavar="NAME", help="Only those of a channel.")] = None,
    limit: LimitOption = 100,
    at: AtOption = LISTEN,
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Subscriptions with their arguments, brokers and state; PAUSE and RESUME SUBSCRIPTION change it.

    \b
    Example:
      trimtab active subscriptions --channel EmergencyOfType
    """
    where = "" if channel is None else f" WHERE lower(channel) = lower({_quoted(channel)})"
    query = f"SELECT * FROM subscriptions{where} ORDER BY id LIMIT {limit}"  # noqa: S608 (quoted)
    rows = _asked(lambda service: service.statements(query)[0]["rows"], at, token_file)
    _print("subscriptions", rows, as_json=as_json)


def dead_letters(
    feed: Annotated[str | None, typer.Option("--from", metavar="NAME", help="A feed, channel or broker.")] = None,
    limit: LimitOption = 20,
    at: AtOption = LISTEN,
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Records that could not be used, newest first, with where they came from and the reason.

    \b
    Example:
      trimtab active dead-letters --from reports
    """
    where = "" if feed is None else f" WHERE lower(feed) = lower({_quoted(feed)})"
    columns = "timestamp_micros(time_us) AS at, feed, source, place, reason, record"
    query = f"SELECT {columns} FROM dead_letters{where} ORDER BY time_us DESC, place DESC LIMIT {limit}"  # noqa: S608 (quoted)
    rows = _asked(lambda service: service.statements(query)[0]["rows"], at, token_file)
    _print("dead letters", rows, as_json=as_json)


def executions(
    limit: LimitOption = 20,
    plans: Annotated[bool, typer.Option("--plans", help="With the plan of each, where it was planned anew.")] = False,
    at: AtOption = LISTEN,
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """The last executions of channels, newest first: how much, how long, and which way they took.

    \b
    Example:
      trimtab active executions --limit 5 --plans
    """
    found = _asked(lambda service: service.executions(limit), at, token_file)
    if as_json:
        _print("executions", found, as_json=True)
        return
    rows = [
        {
            "ended": datetime.datetime.fromtimestamp(each["ended_s"]).strftime("%H:%M:%S"),
            "channels": ", ".join(each["channels"]),
            "took_s": each["took_s"],
            "records": each["records_count"],
            "results": each["results_count"],
            "path": each["path"],
        }
        for each in found
    ]
    print_table("executions", rows)
    if plans:
        for row, each in zip(rows, found, strict=True):
            if each["plan"]:
                typer.echo(f"\n{row['ended']} {row['channels']}\n{printable(each['plan'])}")


def _asked(ask: Callable[[ActiveService], list[dict[str, Any]]], at: str, token_file: Any) -> list[dict[str, Any]]:
    try:
        return ask(ActiveService(at, token_from(token_file)))
    except RefusedRequest as error:
        refuse(str(error))


def _print(title: str, rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if not as_json:
        print_table(title, rows)
        return
    for row in rows:
        typer.echo(json.dumps(row))


def _quoted(text: str) -> str:
    """A text as a value in SQL."""
    inner = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{inner}'"
