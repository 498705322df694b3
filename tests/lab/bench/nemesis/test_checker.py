"""The nemesis's checker finds each kind of broken promise in histories that were made by hand."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from trimtab.lab.bench.nemesis import checker
from trimtab.lab.bench.nemesis import history as history_module
from trimtab.lab.bench.nemesis.checker import Account, check
from trimtab.lab.bench.nemesis.history import Gap, History, SubscriptionHistory, Wanted

PRICES = (10, 50, 60, 20, 70)
"""One a second from second 1 on; the symbol of all is S1."""

WANTED = Wanted("S1", 30)
ALL_WANTED = (1, 2, 4)


def made(accepted_count: int = len(PRICES), in_force_s: float | None = 0.5) -> History:
    """A publisher and a subscriber that has got nothing yet."""
    found = History()
    publications = found.publisher("P")
    for number, price in enumerate(PRICES):
        assert publications.published("S1", price, 1.0 + number) == number
        publications.sequences.append(101 + number)
    publications.accepted(accepted_count, 9.0)
    found.subscription("S", WANTED).in_force_s = in_force_s
    return found


def got(found: History, *numbers: int) -> SubscriptionHistory:
    """Let the subscriber get publications."""
    [subscription] = found.subscriptions
    publications = found.publications["P"]
    for number in numbers:
        found.take(subscription, "P", publications.values(number), 20.0 + number)
    return subscription


def faults(account: Account) -> list[tuple[str, int]]:
    return [(finding.fault, finding.number) for finding in account.findings]


def test_all_that_is_owed_has_come() -> None:
    found = made()
    got(found, *ALL_WANTED)
    account = check(found)
    assert (account.published_count, account.acknowledged_count, account.owed_count) == (5, 5, 3)
    assert (account.delivered_count, account.findings, account.is_right(may_lose=False)) == (3, [], True)


@pytest.mark.parametrize("lost", ALL_WANTED)
def test_what_does_not_come_is_lost(lost: int) -> None:
    found = made()
    got(found, *(number for number in ALL_WANTED if number != lost))
    account = check(found)
    assert (faults(account), account.lost_count) == ([("lost", lost)], 1)
    [finding] = account.findings
    assert (finding.publisher, finding.subscriber, finding.wanted) == ("P", "S", "symbol = 'S1' AND price > 30")
    assert (finding.published_s, finding.accepted_s) == (1.0 + lost, 9.0)
    assert finding.at_s == (None if lost == ALL_WANTED[-1] else 20.0 + min(n for n in ALL_WANTED if n > lost))
    assert not account.is_right(may_lose=True)  # nobody was told


def test_what_was_not_acknowledged_is_not_owed() -> None:
    found = made(accepted_count=2)
    got(found, 1)
    assert check(found).findings == []
    got(found, 4)  # but it may come
    assert check(found).findings == []


def test_what_was_published_before_the_confirmation_is_not_owed() -> None:
    found = made(in_force_s=2.5)
    got(found, 2, 4)
    assert check(found).findings == []
    assert check(made(in_force_s=None)).owed_count == 0


def test_what_is_under_way_when_a_subscription_ends_may_come_or_not() -> None:
    found = made()
    subscription = got(found, 1)
    subscription.ended_s = 30.0
    assert check(found).findings == []
    got(found, 4)
    assert faults(check(found)) == [("lost", 2)]


def test_what_comes_twice_is_doubled() -> None:
    found = made()
    got(found, 1, 1, 2, 4, 2)
    account = check(found)
    assert faults(account) == [("doubled", 1), ("doubled", 2)]
    assert (account.doubled_count, account.reordered_count, account.lost_count) == (2, 0, 0)
    assert not account.is_right(may_lose=True)


def test_what_comes_after_a_later_one_is_reordered() -> None:
    found = made()
    got(found, 1, 4, 2)
    account = check(found)
    assert (faults(account), account.reordered_count) == ([("reordered", 2)], 1)
    assert not account.is_right(may_lose=True)


def test_order_is_that_of_each_publisher() -> None:
    found = made()
    other = found.publisher("Q")
    other.published("S1", 99, 1.0)
    other.sequences.append(1)
    other.accepted(1, 9.0)
    subscription = got(found, 1, 2)
    found.take(subscription, "Q", other.values(0), 25.0)
    got(found, 4)
    assert check(found).findings == []


def test_what_was_not_wanted_is_wrong() -> None:
    found = made()
    got(found, 0, *ALL_WANTED)
    account = check(found)
    assert (faults(account), account.wrong_count) == ([("wrong", 0)], 1)
    assert account.findings[0].detail == "S1 at 10 was not wanted"
    assert not account.is_right(may_lose=True)


@pytest.mark.parametrize(
    ("publisher", "values", "detail"),
    [
        ("P", {"p": "P", "n": 9, "symbol": "S1", "price": 50}, "P never published"),
        ("P", {"p": "P", "n": -1, "symbol": "S1", "price": 50}, "P never published"),
        ("P", {"p": "P", "n": "1", "symbol": "S1", "price": 50}, "P never published"),
        ("X", {"p": "X", "n": 1, "symbol": "S1", "price": 50}, "X never published"),
        ("P", {"p": "P", "n": 1, "symbol": "S1", "price": 51}, "P published {'p': 'P', 'n': 1, 'symbol': 'S1',"),
        ("P", {"p": "P", "n": 1, "symbol": "S2", "price": 50}, "P published {'p': 'P', 'n': 1, 'symbol': 'S1',"),
        ("P", {"n": 1, "symbol": "S1", "price": 50}, "P published {'p': 'P', 'n': 1, 'symbol': 'S1',"),
    ],
)
def test_what_nobody_published_is_wrong(publisher: str, values: dict[str, object], detail: str) -> None:
    found = made()
    subscription = got(found, *ALL_WANTED)
    found.take(subscription, publisher, values, 30.0)
    account = check(found)
    assert account.wrong_count == 1
    assert account.findings[0].detail.startswith(detail)
    assert account.lost_count == 0


def test_a_refused_publication_is_a_broken_promise_and_not_a_loss() -> None:
    found = made()
    found.publications["P"].refused.add(2)
    got(found, 1, 4)
    account = check(found)
    assert (faults(account), account.lost_count, account.refused_count) == ([("refused", 2)], 0, 1)
    assert not account.is_right(may_lose=True)


NOT_YET = 23.5
"""When all but the last one had come."""


@pytest.mark.parametrize(
    "gap",
    [
        Gap("P", 103, 103, 99.0),
        Gap("P", 101, 200, 99.0),
        Gap("P", None, 103, 99.0),
        Gap("P", 103, None, NOT_YET),
        Gap("P", None, None, NOT_YET),
        Gap("P", 103, None, 99.0),
        Gap("", None, None, 3.0),
    ],
)
def test_a_loss_that_was_told_is_a_gap(gap: Gap) -> None:
    found = made()
    got(found, 1, 4).gaps.append(gap)
    account = check(found)
    assert (faults(account), account.gaps_count, account.lost_count) == ([("told", 2)], 1, 0)
    assert account.notices_count == 1
    assert account.is_right(may_lose=True)
    assert not account.is_right(may_lose=False)


@pytest.mark.parametrize(
    "gap",
    [
        Gap("P", 104, None, NOT_YET),
        Gap("P", 101, 102, 99.0),
        Gap("Q", 101, None, NOT_YET),
        Gap("P", 101, None, 20.5),  # the next one that came was the second
        Gap("", None, None, 2.9),  # it was published later
    ],
)
def test_a_notice_about_something_else_excuses_nothing(gap: Gap) -> None:
    found = made()
    got(found, 1, 4).gaps.append(gap)
    assert faults(check(found)) == [("lost", 2)]


def test_acknowledgements_are_found_by_their_time() -> None:
    found = History()
    publications = found.publisher("P")
    for number in range(4):
        publications.published("S1", 1, float(number))
    publications.accepted(1, 5.0)
    publications.accepted(1, 6.0)
    publications.accepted(3, 7.0)
    assert [publications.accepted_s(number) for number in range(4)] == [5.0, 7.0, 7.0, None]
    assert publications.accepted_count == 3


def test_the_checker_shares_no_code_with_what_it_judges() -> None:
    for module in (checker, history_module):
        tree = ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
        imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        ours = {name for name in imported if name.split(".")[0] == "trimtab"}
        assert ours <= {"trimtab.lab.bench.nemesis.history"}
