"""What `trimtab plan` shows: brokers before and after, delays and moves, risks, and predictions beside observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from trimtab.cli.input_lines import printable
from trimtab.operations.plan.comparison import Compared, Comparison
from trimtab.operations.plan.observation import Indices, Outcome
from trimtab.operations.plan.plan import WhatIfPlan

SESSIONS_SHOWN_MAX_COUNT: Final = 12
NOT_KNOWN: Final = "-"


def brokers_table(plan: WhatIfPlan) -> Table:
    """One line for each broker: as measured, at the end without a change, and at the end of the plan."""
    after = f"after {plan.planned.duration_s / 60:g} minutes"
    as_it_is = f", {after} as it is ({plan.policy_now}), and as planned ({plan.policy})"
    table = Table(title=f"Brokers: now{as_it_is if plan.as_it_is is not None else f' and {after} ({plan.policy})'}")
    table.add_column("broker")
    for name in ("input ratio", "output ratio", "match ms", "clients", "queued"):
        table.add_column(name, justify="right")
    names = dict.fromkeys([*plan.now, *plan.planned.brokers])
    for name in names:
        moments = [
            plan.now.get(name),
            *([_end(plan.as_it_is, name)] if plan.as_it_is is not None else []),
            _end(plan.planned, name),
        ]
        table.add_row(
            name,
            _way(moments, lambda each: each.input_utilization_ratio, ".2f"),
            _way(moments, lambda each: each.output_utilization_ratio, ".2f"),
            _way(moments, lambda each: 1000 * each.matching_delay_s, ".1f"),
            _way(moments, lambda each: each.clients_count, ",.0f"),
            _way(moments, lambda each: each.input_queue_count + each.output_queue_count, ",.0f"),
        )
    return table


def _end(outcome: Outcome | None, name: str) -> Indices | None:
    if outcome is None or name not in outcome.brokers:
        return None
    return outcome.brokers[name].end


def _way(moments: Sequence[Indices | None], value: Callable[[Indices], float], form: str) -> Text:
    """The moments with arrows between; ratios above 1 stand out."""
    shown = [NOT_KNOWN if each is None else format(value(each), form) for each in moments]
    last = moments[-1]
    is_overloaded = form == ".2f" and last is not None and value(last) > 1
    return Text(" > ".join(shown), style="bold red" if is_overloaded else "")


def network_table(plan: WhatIfPlan) -> Table:
    """Delays, moves and when the load is level, as it is and as planned."""
    outcomes = [each for each in (plan.as_it_is, plan.planned) if each is not None]
    table = Table(title="The network")
    table.add_column("")
    for title in ("as it is", "as planned")[-len(outcomes) :]:
        table.add_column(title, justify="right")
    rows: list[tuple[str, Callable[[Outcome], str]]] = [
        ("policy", lambda each: each.policy),
        ("deliveries", lambda each: f"{each.deliveries_count:,}"),
        ("delay at the end, mean", lambda each: _seconds(each.end_delay_mean_s)),
        ("delay at the end, 99 %", lambda each: _seconds(each.end_delay_p99_s)),
        ("delay over all, mean", lambda each: _seconds(each.delay_mean_s)),
        ("delay over all, 99 %", lambda each: _seconds(each.delay_p99_s)),
        ("late deliveries", lambda each: f"{each.late_count:,}"),
        ("moves", lambda each: f"{each.moves_count:,}"),
        ("last move", lambda each: "none" if each.last_move_s is None else f"{each.last_move_s:,.0f} s"),
        ("level", _level),
        ("broker-seconds above 100 %", lambda each: f"{sum(one.overloaded_s for one in each.brokers.values()):,.0f}"),
    ]
    for title, cell in rows:
        table.add_row(title, *(cell(each) for each in outcomes))
    return table


def _level(outcome: Outcome) -> str:
    if outcome.level_after_s is None:
        return "not reached"
    return f"after {outcome.level_after_s:,.0f} s" + ("" if outcome.is_level_at_end else ", not at the end")


def _seconds(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{1000 * seconds:,.1f} ms"


def plan_lines(plan: WhatIfPlan) -> list[str]:
    """What balancing would do, the risks, and what is not known, in words."""
    lines = [f"Changed: {each}." for each in plan.changes]
    sessions = plan.planned.sessions
    lines += [f"  {each}" for each in sessions[:SESSIONS_SHOWN_MAX_COUNT]]
    if len(sessions) > SESSIONS_SHOWN_MAX_COUNT:
        lines.append(f"  ... and {len(sessions) - SESSIONS_SHOWN_MAX_COUNT:,} more (--json tells all)")
    if plan.planned.sessions_in_vain_count:
        lines.append(f"  {plan.planned.sessions_in_vain_count:,} sessions of two brokers move nobody")
    lines += [f"Risk: {each}." for each in plan.risks] or ["Risk: none seen."]
    lines += [f"Not known: {each}." for each in plan.unknown]
    return [printable(line) for line in lines]


def comparison_table(comparison: Comparison) -> Table:
    """One line for each broker: predicted and observed."""
    table = Table(title=f"Predicted ({comparison.planned_policy}) and observed")
    table.add_column("broker")
    for title in ("input ratio", "output ratio", "match ms", "clients"):
        table.add_column(title, justify="right")
    for name, each in comparison.brokers.items():
        several = comparison.runs_count > 1
        table.add_row(
            name,
            _beside(each, lambda one: one.input_utilization_ratio, ".2f", several),
            _beside(each, lambda one: one.output_utilization_ratio, ".2f", several),
            _beside(each, lambda one: 1000 * one.matching_delay_s, ".1f", several),
            _beside(each, lambda one: one.clients_count, ".0f", several),
        )
    mean, largest = comparison.mean_error, comparison.largest_error
    table.add_section()
    for title, errors in (("mean error", mean), ("largest error", largest)):
        table.add_row(
            title,
            f"{errors['input_utilization_ratio']:.3f}",
            f"{errors['output_utilization_ratio']:.3f}",
            f"{1000 * errors['matching_delay_s']:.1f}",
            f"{errors['clients_count']:.1f}",
        )
    return table


def _beside(each: Compared, value: Callable[[Indices], float], form: str, several: bool) -> str:
    """Predicted, with lowest and highest where there are several runs, and observed."""
    low, high = (format(value(one), form) for one in (each.low, each.high))
    range_told = f" ({low}-{high})" if several else ""
    return f"{value(each.predicted):{form}}{range_told} / {value(each.observed):{form}}"


def spread_table(plan: WhatIfPlan) -> Table:
    """What the runs of a plan have in common: lowest and highest of each broker at the end."""
    spread = plan.spread
    table = Table(title=f"As planned, over {spread.runs_count} seeds: lowest to highest at the end")
    table.add_column("broker")
    for title in ("input ratio", "output ratio", "match ms", "clients"):
        table.add_column(title, justify="right")
    for name, each in spread.brokers.items():
        ends = (each.low, each.high)
        table.add_row(
            name,
            " - ".join(f"{one.input_utilization_ratio:.2f}" for one in ends),
            " - ".join(f"{one.output_utilization_ratio:.2f}" for one in ends),
            " - ".join(f"{1000 * one.matching_delay_s:.1f}" for one in ends),
            " - ".join(f"{one.clients_count:,.0f}" for one in ends),
        )
    return table
