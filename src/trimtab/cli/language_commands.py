"""The commands on filters and publications: match, relate, cover."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, cast

import typer

from trimtab.cli.input_lines import STDIN, parse_lines, placed, refuse, shown_name
from trimtab.language import Filter, LanguageError, LimitError, Publication, Relation
from trimtab.language import relate as relation_of
from trimtab.matching import Matcher
from trimtab.matching.unions import IncomparableError, covering_unions

_BATCH_COUNT: Final = 64

_SENTENCES: Final = {
    Relation.EQUAL: "The two filters are equal: they match the same publications.",
    Relation.COVERS: "The first filter covers the second: it matches everything that the second matches, and more.",
    Relation.COVERED: "The first filter is covered by the second: the second matches everything it matches, and more.",
    Relation.INTERSECTS: "The filters intersect: some publications match both, and some match only one of them.",
    Relation.DISJOINT: "The filters are disjoint: no publication matches both.",
}

FiltersOption = Annotated[
    str,
    typer.Option("--filters", metavar="FILE", help="Filters, one per line, in either notation; - for standard input."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def match(
    filters: FiltersOption,
    publications: Annotated[
        str,
        typer.Option("--publications", metavar="FILE", help="Publications, one per line; - for standard input."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Tell for each publication which filters it matches.

    Filters are named by their line numbers, from 1. Blank lines and lines that start with # are skipped, but counted.
    With --json: an array that holds, for each publication, the ascending array of matching lines.

    \b
    Example:
      printf "class = 'STOCK' AND volume > 300000\\n[class,eq,'SPORTS']\\n" > filters.txt
      echo "[class,'STOCK'],[volume,300001]" | trimtab match --filters filters.txt --publications -
    """
    if filters == publications == STDIN:
        refuse("only one of --filters and --publications can be standard input")
    matcher = Matcher()
    line_of: list[int] = []
    for line, alternatives in parse_lines(filters, Filter.parse_all):
        for alternative in alternatives:
            matcher.add(len(line_of), alternative)
            line_of.append(line)
    answers = list(_matching_lines(matcher, line_of, publications))
    if as_json:
        typer.echo(json.dumps([lines for _, lines in answers], separators=(",", ":")))
        return
    for publication_line, lines in answers:
        typer.echo(f"publication {publication_line}: {_listed(lines)}")


def _matching_lines(matcher: Matcher, line_of: Sequence[int], publications: str) -> Iterator[tuple[int, list[int]]]:
    """The lines of matching filters for each publication's line, matched in batches as they are read."""
    batch: list[tuple[int, Publication]] = []

    def matched() -> Iterator[tuple[int, list[int]]]:
        found = matcher.match_many([publication for _, publication in batch])
        for (line, _), keys in zip(batch, found, strict=True):
            yield line, sorted({line_of[cast(int, key)] for key in keys})
        batch.clear()

    for numbered in parse_lines(publications, Publication.parse):
        batch.append(numbered)
        if len(batch) == _BATCH_COUNT:
            yield from matched()
    yield from matched()


def _listed(lines: Sequence[int]) -> str:
    if not lines:
        return "matches no filter"
    return f"matches {'filter' if len(lines) == 1 else 'filters'} {', '.join(map(str, lines))}"


def relate(
    first: Annotated[str, typer.Argument(metavar="FILTER", help="The filter that is seen against the other.")],
    second: Annotated[str, typer.Argument(metavar="FILTER", help="The other filter.")],
    as_json: JsonOption = False,
) -> None:
    """Tell how two filters relate, by the sets of publications that they match.

    The first is seen against the second: equal, covers, covered, intersects or disjoint.

    \b
    Example:
      trimtab relate "[class,eq,'STOCK']" "class = 'STOCK' AND volume > 300000"
    """
    ours, theirs = _argument(1, first), _argument(2, second)
    try:
        relation = relation_of(ours, theirs)
    except LimitError as error:
        refuse(str(error))
    typer.echo(json.dumps({"relation": relation.value}) if as_json else _SENTENCES[relation])


def _argument(number: int, text: str) -> tuple[Filter, ...]:
    try:
        return Filter.parse_all(text)
    except LanguageError as error:
        mistake = placed(error, text)
        refuse(f"FILTER {number}, column {mistake.column}: {mistake.reason}\n{mistake.pointer()}")


def cover(filters: FiltersOption, as_json: JsonOption = False) -> None:
    """Print the covering set: the filters that no other filter of the file covers.

    Filters are named by their line numbers, from 1; of several equal ones the first is kept. A line with OR or IN
    counts as one filter that matches whatever any of its alternatives matches.

    \b
    Example:
      printf "[class,eq,'STOCK']\\n[class,eq,'STOCK'],[volume,>,1000]\\n" | trimtab cover --filters -
    """
    parsed = list(parse_lines(filters, Filter.parse_all))
    lines = _covering_lines(filters, parsed)
    if as_json:
        typer.echo(json.dumps(lines, separators=(",", ":")))
        return
    kept = dict(parsed)
    for line in lines:
        typer.echo(f"{line}: {' OR '.join(map(str, kept[line]))}")


def _covering_lines(file_name: str, parsed: Sequence[tuple[int, tuple[Filter, ...]]]) -> list[int]:
    try:
        covering = covering_unions([alternatives for _, alternatives in parsed])
    except IncomparableError as error:
        first, second = parsed[error.first][0], parsed[error.second][0]
        refuse(f"{shown_name(file_name)}:{second}:1: against line {first}: {error}")
    return [parsed[position][0] for position in covering]
