"""Table 1 of the replication paper: the ticks hold, and the crosses are seen."""

from trimtab.lab.studies.replication_runs import run_table
from trimtab.simulation.replication.table_one import ROWS, run_once


def test_ticks_hold_and_crosses_are_seen() -> None:
    table = run_table(first_seed=17, runs_count=3)
    assert table.mistakes == []
    assert {(cell.protocol, cell.property_name, cell.is_promised, cell.violated_count > 0) for cell in table.cells} == {
        ("basic", "weak complete", False, True),
        ("basic", "weak ordered", True, False),
        ("synchronous", "weak complete", True, False),
        ("synchronous", "weak ordered", True, False),
        ("incremental", "weak complete", True, False),
        ("incremental", "weak ordered", False, True),
        ("incremental-ordered", "weak complete", True, False),
        ("incremental-ordered", "weak ordered", True, False),
        ("basic-scheduling", "strong complete", False, True),
        ("basic-scheduling", "strong ordered", False, True),
        ("synchronous-scheduling", "strong complete", True, False),
        ("synchronous-scheduling", "strong ordered", False, True),
        ("incremental-scheduling", "strong complete", True, False),
        ("incremental-scheduling", "strong ordered", False, True),
        ("basic-reordering", "strong complete", False, True),
        ("basic-reordering", "strong ordered", True, False),
        ("synchronous-reordering", "strong complete", True, False),
        ("synchronous-reordering", "strong ordered", True, False),
        ("incremental-reordering", "strong complete", True, False),
        ("incremental-reordering", "strong ordered", True, False),
    }
    assert table.is_reproduced
    assert table.ordering_degree_ratios["synchronous"] == 1.0
    assert table.ordering_degree_ratios["incremental"] < 1.0


def test_what_comes_late_over_the_assistant_does_not_overtake() -> None:
    """An assistant says by control that it knows all routes, and that overtakes a publication that it had kept."""
    row = next(row for row in ROWS if row.name == "incremental-reordering")
    assert run_once(row, seed=857).violations == []
