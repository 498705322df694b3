"""Channels that run their whole body: periodically over any datasets, or when any of several has new records.

Source: the Big Active Data paper (003), "BAD Subscriptions": a repetitive channel is a function with parameters that
runs at an interval. Each subscription gets what the body gives with its arguments in place of the parameters. One query
does that for all: the table of subscriptions, joined laterally with the body whose parameters are columns of it. Spark
takes such a query apart into joins and groups by subscription; a body that it cannot take apart (parameters in nested
queries, mostly) is refused when the channel is defined.

`is_new(alias)` holds for records that came after the channel's last execution and up to this one. The times of both can
be asked for: `previous_execution_time()` and `current_execution_time()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trimtab.activedata.definitions.bodies import closed_part
from trimtab.activedata.definitions.fields import Field
from trimtab.activedata.definitions.tokens import Token, split_tokens
from trimtab.activedata.errors import StatementError
from trimtab.activedata.execution.channel_queries import SUBSCRIPTIONS, Dataset, parameter_column

TIMES: Final = ("previous_execution_time", "current_execution_time")

_SUBSCRIPTIONS_VIEW: Final = "\x01subscriptions\x01"
_NOT_AN_ALIAS: Final = frozenset(
    [
        "WHERE",
        "GROUP",
        "ORDER",
        "HAVING",
        "LIMIT",
        "JOIN",
        "INNER",
        "LEFT",
        "RIGHT",
        "FULL",
        "CROSS",
        "NATURAL",
        "SEMI",
        "ANTI",
        "ON",
        "USING",
        "UNION",
        "INTERSECT",
        "EXCEPT",
        "MINUS",
        "WINDOW",
        "LATERAL",
        "TABLESAMPLE",
        "PIVOT",
        "UNPIVOT",
        "QUALIFY",
        "CLUSTER",
        "DISTRIBUTE",
        "SORT",
        "OFFSET",
        "SELECT",
    ]
)


class WholeState(msgspec.Struct, frozen=True):
    """How far a channel is: its last execution, when that was, and the last record that it saw of each dataset."""

    execution: int = 0
    executed_us: int = 0
    positions: dict[str, int] = {}


class WholeQuery(msgspec.Struct, frozen=True):
    """A compiled body; `new_in` are the datasets (in lower case) whose new records it asks for."""

    body: str
    datasets: tuple[str, ...]
    new_in: tuple[str, ...]

    @property
    def driver(self) -> str:
        """The dataset whose numbers subscriptions begin at, if there is one."""
        return self.new_in[0] if self.new_in else ""

    @property
    def lookups(self) -> tuple[str, ...]:
        """Everything that it reads."""
        return self.datasets

    def text(self, subscriptions_view: str, before: WholeState, now: WholeState) -> str:
        """The query for the time and the records between two executions."""
        body = self.body
        for name in self.new_in:
            body = body.replace(_place("after", name), f"{before.positions.get(name, 0)}L")
            body = body.replace(_place("to", name), f"{now.positions.get(name, 0)}L")
        body = body.replace(_place("previous_execution_time"), f"timestamp_micros({before.executed_us})")
        body = body.replace(_place("current_execution_time"), f"timestamp_micros({now.executed_us})")
        return (
            f"SELECT {SUBSCRIPTIONS}.`_subscription`, {now.execution}L AS `_record`, `_q`.* "
            f"FROM {subscriptions_view} {SUBSCRIPTIONS}, LATERAL ({body}) `_q`"
        )


def is_whole(body: str, *, repetitive: bool) -> bool:
    """Whether a body must run as a whole: in a repetitive channel, or with several `is_new`, or if it asks for times.

    >>> is_whole("SELECT r.x FROM R r", repetitive=False), is_whole("SELECT r.x FROM R r", repetitive=True)
    (False, True)
    """
    words = [token.text.lower() for token in split_tokens(body) if token.kind == "word"]
    return repetitive or words.count("is_new") > 1 or any(each in words for each in TIMES)


def compile_whole(
    text: str, parameters: tuple[Field, ...], datasets: Mapping[str, Dataset], *, repetitive: bool
) -> WholeQuery:
    """Compile a body; `datasets` are known by their names in lower case. Mistakes are told by position in the body."""
    tokens = split_tokens(text)[:-1]
    names = {each.name.lower(): each.name for each in parameters}
    aliases = _aliases(tokens, datasets)
    written, end, index = "", 0, 0
    new_in: list[str] = []

    def put(new_text: str, to: int) -> None:
        nonlocal written, end, index
        written += text[end : tokens[index].start] + new_text
        end = tokens[to].end
        index = to + 1

    while index < len(tokens):
        token = tokens[index]
        word = token.text.lower()
        is_call = token.kind == "word" and index + 1 < len(tokens) and tokens[index + 1].text == "("
        if token.kind == "parameter":
            if word[1:] not in names:
                known = ", ".join(f":{name}" for name in names) or "none"
                raise StatementError(
                    text, token.start, f"{token.text} is no parameter of the channel; there are {known}"
                )
            put(f"{SUBSCRIPTIONS}.`{parameter_column(names[word[1:]])}`", index)
        elif is_call and word == "is_new":
            inside = closed_part(tokens, index + 1)
            dataset = _new_dataset(text, token, inside, aliases, datasets)
            new_in += [dataset] if dataset not in new_in else []
            after = _place("after", dataset)
            if dataset == new_in[0]:
                after = f"greatest({after}, {SUBSCRIPTIONS}.`_since`)"
            number = f"{inside[0].text}.`_sequence`"
            put(f"({number} > {after} AND {number} <= {_place('to', dataset)})", index + len(inside) + 2)
        elif is_call and word in TIMES:
            put(_place(word), index + len(closed_part(tokens, index + 1)) + 2)
        else:
            index += 1
    if not repetitive and not new_in:
        raise StatementError(
            text, 0, "a continuous channel runs when records arrive: say of which dataset, is_new(alias)"
        )
    return WholeQuery(written + text[end:], tuple(sorted(_named(tokens, datasets))), tuple(new_in))


def _place(kind: str, name: str = "") -> str:
    return f"\x01{kind} {name}\x01"


def _named(tokens: list[Token], datasets: Mapping[str, Dataset]) -> set[str]:
    """The datasets that are named anywhere."""
    words = {token.text.strip("`").lower() for token in tokens if token.kind in ("word", "quoted")}
    return {datasets[word].name for word in words if word in datasets}


def _aliases(tokens: list[Token], datasets: Mapping[str, Dataset]) -> dict[str, set[str]]:
    """By alias: the datasets that have it somewhere in the body."""
    found: dict[str, set[str]] = {}
    for index, token in enumerate(tokens[:-1] if tokens else []):
        name = token.text.strip("`").lower()
        before = tokens[index - 1].upper if index else ""
        if token.kind not in ("word", "quoted") or name not in datasets or before not in ("FROM", "JOIN", ","):
            continue
        following = tokens[index + 1 :]
        if following[0].upper == "AS":
            following = following[1:]
        alias = following[0] if following else token
        is_alias = alias.kind in ("word", "quoted") and alias.upper not in _NOT_AN_ALIAS
        found.setdefault(alias.text.strip("`").lower() if is_alias else name, set()).add(name)
    return found


def _new_dataset(
    text: str, token: Token, inside: list[Token], aliases: Mapping[str, set[str]], datasets: Mapping[str, Dataset]
) -> str:
    if len(inside) != 1:
        raise StatementError(text, token.start, "is_new takes the name of a dataset of the FROM")
    meant = aliases.get(inside[0].text.strip("`").lower(), set())
    if len(meant) != 1:
        said = "no dataset of this body" if not meant else "more than one dataset of this body"
        raise StatementError(text, inside[0].start, f"{inside[0].text!r} is {said}")
    (name,) = meant
    if not datasets[name].active:
        raise StatementError(text, inside[0].start, f"{datasets[name].name} is no active dataset: none of it is new")
    return name
