"""Turns a channel's body into one query over the new records and all its subscriptions together.

The table of subscriptions (one row each: number, arguments, since when) becomes one more relation of the join, and
each parameter a column of it. So the work of an execution grows with the matches and not with records times
subscriptions, as long as the conditions are equalities. A condition `distance(...) <= radius` is none; it gets an
equality added that is necessary for it: both points lie in the same or in neighbouring cells of a grid with cells as
wide as the radius.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trimtab.activedata.definitions.aggregates import has_aggregate, window_starts
from trimtab.activedata.definitions.bodies import Body, Conjunct, FromItem, closed_part, parse_body, split_at
from trimtab.activedata.definitions.fields import Field
from trimtab.activedata.definitions.tokens import Token
from trimtab.activedata.definitions.volatile_functions import is_lasting
from trimtab.activedata.errors import StatementError

SUBSCRIPTIONS: Final = "_s"
"""The subscriptions' name in the query."""

_NEW: Final = "\x01new\x01"
_SUBSCRIPTIONS_VIEW: Final = "\x01subscriptions\x01"
"""Places of the query: no statement can contain them."""

_ROW: Final = 1_000_003
_NEIGHBOURS: Final = ", ".join(f"{dx * _ROW + dy}L" for dx in (-1, 0, 1) for dy in (-1, 0, 1))
"""From the number of a cell to those of its neighbours."""


class Dataset(msgspec.Struct, frozen=True):
    """What a query must know of a dataset."""

    name: str
    fields: tuple[Field, ...]
    active: bool
    keys: tuple[str, ...] = ()


class Grid(msgspec.Struct, frozen=True):
    """A distance condition that becomes cells: whose points are spread over nine cells, and whose lie in one."""

    spread: str
    spread_xy: tuple[str, str]
    other_xy: tuple[str, str]
    radius: str
    radius_parameter: str | None


class ChannelQuery(msgspec.Struct, frozen=True):
    """A compiled channel.

    `inner` has places for the views of the new records and the subscriptions, and for the width of each grid's cells.
    `inner_for_few` says the same in an order that starts with the new records and broadcasts everything else.
    """

    driver: str
    lookups: tuple[str, ...]
    inner: str
    inner_for_few: str
    is_lasting: bool
    groups: bool
    """Whether rows are put together, so that Spark exchanges them between tasks."""
    radius_parameters: tuple[str | None, ...]

    def text(
        self, new_view: str, subscriptions_view: str, radii: Mapping[str, float], *, few_records: bool = False
    ) -> str:
        """The query with its places filled; for few records in an order that can be planned once."""
        text = (
            (self.inner_for_few if few_records else self.inner)
            .replace(_NEW, new_view)
            .replace(_SUBSCRIPTIONS_VIEW, subscriptions_view)
        )
        for number, parameter in enumerate(self.radius_parameters):
            if parameter is not None:
                text = text.replace(_width_place(number), repr(max(radii.get(parameter, 1.0), 1e-6)) + "D")
        return text


def compile_channel(
    text: str, parameters: tuple[Field, ...], datasets: Mapping[str, Dataset]
) -> tuple[ChannelQuery, Body]:
    """Compile a body; `datasets` are known by their names in lower case. Mistakes are told by position in the body."""
    body = parse_body(text)
    return compile_body(body, parameters, datasets), body


def compile_body(body: Body, parameters: tuple[Field, ...], datasets: Mapping[str, Dataset]) -> ChannelQuery:
    """Compile a body that was taken apart."""
    return _Compiler(body, parameters, datasets).compile()


