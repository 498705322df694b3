"""The stock workload follows Table 5.1 of the thesis."""

from collections import Counter
from random import Random

import pytest

from trimtab.language import Filter
from trimtab.simulation.workloads.quotes import generate_quotes
from trimtab.simulation.workloads.stock import StockWorkload

ATTRIBUTES = ["class", "symbol", "open", "high", "low", "close", "volume", "date"]


def workload(seed: int = 1, *, symbols_count: int = 40, zero_traffic_ratio: float = 0.0) -> StockWorkload:
    quotes = generate_quotes(Random(seed), symbols_count=60, days_count=30)
    return StockWorkload(quotes, Random(seed), symbols_count=symbols_count, zero_traffic_ratio=zero_traffic_ratio)


def template_of(filter: Filter) -> tuple[str, ...]:
    return tuple(predicate.attribute + predicate.spelling for predicate in filter.predicates)


def test_the_templates_are_drawn_with_the_probabilities_of_the_table() -> None:
    count = 20_000
    shares = Counter(template_of(filter) for filter in workload().subscriptions(count))
    expected_percent = {
        ("classeq", "high>", "symboleq"): 20,
        ("classeq", "low<", "symboleq"): 20,
        ("classeq", "symboleq", "volume>"): 20,
        ("classeq", "symboleq"): 34,
        ("classeq", "volume>"): 5,
        ("classeq",): 1,
    }
    assert shares.keys() == expected_percent.keys()
    for template, percent in expected_percent.items():
        assert 100 * shares[template] / count == pytest.approx(percent, abs=1.2)


def test_publications_carry_the_eight_attributes_in_the_order_of_the_thesis() -> None:
    stock = workload()
    for publication in stock.publications(50):
        assert list(publication) == ATTRIBUTES
        assert publication["symbol"] in stock.symbols


def test_forty_symbols_are_published_and_subscribed_to() -> None:
    stock = workload()
    subscribed = {p.operand for f in stock.subscriptions(5_000) for p in f.predicates if p.attribute == "symbol"}
    assert len(stock.symbols) == 40
    assert subscribed == set(stock.symbols)


def test_operands_are_values_of_the_chosen_stock() -> None:
    quotes = generate_quotes(Random(1), symbols_count=60, days_count=30)
    highs = {(quote.symbol, quote.high) for quote in quotes}
    for filter in StockWorkload(quotes, Random(1)).subscriptions(500):
        operands = {predicate.attribute: predicate.operand for predicate in filter.predicates}
        if "high" in operands:
            assert (operands["symbol"], operands["high"]) in highs


@pytest.mark.parametrize("symbols_count", [40, 60])
def test_filters_without_traffic_match_no_publication_of_the_workload(symbols_count: int) -> None:
    stock = workload(symbols_count=symbols_count, zero_traffic_ratio=1.0)
    publications = list(stock.publications(500))
    for filter in stock.subscriptions(500):
        assert not any(filter.matches(publication) for publication in publications)


def test_the_share_of_filters_without_traffic_is_the_one_asked_for() -> None:
    stock = workload(zero_traffic_ratio=0.25)
    advertisements = [stock.advertisement(symbol) for symbol in stock.symbols]
    filters = list(stock.subscriptions(4_000))
    silent = sum(not any(advertisement.intersects(filter) for advertisement in advertisements) for filter in filters)
    assert silent / len(filters) == pytest.approx(0.25, abs=0.03)


def test_an_advertisement_announces_its_own_stock_only() -> None:
    stock = workload()
    first, second = stock.symbols[:2]
    assert str(stock.advertisement(first)) == (
        f"[class,eq,'STOCK'],[close,isPresent,0],[date,isPresent,''],[high,isPresent,0],[low,isPresent,0],"
        f"[open,isPresent,0],[symbol,eq,'{first}'],[volume,isPresent,0]"
    )
    for publication in stock.publications(200):
        announced = stock.advertisement(first).announces(publication)
        assert announced == (publication["symbol"] == first)
    assert not stock.advertisement(second).overlaps(stock.advertisement(first))


def test_the_same_seed_gives_the_same_workload() -> None:
    first, second = workload(5), workload(5)
    assert list(first.subscriptions(50)) == list(second.subscriptions(50))
    assert list(first.publications(50)) == list(second.publications(50))


def test_too_few_symbols_and_an_impossible_ratio_are_refused() -> None:
    with pytest.raises(ValueError, match="61 symbols are wanted, but the quotes have 60"):
        workload(symbols_count=61)
    with pytest.raises(ValueError, match="between 0 and 1"):
        workload(zero_traffic_ratio=1.5)
