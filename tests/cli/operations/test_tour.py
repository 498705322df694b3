"""The tour runs and tells the truth."""

from typer.testing import CliRunner

from trimtab.cli.main import app
from trimtab.cli.operations.routing_example import LINKS, Table, deliver, flood, subscribe
from trimtab.language import Filter, Publication


def test_the_tour_goes_through_all_its_chapters() -> None:
    result = CliRunner().invoke(app, ["tour"])
    assert (result.exit_code, result.stderr) == (0, "")
    for text in (
        "class = 'STOCK' AND symbol LIKE 'YH%' AND volume > 300000",
        "[class,eq,'STOCK'],[volume,>>,5]",
        "1,000 subscribers",
        "covered by [class,eq,'STOCK']",
        "the subscription travels B3 -> B2\n",
        "and reaches sub1 and sub2",
        "trimtab --help",
    ):
        assert text in result.stdout


def figure_2_2() -> Table:
    table: Table = {}
    announced, came_from = Filter.parse("a > 1"), flood(LINKS, "B1")
    subscribe(table, came_from, announced, subscriber="sub1", broker="B4", wanted=Filter.parse("a > 5"))
    subscribe(table, came_from, announced, subscriber="sub2", broker="B3", wanted=Filter.parse("a > 9"))
    return table


def test_the_routing_tables_are_those_of_figure_2_2() -> None:
    tables = {broker: {target: str(wanted) for target, wanted in rows.items()} for broker, rows in figure_2_2().items()}
    assert tables == {
        "B4": {"sub1": "[a,>,5]"},
        "B2": {"B4": "[a,>,5]", "B3": "[a,>,9]"},
        "B1": {"B2": "[a,>,5]"},
        "B3": {"sub2": "[a,>,9]"},
    }


def test_publications_reach_those_who_asked_and_nobody_else() -> None:
    table = figure_2_2()
    assert deliver(table, "B1", Publication(a=3)) == (["B1"], [])
    assert deliver(table, "B1", Publication(a=7)) == (["B1", "B2", "B4"], ["sub1"])
    assert deliver(table, "B1", Publication(a=12)) == (["B1", "B2", "B4", "B3"], ["sub1", "sub2"])


def test_a_subscription_that_nobody_announced_stays_at_its_broker() -> None:
    table: Table = {}
    announced, wanted = Filter.parse("a > 1"), Filter.parse("b > 1")
    way = subscribe(table, flood(LINKS, "B1"), announced, subscriber="sub3", broker="B4", wanted=wanted)
    assert way == ["B4"]