class _Compiler:
    def __init__(self, body: Body, parameters: tuple[Field, ...], datasets: Mapping[str, Dataset]) -> None:
        self.body = body
        self.parameters = {each.name.lower(): each for each in parameters}
        self.datasets = datasets
        self.relations = {item.alias.lower(): item for item in body.items}

    def compile(self) -> ChannelQuery:
        self._check_names()
        where = [each for each in self.body.where if not self._is_new_alias(each)]
        where += [each for item in self.body.items if not item.outer for each in item.on]
        driver = self._driver()
        grids = self._grids(driver, where)
        lookups = {self._dataset(item).name for item in self.body.items if item.dataset and item is not driver}
        return ChannelQuery(
            driver=self._dataset(driver).name,
            lookups=tuple(sorted(lookups | self._inside_brackets())),
            inner=self._assembled(driver, where, grids, self._order(driver, where), ""),
            inner_for_few=self._assembled(
                driver, where, grids, self._order_for_few(driver, where, grids), self._broadcast_hint(driver)
            ),
            is_lasting=is_lasting([token.text for token in self.body.tokens if token.kind == "word"]),
            groups=self._groups() or any(window_starts(each) for each in self.body.select),
            radius_parameters=tuple(each.radius_parameter for each in grids),
        )

    def _broadcast_hint(self, driver: FromItem) -> str:
        names = [SUBSCRIPTIONS, *(_quoted(item.alias) for item in self.body.items if item is not driver)]
        return f"/*+ BROADCAST({', '.join(names)}) */ "

    def _assembled(
        self, driver: FromItem, where: list[Conjunct], grids: list[Grid], order: list[FromItem | None], hint: str
    ) -> str:
        """The query with its relations in an order; None stands for the subscriptions."""
        inner_joined = [
            f"{_SUBSCRIPTIONS_VIEW} {SUBSCRIPTIONS}" if item is None else self._source(item, driver, grids)
            for item in order
            if item is None or not item.outer
        ]
        joins = ", ".join(inner_joined)
        for item in order:
            if item is not None and item.outer:
                conditions = [self._sql(each.tokens) for each in item.on]
                conditions += [self._cells(n, g) for n, g in enumerate(grids) if g.spread == item.alias.lower()]
                joins += f" LEFT JOIN {self._source(item, driver, grids)} ON {' AND '.join(conditions)}"
        outer_names = {item.alias.lower() for item in self.body.items if item.outer}
        conditions = [f"({self._sql(each.tokens)})" for each in where]
        conditions += [self._cells(n, g) for n, g in enumerate(grids) if g.spread not in outer_names]
        record = f"{_quoted(driver.alias)}.`_sequence`"
        conditions.append(f"{record} > {SUBSCRIPTIONS}.`_since`")
        grouping = [f"{SUBSCRIPTIONS}.`_subscription`"] if self._groups() else []
        if grouping and self._groups_each_record(driver):
            grouping.append(record)
        elif grouping:
            record = f"max({record})"
        inner = (
            f"SELECT {hint}{SUBSCRIPTIONS}.`_subscription`, {record} AS `_record`, {self._select()} "
            f"FROM {joins} WHERE {' AND '.join(conditions)}"
        )
        if grouping:
            inner += f" GROUP BY {', '.join(grouping)}"
            inner += f", {self._sql(self.body.group_by)}" if self.body.group_by else ""
        if self.body.having:
            inner += f" HAVING {self._sql(self.body.having)}"
        return inner

    def _groups(self) -> bool:
        """Whether the body puts rows together: its aggregates are per subscription and per execution."""
        return bool(self.body.group_by) or any(map(has_aggregate, (*self.body.select, self.body.having)))

    def _groups_each_record(self, driver: FromItem) -> bool:
        """Whether each group is of one new record, because the key of its dataset is among what is grouped by."""
        dataset = self._dataset(driver)
        named: set[str] = set()
        for part in split_at(self.body.group_by, ","):
            texts = [token.text.strip("`").lower() for token in part]
            if len(texts) == 3 and texts[:2] == [driver.alias.lower(), "."]:
                named.add(texts[2])
            elif len(texts) == 1 and self._relations_of(part) == {driver.alias.lower()}:
                named.add(texts[0])
        return bool(dataset.keys) and {key.lower() for key in dataset.keys} <= named

    def _refuse(self, position: int, reason: str) -> StatementError:
        return StatementError(self.body.text, position, reason)

    def _check_names(self) -> None:
        for item in self.body.items:
            if item.dataset is not None and item.dataset.lower() not in self.datasets:
                raise self._refuse(item.position, f"there is no dataset {item.dataset!r}")
        for token in self.body.tokens:
            if token.kind == "parameter" and token.text[1:].lower() not in self.parameters:
                known = ", ".join(f":{name}" for name in self.parameters) or "none"
                raise self._refuse(token.start, f"{token.text} is no parameter of the channel; there are {known}")

    def _dataset(self, item: FromItem) -> Dataset:
        return self.datasets[(item.dataset or "").lower()]

    def _inside_brackets(self) -> set[str]:
        """Datasets that are named anywhere in the body: a query in brackets may read them."""
        words = {token.text.lower() for token in self.body.tokens if token.kind in ("word", "quoted", "name")}
        own = {item.dataset.lower() for item in self.body.items if item.dataset}
        return {self.datasets[word].name for word in words - own if word in self.datasets}

    def _is_new_alias(self, conjunct: Conjunct) -> str | None:
        texts = [token.text.lower() for token in conjunct.tokens]
        if len(texts) == 4 and texts[0] == "is_new" and texts[1] == "(" and texts[3] == ")":
            return texts[2]
        return None

    def _driver(self) -> FromItem:
        marked = [(alias, each) for each in self.body.where if (alias := self._is_new_alias(each))]
        for alias, conjunct in marked:
            item = self.relations.get(alias)
            position = conjunct.tokens[2].start
            if item is None or item.dataset is None or not self._dataset(item).active:
                raise self._refuse(position, f"{alias!r} is no active dataset of this FROM")
            if item.outer:
                raise self._refuse(position, "the new records cannot be the optional side of a LEFT JOIN")
        active = [item for item in self.body.items if item.dataset and not item.outer and self._dataset(item).active]
        if marked:
            if len(marked) > 1:
                raise self._refuse(marked[1][1].tokens[0].start, "only one dataset's new records drive a channel")
            return self.relations[marked[0][0]]
        if not active:
            raise self._refuse(
                self.body.items[0].position, "a channel needs an ACTIVE DATASET in its FROM: its new records drive it"
            )
        if len(active) > 1:
            raise self._refuse(
                active[1].position, f"two active datasets: say whose new records drive it, is_new({active[0].alias})"
            )
        return active[0]

    def _sql(self, tokens: tuple[Token, ...] | list[Token]) -> str:
        """The text of tokens, with parameters as columns of the subscriptions and distances written out."""
        text = ""
        end = tokens[0].start if tokens else 0
        index = 0
        windows = set(window_starts(tokens))
        while index < len(tokens):
            token = tokens[index]
            text += " " if token.start > end else ""
            written = self._distance(tokens, index)
            if written is not None:
                text += written[0]
                index = written[1]
            elif token.kind == "parameter":
                text += f"{SUBSCRIPTIONS}.{_quoted(parameter_column(self.parameters[token.text[1:].lower()].name))}"
                index += 1
            elif index in windows:
                text += self._window_start(tokens, index)
                index += 3 if self._is_partitioned(tokens, index) else 1
            else:
                text += token.text
                index += 1
            end = tokens[index - 1].end
        return text

    def _is_partitioned(self, tokens: tuple[Token, ...] | list[Token], opening: int) -> bool:
        return [token.upper for token in tokens[opening + 1 : opening + 3]] == ["PARTITION", "BY"]

    def _window_start(self, tokens: tuple[Token, ...] | list[Token], opening: int) -> str:
        """The beginning of a window, which holds rows of one subscription only."""
        own = f"(PARTITION BY {SUBSCRIPTIONS}.`_subscription`"
        return f"{own}," if self._is_partitioned(tokens, opening) else f"{own} "

    def _distance(self, tokens: tuple[Token, ...] | list[Token], index: int) -> tuple[str, int] | None:
        """The distance that starts at a token, written out: Spark needs long to put a function of SQL in its place."""
        if tokens[index].text.lower() != "distance" or index + 1 == len(tokens) or tokens[index + 1].text != "(":
            return None
        inside = closed_part(tokens, index + 1)
        arguments = split_at(inside, ",")
        if len(arguments) != 4 or (index and tokens[index - 1].text == "."):
            return None
        x1, y1, x2, y2 = (self._sql(each) for each in arguments)
        return f"sqrt(pow(({x1}) - ({x2}), 2) + pow(({y1}) - ({y2}), 2))", index + 3 + len(inside)

    def _select(self) -> str:
        found: list[str] = []
        for item in self.body.select:
            texts = [token.text for token in item]
            if texts == ["*"]:
                found += [self._columns(each, item[0].start) for each in self.body.items]
            elif len(texts) == 3 and texts[1:] == [".", "*"] and texts[0].lower() in self.relations:
                found.append(self._columns(self.relations[texts[0].lower()], item[0].start))
            else:
                found.append(self._sql(item))
        return ", ".join(found)

    def _columns(self, item: FromItem, position: int) -> str:
        if item.dataset is None:
            raise self._refuse(position, f"name the fields of {item.alias!r} instead of *")
        return ", ".join(f"{_quoted(item.alias)}.{_quoted(field.name)}" for field in self._dataset(item).fields)

    def _relations_of(self, tokens: list[Token] | tuple[Token, ...]) -> set[str]:
        """The relations whose columns an expression uses; `?` for one that cannot be told."""
        found: set[str] = set()
        for index, token in enumerate(tokens):
            if token.kind == "parameter":
                found.add(SUBSCRIPTIONS)
            if token.kind not in ("word", "quoted", "name") or (index and tokens[index - 1].text == "."):
                continue
            following = tokens[index + 1].text if index + 1 < len(tokens) else ""
            name = token.text.strip("`").lower()
            if following == "." and name in self.relations:
                found.add(name)
            elif following != "(":
                holders = [
                    alias
                    for alias, item in self.relations.items()
                    if item.dataset and any(field.name.lower() == name for field in self._dataset(item).fields)
                ]
                if holders:
                    found.add(holders[0] if len(holders) == 1 else "?")
        return found

    def _order_for_few(self, driver: FromItem, where: list[Conjunct], grids: list[Grid]) -> list[FromItem | None]:
        """The new records first, then always a relation that most conditions tie to those before it."""
        ties = [self._relations_of(each.tokens) for each in where if len(split_at(each.tokens, "=")) == 2]
        others = [self._relations_of(each.tokens) for each in where if len(split_at(each.tokens, "=")) != 2]
        near = [each for each in others if any(grid.spread in each for grid in grids) and len(each) == 2]
        left: list[FromItem | None] = [None, *(item for item in self.body.items if item is not driver)]
        order: list[FromItem | None] = [driver]
        placed = {driver.alias.lower()}

        def tied(item: FromItem | None) -> tuple[int, int]:
            name = SUBSCRIPTIONS if item is None else item.alias.lower()
            counts = [sum(name in tie and bool(tie & placed) for tie in each) for each in ([*ties, *near], near)]
            return counts[0], counts[1]

        while left:
            best = max((item for item in left if item is None or not item.outer), key=tied, default=left[0])
            left.remove(best)
            order.append(best)
            placed.add(SUBSCRIPTIONS if best is None else best.alias.lower())
        return order

    def _order(self, driver: FromItem, where: list[Conjunct]) -> list[FromItem | None]:
        """Subscriptions, what a parameter selects by equality, the new records, then the rest as written."""
        selected: set[str] = set()
        for each in where:
            sides = split_at(each.tokens, "=")
            if len(sides) == 2:
                named = [self._relations_of(side) for side in sides]
                if {SUBSCRIPTIONS} in named:
                    selected |= named[1 - named.index({SUBSCRIPTIONS})]
        early = [item for item in self.body.items if item.alias.lower() in selected and item is not driver]
        late = [item for item in self.body.items if item not in early and item is not driver]
        early_inner = [item for item in early if not item.outer]
        return [None, *early_inner, driver, *late, *(item for item in early if item.outer)]

    def _grids(self, driver: FromItem, where: list[Conjunct]) -> list[Grid]:
        grids: list[Grid] = []
        taken: set[str] = set()
        conditions: list[tuple[Conjunct, str | None]] = [(each, None) for each in where]
        conditions += [(each, item.alias.lower()) for item in self.body.items if item.outer for each in item.on]
        for conjunct, outer in conditions:
            grid = self._grid(conjunct, driver.alias.lower(), outer, taken)
            if grid is not None:
                taken.add(grid.spread)
                grids.append(grid)
        return grids

    def _grid(self, conjunct: Conjunct, driver: str, outer: str | None, taken: set[str]) -> Grid | None:
        tokens = list(conjunct.tokens)
        if len(tokens) < 4 or tokens[0].text.lower() != "distance" or tokens[1].text != "(":
            return None
        if (
            tokens[-2].text not in ("<", "<=")
            or tokens[-3].text != ")"
            or tokens[-1].kind not in ("number", "parameter")
        ):
            return None
        arguments = split_at(tokens[2:-3], ",")
        if len(arguments) != 4:
            return None
        ends = [self._relations_of([*arguments[i], *arguments[i + 1]]) for i in (0, 2)]
        if any(len(each) != 1 or "?" in each for each in ends) or ends[0] == ends[1]:
            return None
        sides = [each.pop() for each in ends]
        xy = [(self._sql(arguments[i]), self._sql(arguments[i + 1])) for i in (0, 2)]
        wanted = [outer, driver, *(item.alias.lower() for item in reversed(self.body.items))]
        spread = next((each for each in wanted if each in sides and each not in taken), None)
        if spread is None or (outer is not None and spread != outer):
            return None
        at = sides.index(spread)
        parameter = None if tokens[-1].kind == "number" else tokens[-1].text[1:].lower()
        return Grid(spread, xy[at], xy[1 - at], tokens[-1].text, parameter and self.parameters[parameter].name)

    def _source(self, item: FromItem, driver: FromItem, grids: list[Grid]) -> str:
        relation = _NEW if item is driver else item.query or _quoted(self._dataset(item).name)
        alias = _quoted(item.alias)
        for number, grid in enumerate(grids):
            if grid.spread == item.alias.lower():
                step = f"explode(array({_NEIGHBOURS})) AS `_step{number}`"
                return f"(SELECT {alias}.*, {step} FROM {relation} {alias}) {alias}"
        return f"{relation} {alias}"

    def _cells(self, number: int, grid: Grid) -> str:
        width = _width(number, grid)
        step = f"{_quoted(self.relations[grid.spread].alias)}.`_step{number}`"
        return f"{_cell(grid.spread_xy, width)} + {step} = {_cell(grid.other_xy, width)}"


def parameter_column(name: str) -> str:
    """The column of the subscriptions that holds a parameter; no field can be named so."""
    return f"_p_{name}"


def _width_place(number: int) -> str:
    return f"\x01width{number}\x01"


def _width(number: int, grid: Grid) -> str:
    return _width_place(number) if grid.radius_parameter else f"{max(float(grid.radius), 1e-6)!r}D"


def _cell(xy: tuple[str, str], width: str) -> str:
    """One number for a point's cell; far cells may share it, for the distance itself is asked as well."""
    x, y = (f"floor(({axis}) / {width})" for axis in xy)
    return f"({x} * {_ROW}L + {y})"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
