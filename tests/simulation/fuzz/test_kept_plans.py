"""Plans that broke a promise once, as small as the fuzzer could make them; each is named after what it teaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.simulation.fuzz.findings import read_finding
from trimtab.simulation.fuzz.run import run_plan

PLANS = sorted((Path(__file__).parent / "kept").glob("*.json"))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_plan_that_broke_a_promise_breaks_none(path: Path) -> None:
    report = run_plan(read_finding(path).plan)
    assert [f"{each.kind}: {each.text}" for each in report.violations] == []


def test_there_are_plans() -> None:
    assert PLANS
