"""What a run came to, for people and programs, and what was done around each loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from trimtab.lab.bench.nemesis.checker import Account, Finding
from trimtab.lab.bench.nemesis.history import History
from trimtab.lab.bench.nemesis.nemesis import Done
from trimtab.lab.bench.nemesis.schedule import Level

AROUND_S: Final = 6.0
"""What was done so long before and after is shown beside a finding."""

SHOWN_MAX_COUNT: Final = 20


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    level: Level
    seed: int
    minutes: float
    out: str
    elapsed_s: float
    published_count: int
    acknowledged_count: int
    owed_count: int
    delivered_count: int
    lost_count: int
    doubled_count: int
    reordered_count: int
    wrong_count: int
    refused_count: int
    gaps_count: int
    notices_count: int
    deaths_count: int
    events: dict[str, int]
    moved_count: int
    stayed_count: int
    recovered_max_s: float
    publications_per_s: float
    is_at_rest: bool
    not_at_rest: list[str]
    problems: list[str]
    is_right: bool


class Group(msgspec.Struct):
    """Findings of one kind, one publisher and one subscription whose numbers lie close together."""

    findings: list[Finding]

    @property
    def title(self) -> str:
        """What happened to which numbers."""
        first, last = self.findings[0], self.findings[-1]
        numbers = f"number {first.number}" if first is last else f"{len(self.findings)} of {first.number}-{last.number}"
        return f"{first.fault}: {first.publisher} {numbers} for {first.subscriber} ({first.wanted})"

    @property
    def times_s(self) -> tuple[float, float]:
        """From the first publication to the last acknowledgement or arrival of these."""
        found = [
            time_s
            for each in self.findings
            for time_s in (each.published_s, each.accepted_s, each.at_s)
            if time_s is not None
        ]
        return (min(found), max(found)) if found else (0.0, 0.0)


def groups(findings: Sequence[Finding]) -> Iterator[Group]:
    """Findings that belong together."""
    group: Group | None = None
    for each in sorted(findings, key=lambda one: (one.fault, one.subscriber, one.wanted, one.publisher, one.number)):
        last = group.findings[-1] if group is not None else None
        key = (each.fault, each.subscriber, each.wanted, each.publisher)
        if (
            group is not None
            and last is not None
            and key == (last.fault, last.subscriber, last.wanted, last.publisher)
            and each.number - last.number < 200
        ):
            group.findings.append(each)
            continue
        if group is not None:
            yield group
        group = Group([each])
    if group is not None:
        yield group


def explained(account: Account, history: History, done: Sequence[Done]) -> Iterator[str]:
    """Each group of findings with where its clients were and what the nemesis did around then."""
    places = {each.subscriber: each.places for each in history.subscriptions}
    places |= {each.publisher: each.places for each in history.publications.values()}
    for group in groups(account.findings):
        first = group.findings[0]
        begins_s, ends_s = group.times_s
        yield group.title
        if first.detail:
            yield f"    {first.detail}"
        if first.published_s is None:
            continue
        accepted = [each.accepted_s for each in group.findings if each.accepted_s is not None]
        if accepted:
            seen = f"acknowledged {min(accepted):.3f}-{max(accepted):.3f} s"
            yield f"    published from {first.published_s:.3f} s, {seen}"
        came = [each.at_s for each in group.findings if each.at_s is not None]
        if came:
            said = "a later one of its publisher came" if first.fault in ("lost", "told") else "came"
            yield f"    {said} at {min(came):.3f} s"
        for name in (first.publisher, first.subscriber):
            where = [f"{broker} since {since_s:.1f} s" for since_s, broker in places.get(name, ()) if since_s <= ends_s]
            yield f"    {name} was at {', '.join(where[-4:])}"
        for each in done:
            if begins_s - AROUND_S <= each.at_s <= ends_s + AROUND_S:
                yield f"    {each.at_s:9.3f} s ({each.wall}) {each.what}"


def lines(outcome: Outcome) -> Iterator[str]:
    """What came of it, for people."""
    yield (
        f"{outcome.published_count:,} published ({outcome.publications_per_s:,.0f} per second), "
        f"{outcome.acknowledged_count:,} acknowledged, {outcome.owed_count:,} deliveries owed, "
        f"{outcome.delivered_count:,} delivered"
    )
    yield (
        f"lost {outcome.lost_count:,}, doubled {outcome.doubled_count:,}, reordered {outcome.reordered_count:,}, "
        f"wrong {outcome.wrong_count:,}, refused {outcome.refused_count:,}; gaps {outcome.gaps_count:,}, told in "
        f"{outcome.notices_count:,} notices"
    )
    events = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.events.items()))
    well = f"well again after {outcome.recovered_max_s:.1f} s at most"
    yield f"{outcome.deaths_count} deaths and restarts ({events}); {well}"
    yield f"{outcome.moved_count} moves of clients, {outcome.stayed_count} that were undone or refused"
    yield from outcome.problems[:SHOWN_MAX_COUNT]
    if not outcome.is_at_rest:
        yield "not at rest:"
        for each in outcome.not_at_rest[:SHOWN_MAX_COUNT]:
            yield f"    {each}"
    yield f"seed {outcome.seed}, level {outcome.level}; everything is in {outcome.out}"
