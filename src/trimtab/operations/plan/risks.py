"""What could go wrong with a plan, in words: brokers that would be overloaded, wishes that would be missed, unrest."""

from __future__ import annotations

from typing import Final

from trimtab.operations.plan.observation import Outcome
from trimtab.operations.plan.present import Present

NAMES_SHOWN_MAX_COUNT: Final = 5


def risks_of(outcome: Outcome, present: Present) -> tuple[str, ...]:
    """The risks of what would happen, the gravest first; empty if there are none."""
    found: list[str] = []
    if outcome.violations:
        found.append(f"the checkers found {len(outcome.violations)} violations, the first: {outcome.violations[0]}")
    for name, broker in outcome.brokers.items():
        end = broker.end
        if end.input_utilization_ratio > 1:
            found.append(
                f"{name} gets {end.input_utilization_ratio:.0%} of what it can match at the end; "
                f"{end.input_queue_count:,.0f} publications wait for it"
            )
        if end.output_utilization_ratio > 1:
            found.append(
                f"{name} has {end.output_utilization_ratio:.0%} of what its bandwidth can carry at the end; "
                f"{end.output_queue_count:,.0f} messages wait to leave"
            )
    for name, broker in outcome.brokers.items():
        ends_well = max(broker.end.input_utilization_ratio, broker.end.output_utilization_ratio) <= 1
        if broker.overloaded_s and ends_well:
            found.append(f"{name} is above 100 % for {broker.overloaded_s:,.0f} s, at most {broker.highest_ratio:.0%}")
    wishes = [each.name for each in present.clients if any(one.within_s is not None for one in each.subscriptions)]
    if outcome.late_clients:
        found.append(
            f"{len(outcome.late_clients):,} of {len(wishes):,} clients with a latency requirement get "
            f"{outcome.late_count:,} deliveries too late: {_some(outcome.late_clients)}"
        )
    if outcome.moved_again:
        most = max(outcome.moved_again.values())
        found.append(
            f"{len(outcome.moved_again):,} clients move more than once, up to {most} times: "
            f"{_some(tuple(outcome.moved_again))}"
        )
    if outcome.stayed_count:
        found.append(f"{outcome.stayed_count:,} moves are refused or undone")
    if outcome.policy != "none" and not outcome.is_level_at_end:
        is_lost = outcome.level_after_s is not None
        found.append("the load becomes level, but is not at the end" if is_lost else "the load never becomes level")
    return tuple(found)


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN_MAX_COUNT])
    return shown if len(names) <= NAMES_SHOWN_MAX_COUNT else f"{shown} ..."
