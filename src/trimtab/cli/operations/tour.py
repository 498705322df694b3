"""The command `trimtab tour`: what there is, shown in a few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Final

_FILTERS_COUNT: Final = 1_000
_PUBLICATIONS_COUNT: Final = 640

Say = Callable[[str], None]


def tour() -> None:
    """Show what Trimtab does, in a few seconds.

    \b
    Example:
      trimtab tour
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)

    def say(text: str) -> None:
        console.print(Text(text))

    chapters: tuple[tuple[str, Callable[[Say], None]], ...] = (
        ("Filters and publications", _show_filters),
        ("A thousand subscribers", _show_matching),
        ("How filters relate", _show_relations),
        ("The covering set", _show_covering),
        ("Routing by content", _show_routing),
        ("Try next", _show_next),
    )
    console.print(Text("\nTrimtab: publish/subscribe by content.", style="bold"))
    for number, (title, show) in enumerate(chapters, 1):
        console.print(Text(f"\n{number}. {title}\n", style="bold"))
        show(say)


def _show_filters(say: Say) -> None:
    from trimtab.language import Filter, ParseError, Publication

    wanted = Filter.parse("class = 'STOCK' AND symbol LIKE 'YH%' AND volume > 300000")
    say("  A subscriber says what it wants, in a notation for people or in brackets:")
    say(f"    {wanted.to_sql()}")
    say(f"    {wanted}")
    say("  Publications are named values; those that satisfy the filter are delivered:")
    for text in ("[class,'STOCK'],[symbol,'YHOO'],[volume,412000]", "[class,'STOCK'],[symbol,'YHOO'],[volume,203400]"):
        say(f"    {text}  {'delivered' if wanted.matches(Publication.parse(text)) else 'not delivered'}")
    say("  A mistake is pointed at:")
    try:
        Filter.parse("[class,eq,'STOCK'],[volume,>>,5]")
    except ParseError as error:
        for line in (*error.pointer().splitlines(), error.reason):
            say(f"    {line}")


def _show_matching(say: Say) -> None:
    from trimtab.matching import BruteForceMatcher, Matcher
    from trimtab.simulation.workloads.quotes import generate_quotes
    from trimtab.simulation.workloads.stock import StockWorkload

    workload = StockWorkload(generate_quotes(Random(1), days_count=100), Random(2))
    publications = [publication.values_by_name for publication in workload.publications(_PUBLICATIONS_COUNT)]
    matcher, one_by_one = Matcher(), BruteForceMatcher()
    for number, filter in enumerate(workload.subscriptions(_FILTERS_COUNT)):
        matcher.add(f"subscriber {number}", filter)
        one_by_one.add(f"subscriber {number}", filter)
    example = publications[0]
    receivers = list(matcher.match(example))
    say(f"  {_FILTERS_COUNT:,} subscribers to {len(workload.symbols)} stocks, and a quote of {example['symbol']}:")
    say(f"    it goes to {len(receivers)} of them: {', '.join(map(str, receivers[:3]))} ...")
    matcher_us = _time_us(lambda: matcher.match_many(publications)) / len(publications)
    few = publications[:10]
    one_by_one_us = _time_us(lambda: one_by_one.match_many(few)) / len(few)
    say(f"  Looking at the filters one by one takes {one_by_one_us:,.0f} microseconds for a quote;")
    same = [set(keys) for keys in matcher.match_many(few)] == [set(keys) for keys in one_by_one.match_many(few)]
    finding = "the same" if same else "SOMETHING ELSE, which is a mistake in Trimtab"
    say(f"  the matcher ({matcher.engine} engine) takes {matcher_us:,.2f}, and finds {finding}.")


def _time_us(work: Callable[[], object]) -> float:
    """The shortest of a few runs."""
    times_us: list[float] = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        times_us.append((time.perf_counter() - start) * 1e6)
    return min(times_us)


def _show_relations(say: Say) -> None:
    from trimtab.language import Filter, relate

    pairs = (
        ("volume > 1000", "volume > 300000"),
        ("symbol LIKE 'YH%'", "symbol >= 'YH' AND symbol < 'YI'"),
        ("price BETWEEN 10 AND 20", "price > 15"),
        ("price < 10", "price > 15"),
        ("v < 5 OR v >= 5", "v isPresent 0"),
    )
    say("  Brokers compare filters exactly, so that they need not repeat what is asked for already:")
    for first, second in pairs:
        relation = relate(Filter.parse_all(first), Filter.parse_all(second))
        say(f"    {first:24} {relation.value:10} {second}")


def _show_covering(say: Say) -> None:
    from trimtab.language import Filter
    from trimtab.matching import CoveringSet

    texts = (
        "[class,eq,'STOCK']",
        "[class,eq,'STOCK'],[symbol,eq,'YHOO']",
        "[class,eq,'STOCK'],[volume,>,1000]",
        "[class,eq,'SPORTS']",
        "[class,eq,'SPORTS'],[type,eq,'RACING']",
    )
    covering = CoveringSet()
    for text in texts:
        covering.add(text, Filter.parse(text))
    say("  Of these subscriptions a broker passes on only those that no other covers:")
    for text in texts:
        coverer = covering.covered_by(text)
        say(f"    {text:40} {'passed on' if coverer is None else f'covered by {coverer}'}")
    covering.remove(texts[0])
    say(f"  When {texts[0]} leaves, the broker passes on instead:")
    for key in covering.covering():
        if key != texts[3]:
            say(f"    {key}")


def _show_routing(say: Say) -> None:
    from trimtab.cli.operations.routing_example import LINKS, Table, deliver, flood, subscribe
    from trimtab.language import Filter, Publication

    announced = Filter.parse("a > 1")
    came_from = flood(LINKS, "B1")
    table: Table = {}
    say("  Four brokers: B1 - B2, and B2 - B3, B2 - B4. A publisher at B1 announces a > 1; all brokers learn of it.")
    for subscriber, broker, text in (("sub1", "B4", "a > 5"), ("sub2", "B3", "a > 9")):
        wanted = Filter.parse(text)
        way = subscribe(table, came_from, announced, subscriber=subscriber, broker=broker, wanted=wanted)
        say(f"    {subscriber} at {broker} wants {text}: the subscription travels {' -> '.join(way)}")
    say("  The second one stops at B2, which asks B1 for a > 5 already. Each broker now knows whom to send what:")
    for broker in LINKS:
        rows = ", ".join(f"{target}: {wanted.to_sql()}" for target, wanted in table[broker].items())
        say(f"    {broker}   {rows}")
    for value in (3, 7, 12):
        passed, received = deliver(table, "B1", Publication(a=value))
        say(
            f"    a = {value:<3} passes {', '.join(passed):15} and reaches {' and '.join(sorted(received)) or 'nobody'}"
        )


def _show_next(say: Say) -> None:
    say("    trimtab relate \"[class,eq,'STOCK']\" \"class = 'STOCK' AND volume > 300000\"")
    say("    trimtab match --filters FILE --publications FILE")
    say("    trimtab bench match --filters 10000")
    say("    trimtab --help")
    say("  In Python: from trimtab import Filter, Matcher, Publication; help(Filter). More in README.md.\n")
