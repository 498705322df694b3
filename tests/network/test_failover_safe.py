"""Seven broker processes that acknowledge what is safe: one is killed, and nothing is lost, doubled or reordered.

`trimtab bench failover` is the same at length, with twenty kills.
"""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner

from trimtab.cli.main import app
from trimtab.lab.bench.failover import FailoverBench, run_failover_bench

PUBLICATIONS_COUNT = int(os.environ.get("TRIMTAB_FAILOVER_PUBLICATIONS", "4000"))


@pytest.mark.parametrize(("seed", "moves_every_s"), [(1, 0.0), (3, 0.0), (5, 0.05)])
def test_a_kill_among_seven_loses_doubles_and_reorders_nothing(seed: int, moves_every_s: float) -> None:
    bench = FailoverBench(
        kills_count=1,
        publications_count=PUBLICATIONS_COUNT,
        rate_per_s=1_500.0,
        seed=seed,
        standbys_count=1,
        moves_every_s=moves_every_s,
    )
    lines: list[str] = []
    figures = run_failover_bench(bench, lines.append)
    assert (figures.lost_count, figures.doubled_count, figures.refused_count) == (0, 0, 0)
    assert figures.publications_count >= PUBLICATIONS_COUNT
    assert figures.deliveries_count == 4 * figures.publications_count
    [kill] = figures.kills
    assert kill.replaced_s is not None
    assert bool(figures.moved_count) == bool(moves_every_s)
    assert [line for line in lines if line.startswith(f"1 of 1: {kill.broker} noticed after ")] != []


def test_the_benchmark_tells_what_came_of_it() -> None:
    options = ["--kills", "1", "--publications", "500", "--rate", "300", "--acknowledges", "received", "--json"]
    result = CliRunner().invoke(app, ["bench", "failover", *options])
    found = json.loads(result.stdout)
    assert result.exit_code == (0 if found["is_right"] else 1)
    assert found["is_right"] == (found["lost_count"] + found["doubled_count"] + found["refused_count"] == 0)
    assert found["publications_count"] >= 500
    assert [kill["broker"] for kill in found["kills"]] == [found["kills"][0]["broker"]]
