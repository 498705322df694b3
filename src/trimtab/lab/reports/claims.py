"""What runs say about claims, by Spark SQL: theirs, ours, and whether they hold."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from trimtab.lab.reports.tables import quoted, setting, shown
from trimtab.lab.studies.claims import VALUE, Claim
from trimtab.simulation.scenarios.documents import ScenarioError
from trimtab.simulation.scenarios.study import find_study

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Found(msgspec.Struct, frozen=True):
    """A claim and what the runs say about it; without values it was not run."""

    claim: Claim
    seeds_count: int
    """Seeds with a value."""
    asked_count: int = 0
    """Seeds that were run: where some of them have no value, as a time that never came, nothing holds."""
    ours: float | None = None
    least: float | None = None
    most: float | None = None
    nearest: float | None = None
    """How near it came at best in seeds without a value, where the claim has a metric for that."""

    @property
    def holds(self) -> bool | None:
        """Whether it does; None if nobody knows."""
        if not self.asked_count:
            return None
        return self.seeds_count == self.asked_count and self.ours is not None and self.claim.is_kept_by(self.ours)


def ask(spark: SparkSession, claims: Sequence[Claim]) -> list[Found]:
    """What each claim's runs say: its value for each seed, and their mean, in one pass over the view `runs`."""
    if not claims:
        return []
    columns = ["seed"]
    for number, claim in enumerate(claims):
        ours, base = _conditions(claim, claim.of), _base(claim)
        metric = f"metric = {quoted(claim.metric)}"
        columns.append(f"{claim.over}(CASE WHEN {ours} AND {metric} THEN value END) AS ours_{number}")
        columns.append(f"max({ours}) AS is_asked_{number}")
        near = f"metric = {quoted(claim.near or claim.metric)}"
        columns.append(f"min(CASE WHEN {ours} AND {near} THEN value END) AS near_{number}")
        if base is not None:
            other = _conditions(claim, base)
            columns.append(f"{claim.over}(CASE WHEN {other} AND {metric} THEN value END) AS other_{number}")
            columns.append(f"max({other}) AS is_other_{number}")
    scenarios = ", ".join(sorted({quoted(claim.scenario) for claim in claims}))
    by_seed = f"SELECT {', '.join(columns)} FROM runs WHERE scenario IN ({scenarios}) GROUP BY seed"
    said: list[str] = []
    for number, claim in enumerate(claims):
        value = _said(claim, number)
        asked = f"is_asked_{number}" + ("" if _base(claim) is None else f" AND is_other_{number}")
        said += [
            f"count({value}) AS n_{number}",
            f"count_if({asked}) AS asked_{number}",
            f"avg({value}) AS mean_{number}",
            f"min({value}) AS least_{number}",
            f"max({value}) AS most_{number}",
            f"min(CASE WHEN {value} IS NULL THEN near_{number} END) AS nearest_{number}",
        ]
    row = spark.sql(f"SELECT {', '.join(said)} FROM ({by_seed})").first()
    assert row is not None
    return [
        Found(claim, *(row[f"{name}_{number}"] for name in ("n", "asked", "mean", "least", "most", "nearest")))
        for number, claim in enumerate(claims)
    ]


def _base(claim: Claim) -> dict[str, str] | None:
    return claim.relation_to if claim.cut_against is None else claim.cut_against


def _said(claim: Claim, number: int) -> str:
    """The claim's value of a seed."""
    if _base(claim) is None:
        return f"ours_{number}"
    ratio = f"CASE WHEN ours_{number} = 0 THEN 0 ELSE try_divide(ours_{number}, other_{number}) END"  # nothing is less
    return f"100 * (1 - ({ratio}))" if claim.cut_against is not None else ratio


def _conditions(claim: Claim, settings: Mapping[str, str]) -> str:
    """Which runs are meant; a setting that is to be empty was not made."""
    conditions = [f"scenario = {quoted(claim.scenario)}"]
    for key, value in settings.items():
        if key == VALUE:
            conditions.append(f"point = {_point(claim.scenario, value)}")
        else:
            conditions.append(f"{setting(key)} = {quoted(value)}")
    return f"({' AND '.join(conditions)})"


def _point(scenario: str, value: str) -> int:
    """The place of a value in the grid of a study."""
    study = find_study(scenario)
    if study is None:
        raise ScenarioError(f"a claim asks for a value of {scenario}, which is no study")
    values = [str(each) for each in study.values]
    if value not in values:
        raise ScenarioError(f"a claim asks for {scenario} at {value}; it has {', '.join(values)}")
    return values.index(value)


def claims_table(found: Sequence[Found]) -> str:
    """The claims of a paper as a table of the page."""
    rows = []
    for each in found:
        claim, ours = each.claim, each.ours
        verdict = {True: ("yes", "holds"), False: ("no", "does not hold"), None: ("unknown", "not run")}[each.holds]
        ratio = "" if ours is None or not claim.theirs else f"{ours / claim.theirs:.2f}"
        counted = (
            f"{each.seeds_count} of {each.asked_count}" if each.seeds_count < each.asked_count else each.seeds_count
        )
        spread = f"{counted} seeds" if ours is None else f"{shown(each.least)} to {shown(each.most)}, {counted} seeds"
        if each.nearest is not None and claim.near:
            spread += f"; not reached by the others, {shown(each.nearest)} of the threshold at best"
        if not each.asked_count:
            spread = ""
        rows.append(
            f"<tr><td>{html.escape(claim.where)}<td>{html.escape(claim.says)}"
            f"<td class=number>{shown(claim.theirs)}<td class=number>{shown(ours)}<td>{spread}"
            f"<td class=number>{ratio}<td>{html.escape(claim.holds)}<td class={verdict[0]}>{verdict[1]}"
        )
    head = "<tr><th>Where<th>Claim<th>Theirs<th>Ours<th>Seeds<th>Ratio<th>Asked<th>Verdict"
    return f"<table>{head}{''.join(rows)}</table>"
