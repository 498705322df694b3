"""What was promised and what came: an account of a history that shares nothing with the code that it judges.

Owed to a subscription is each publication that it wants, that was handed over after its confirmation, and that was
acknowledged. Of a subscription that has ended only what comes before the last that it got of the same publisher: what
was under way then may or may not have come. A publication whose acceptance nobody saw is allowed and not owed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from math import inf
from typing import Final, Literal, TypeAlias

import msgspec

from trimtab.lab.bench.nemesis.history import Arrivals, Gap, History, Publications, SubscriptionHistory

Fault: TypeAlias = Literal["lost", "doubled", "reordered", "wrong", "refused", "told"]
FOUND_MAX_COUNT: Final = 10_000
"""So many single findings are kept; all are counted."""


class Finding(msgspec.Struct, frozen=True):
    """One publication that did not come as promised."""

    fault: Fault
    publisher: str
    number: int
    subscriber: str
    wanted: str
    published_s: float | None = None
    accepted_s: float | None = None
    at_s: float | None = None
    """When it came, or when the next one of its publisher came, if one did."""
    detail: str = ""


class Account(msgspec.Struct):
    """All of a history."""

    published_count: int = 0
    acknowledged_count: int = 0
    owed_count: int = 0
    delivered_count: int = 0
    lost_count: int = 0
    """Owed, not delivered, and nobody was told."""
    doubled_count: int = 0
    reordered_count: int = 0
    wrong_count: int = 0
    """Delivered though it was never published so, or not wanted."""
    refused_count: int = 0
    gaps_count: int = 0
    """Owed and not delivered, and the subscriber was told."""
    notices_count: int = 0
    findings: list[Finding] = msgspec.field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Keep a finding."""
        if len(self.findings) < FOUND_MAX_COUNT:
            self.findings.append(finding)

    def is_right(self, *, may_lose: bool) -> bool:
        """Whether every promise was kept; where losses are allowed they must be told."""
        wrong_count = self.lost_count + self.doubled_count + self.reordered_count + self.wrong_count
        return not wrong_count and not self.refused_count and (may_lose or not self.gaps_count)


def check(history: History) -> Account:
    """Compare what came with what is owed."""
    account = Account()
    for publications in history.publications.values():
        account.published_count += len(publications)
        account.acknowledged_count += publications.accepted_count
        account.refused_count += len(publications.refused)
        for number in sorted(publications.refused):
            account.add(Finding("refused", publications.publisher, number, "", ""))
    for subscription in history.subscriptions:
        account.notices_count += len(subscription.gaps)
        _check_strange(subscription, account)
        for name in subscription.arrivals:
            if name not in history.publications:
                _wrong(account, subscription, name, -1, "nobody published under this name")
        for publications in history.publications.values():
            arrivals = subscription.arrivals.get(publications.publisher, Arrivals())
            _check_arrivals(account, subscription, publications, arrivals)
            _check_owed(account, subscription, publications, arrivals)
    return account


def missing(history: History, subscription: SubscriptionHistory) -> Iterator[tuple[Publications, int]]:
    """What is owed to a subscription and has not come, and of which nobody has told that it may be lost."""
    for publications in history.publications.values():
        arrivals = subscription.arrivals.get(publications.publisher, Arrivals())
        got = set(arrivals.numbers)
        is_told = _notices(subscription, publications, arrivals)
        for number in _owed(subscription, publications, arrivals):
            if number not in got and not is_told(number):
                yield publications, number


def _owed(subscription: SubscriptionHistory, publications: Publications, arrivals: Arrivals) -> Iterator[int]:
    """The numbers of what is owed."""
    if subscription.in_force_s is None:
        return
    wanted, since_s = subscription.wanted, subscription.in_force_s
    ends = publications.accepted_count
    if subscription.ended_s is not None:
        ends = min(ends, max(arrivals.numbers, default=-1))
    published_s, symbols, prices = publications.published_s, publications.symbols, publications.prices
    for number in range(min(ends, len(publications))):
        if published_s[number] > since_s and wanted.takes(symbols[number], prices[number]):
            if number not in publications.refused:
                yield number


