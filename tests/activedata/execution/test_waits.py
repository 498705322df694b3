"""Records that arrive before the row they are to be enriched with wait for it, for a time."""

import time
from pathlib import Path

import pytest

from tests.activedata.test_channels import FEED, REPORTS, report
from trimtab.activedata import ActiveData, StatementError
from trimtab.activedata.spark.views import SparkViews

KINDS = "CREATE DATASET Kinds (event STRING, advice STRING) KEY event; UPSERT INTO Kinds VALUES ('fire', 'run');"
JOINED = (
    "CREATE CONTINUOUS CHANNEL Advised(x DOUBLE) WAIT UP TO {wait} FOR k AS SELECT r.reportId, k.advice "
    "FROM Reports r {join} Kinds k ON k.event = r.event WHERE r.x >= :x"
)


def advice(active: ActiveData, subscription: int) -> list[tuple[str, str | None]]:
    return [(each.fields["reportId"], each.fields["advice"]) for each in active.results(subscription)]


def wait_for(active: ActiveData, subscription: int, count: int) -> list[tuple[str, str | None]]:
    deadline_s = time.monotonic() + 90.0
    while len(advice(active, subscription)) < count and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return advice(active, subscription)


def test_a_record_waits_for_its_row_while_others_go_on_and_comes_once(active: ActiveData) -> None:
    active.run(REPORTS + FEED + KINDS + JOINED.format(wait="10 MINUTES", join="JOIN"))
    all_of_them, far = (active.subscribe("Advised", "B1", x=x) for x in (0.0, 2.0))
    active.feed("reports", [report(1), report(2, "fire"), report(3)])
    active.settle()
    assert advice(active, all_of_them) == advice(active, far) == [("r2", "run")]
    waits = active.engine.channels["advised"].waits
    assert waits is not None and waits.count == 3
    active.run("UPSERT INTO Kinds VALUES ('flood', 'climb')")
    expected = [("r2", "run"), ("r1", "climb"), ("r3", "climb")]
    assert wait_for(active, all_of_them, 3) == expected
    assert wait_for(active, far, 2) == [("r2", "run"), ("r3", "climb")]
    active.feed("reports", [report(4)])
    active.run("UPSERT INTO Kinds VALUES ('flood', 'swim')")
    assert wait_for(active, far, 3)[2][0] == "r4"
    active.settle()
    assert (waits.count, len(advice(active, all_of_them))) == (0, 4)


def test_what_has_waited_long_enough_comes_without_its_row_or_not_at_all(active: ActiveData) -> None:
    active.run(REPORTS + FEED + KINDS + JOINED.format(wait="0.5 SECONDS", join="LEFT JOIN"))
    active.run(JOINED.format(wait="0.5 SECONDS", join="JOIN").replace("Advised", "Needed"))
    advised, needed = (active.subscribe(name, "B1", x=0.0) for name in ("Advised", "Needed"))
    active.feed("reports", [report(1), report(2, "fire")])
    assert wait_for(active, advised, 2) == [("r2", "run"), ("r1", None)]
    deadline_s = time.monotonic() + 60.0
    waits = active.engine.channels["needed"].waits
    assert waits is not None
    while waits.count and time.monotonic() < deadline_s:
        time.sleep(0.02)
    active.run("UPSERT INTO Kinds VALUES ('flood', 'climb')")
    active.settle()
    assert advice(active, needed) == [("r2", "run")]
    assert advice(active, advised) == [("r2", "run"), ("r1", None)]


def test_what_waits_waits_on_after_a_restart(spark: SparkViews, tmp_path: Path) -> None:
    with ActiveData(tmp_path, spark) as active:
        active.run(REPORTS + FEED + KINDS + JOINED.format(wait="10 MINUTES", join="JOIN"))
        subscription = active.subscribe("Advised", "B1", x=0.0)
        active.feed("reports", [report(1), report(2, "fire")])
        active.settle()
    with ActiveData(tmp_path, spark) as active:
        active.run("UPSERT INTO Kinds VALUES ('flood', 'climb')")
        assert wait_for(active, subscription, 2) == [("r2", "run"), ("r1", "climb")]


@pytest.mark.parametrize(
    ("text", "marked", "reason"),
    [
        (
            JOINED.format(wait="1 SECONDS", join="JOIN").replace("FOR k", "FOR z"),
            "SELECT",
            "no dataset 'z' to wait for",
        ),
        (JOINED.format(wait="1 SECONDS", join="JOIN").replace("FOR k", "FOR r"), "Reports r", "gives the new records"),
        (
            "CREATE REPETITIVE CHANNEL c() PERIOD 1 SECONDS WAIT UP TO 1 SECONDS FOR k AS SELECT 1 FROM Kinds k",
            "WAIT",
            "nothing waits",
        ),
    ],
)
def test_what_cannot_wait_is_refused_with_the_place(active: ActiveData, text: str, marked: str, reason: str) -> None:
    active.run(REPORTS + KINDS)
    with pytest.raises(StatementError) as caught:
        active.run(text)
    assert reason in caught.value.reason
    assert caught.value.position == text.index(marked)