def _check_strange(subscription: SubscriptionHistory, account: Account) -> None:
    for detail in subscription.strange:
        _wrong(account, subscription, "", -1, detail)
        account.delivered_count += 1


def _check_arrivals(
    account: Account, subscription: SubscriptionHistory, publications: Publications, arrivals: Arrivals
) -> None:
    """Each once, in the order of their numbers, and wanted."""
    seen: set[int] = set()
    highest = -1
    for number, at_s in zip(arrivals.numbers, arrivals.at_s, strict=True):
        account.delivered_count += 1
        if not 0 <= number < len(publications):
            _wrong(account, subscription, publications.publisher, number, "it was never published")
            continue
        if not subscription.wanted.takes(publications.symbols[number], publications.prices[number]):
            content = f"{publications.symbols[number]} at {publications.prices[number]} was not wanted"
            _wrong(account, subscription, publications.publisher, number, content)
        if number in seen:
            account.doubled_count += 1
            account.add(_finding("doubled", subscription, publications, number, at_s))
        elif number < highest:
            account.reordered_count += 1
            account.add(_finding("reordered", subscription, publications, number, at_s, detail=f"after {highest}"))
        seen.add(number)
        highest = max(highest, number)


def _check_owed(
    account: Account, subscription: SubscriptionHistory, publications: Publications, arrivals: Arrivals
) -> None:
    """All that is owed has come, or its absence was told."""
    got = set(arrivals.numbers)
    came = sorted(zip(arrivals.numbers, arrivals.at_s, strict=True))
    is_told = _notices(subscription, publications, arrivals)
    for number in _owed(subscription, publications, arrivals):
        account.owed_count += 1
        if number in got:
            continue
        fault: Fault = "told" if is_told(number) else "lost"
        if fault == "told":
            account.gaps_count += 1
        else:
            account.lost_count += 1
        later = bisect_right(came, (number, inf))
        next_s = came[later][1] if later < len(came) else None
        account.add(_finding(fault, subscription, publications, number, next_s))


def _notices(
    subscription: SubscriptionHistory, publications: Publications, arrivals: Arrivals
) -> Callable[[int], bool]:
    """Whether a subscriber was told that a number may be lost."""
    gaps = [
        (gap, _next_number(arrivals, gap.told_s))
        for gap in subscription.gaps
        if gap.publisher in ("", publications.publisher)
    ]
    return lambda number: any(_covers(gap, next_number, publications, number) for gap, next_number in gaps)


def _next_number(arrivals: Arrivals, after_s: float) -> float:
    """The first number that came after some time; beyond all if none did."""
    return next((number for number, at_s in zip(arrivals.numbers, arrivals.at_s, strict=True) if at_s > after_s), inf)


def _covers(gap: Gap, next_number: float, publications: Publications, number: int) -> bool:
    """Whether a notice tells of a publication; `next_number` is the first that came after it was told."""
    if not gap.publisher:
        return publications.published_s[number] <= gap.told_s
    sequence = publications.sequences[number]
    if gap.first_sequence is not None and sequence < gap.first_sequence:
        return False
    return number < next_number if gap.last_sequence is None else sequence <= gap.last_sequence


def _wrong(account: Account, subscription: SubscriptionHistory, publisher: str, number: int, detail: str) -> None:
    account.wrong_count += 1
    account.add(Finding("wrong", publisher, number, subscription.subscriber, subscription.wanted.text, detail=detail))


def _finding(
    fault: Fault,
    subscription: SubscriptionHistory,
    publications: Publications,
    number: int,
    at_s: float | None,
    *,
    detail: str = "",
) -> Finding:
    return Finding(
        fault,
        publications.publisher,
        number,
        subscription.subscriber,
        subscription.wanted.text,
        publications.published_s[number],
        publications.accepted_s(number),
        at_s,
        detail,
    )
