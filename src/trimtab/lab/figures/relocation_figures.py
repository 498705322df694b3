"""Draws what a grid of relocation scenarios showed, as the publisher relocation paper does in its Figures 5 and 6.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009), section 5.2: metrics over the
number of brokers with subscribers, over the weight, over the threshold, and over time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from trimtab.lab.figures.style import COLOURS, legend_beside, pyplot, save
from trimtab.simulation.relocation.scenario import BASELINE
from trimtab.simulation.relocation.summary import RelocationSummary
from trimtab.simulation.scenarios.summary import GridSummary

_METRICS: Final[tuple[tuple[str, str, str, float], ...]] = (
    ("message_rate_mean_per_s", "messages per broker and second", "5a", 1.0),
    ("input_ratio_mean", "mean input ratio", "5b", 1.0),
    ("delivery_delay_mean_s", "mean delivery delay [ms]", "5c", 1e3),
    ("hops_mean", "brokers on the way of a delivery", "5d", 1.0),
    ("memory_bytes_mean", "memory of a broker [MB]", "5e", 1e-6),
    ("overhead_ratio", "share of messages that are no publications", "5f", 1.0),
)


def draw_relocation(grid: GridSummary, to: Path) -> list[Path]:
    """Draw all that the grid allows; the paths of the files."""
    written: list[Path] = []
    spreads = list(dict.fromkeys(run.details.spread for run in grid.runs))
    thresholds = list(dict.fromkeys(run.details.threshold for run in grid.runs if run.policy != BASELINE))
    policies = [name for name in dict.fromkeys(run.policy for run in grid.runs) if name != BASELINE]
    if len(spreads) > 1:
        written.append(_draw_over(grid, "spread", "brokers with subscribers of one publisher", to))
    elif len(thresholds) > 1:
        written.append(_draw_over(grid, "threshold", "publications traced before selection", to))
    elif policies:
        written.append(_draw_policies(grid, policies, to))
    if len(spreads) == 1:
        written.append(_draw_series(grid, to))
    if any(run.details.publisher_wait_s for run in grid.runs):
        written.append(_draw_waits(grid, to))
    return written


def _panels(plt: Any) -> tuple[Any, list[Any]]:
    figure, axes = plt.subplots(2, 3, figsize=(12.0, 6.2), layout="constrained")
    return figure, [each for row in axes for each in row]


def _draw_over(grid: GridSummary, key: str, label: str, to: Path) -> Path:
    """Each metric over a key, a line for each policy, every run as a dot."""
    plt = pyplot()
    figure, panels = _panels(plt)
    policies = list(dict.fromkeys(run.policy for run in grid.runs))
    places = sorted({getattr(run.details, key) for run in grid.runs})
    for axes, (field, title, number, scale) in zip(panels, _METRICS, strict=True):
        for line, policy in enumerate(policies):
            runs = [run for run in grid.runs if run.policy == policy]
            if key == "threshold" and policy == BASELINE:
                axes.axhline(_mean(runs, field) * scale, color="black", linewidth=0.8, linestyle=":", label=policy)
                continue
            by_place = {place: [run for run in runs if getattr(run.details, key) == place] for place in places}
            told = [place for place in places if by_place[place]]
            colour = COLOURS[line % len(COLOURS)]
            means = [_mean(by_place[place], field) * scale for place in told]
            axes.plot(told, means, color=colour, marker="o", markersize=4, label=policy)
            for run in runs:
                axes.plot(
                    getattr(run.details, key),
                    getattr(run.details, field) * scale,
                    color=colour,
                    marker=".",
                    markersize=3,
                )
        axes.set_xscale("log")
        axes.set_xticks(places, [str(place) for place in places])
        axes.minorticks_off()
        axes.set_title(f"{title} ({number})", fontsize=9)
        axes.set_xlabel(label, fontsize=8)
        axes.set_ylim(bottom=0)
    legend_beside(panels[2])
    return _saved(plt, figure, to, f"{grid.scenario}-by-{key}")


def _draw_policies(grid: GridSummary, policies: list[str], to: Path) -> Path:
    """Each metric for each policy in its order, with the level without relocation as a line."""
    plt = pyplot()
    figure, panels = _panels(plt)
    for axes, (field, title, number, scale) in zip(panels, _METRICS, strict=True):
        for place, policy in enumerate(policies):
            runs = [run for run in grid.runs if run.policy == policy]
            axes.bar(place, _mean(runs, field) * scale, color=COLOURS[policy.startswith("grape-delay")])
            axes.plot([place] * len(runs), [getattr(run.details, field) * scale for run in runs], "k.", markersize=3)
        still = [run for run in grid.runs if run.policy == BASELINE]
        if still:
            axes.axhline(_mean(still, field) * scale, color="black", linewidth=0.8, linestyle=":")
        names = [policy.removeprefix("grape-") for policy in policies]
        axes.set_xticks(range(len(policies)), names, rotation=60, fontsize=8)
        axes.set_title(f"{title} ({number}); dotted: none", fontsize=9)
    return _saved(plt, figure, to, f"{grid.scenario}-policies")


def _draw_series(grid: GridSummary, to: Path) -> Path:
    """Message rate, delay and hops over time, of the first seed."""
    plt = pyplot()
    figure, panels = plt.subplots(1, 3, figsize=(12.0, 3.4), layout="constrained")
    seed = grid.runs[0].seed
    fields: tuple[tuple[str, Callable[[Any], float | None], float], ...] = (
        ("messages per broker and second", lambda each: each.message_rate_per_s, 1.0),
        ("mean delivery delay [ms]", lambda each: each.delivery_delay_s, 1e3),
        ("brokers on the way of a delivery", lambda each: each.hops, 1.0),
    )
    varies = len({run.details.threshold for run in grid.runs if run.policy != BASELINE}) > 1
    for axes, (title, value, scale) in zip(panels, fields, strict=True):
        for line, run in enumerate(run for run in grid.runs if run.seed == seed):
            told = [(each.time_s, number * scale) for each in run.details.series if (number := value(each)) is not None]
            name = f"{run.policy} {run.details.threshold}" if varies and run.policy != BASELINE else run.policy
            axes.plot(*zip(*told, strict=True), color=COLOURS[line % len(COLOURS)], linewidth=1.0, label=name)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("time [s]")
        axes.set_ylim(bottom=0)
    legend_beside(panels[2])
    return _saved(plt, figure, to, f"{grid.scenario}-over-time")


def _draw_waits(grid: GridSummary, to: Path) -> Path:
    """How long publishers waited over the links that their moves went over."""
    plt = pyplot()
    figure, axes = plt.subplots(layout="constrained")
    for line, policy in enumerate(dict.fromkeys(run.policy for run in grid.runs if run.details.publisher_wait_s)):
        waits: dict[int, list[float]] = {}
        for run in grid.runs:
            for hops, wait_s in run.details.publisher_wait_s.items() if run.policy == policy else ():
                waits.setdefault(int(hops), []).append(1e3 * wait_s)
        places = sorted(waits)
        axes.plot(
            places,
            [fmean(waits[place]) for place in places],
            color=COLOURS[line % len(COLOURS)],
            marker="o",
            markersize=4,
            label=policy,
        )
    axes.set_title("How long a publisher waits for its move (compare figure 6c)")
    axes.set_xlabel("links between the old and the new broker")
    axes.set_ylabel("ms")
    axes.set_ylim(bottom=0)
    legend_beside(axes)
    return _saved(plt, figure, to, f"{grid.scenario}-waits")


def _mean(runs: Iterable[RelocationSummary], field: str) -> float:
    return fmean(getattr(run.details, field) for run in runs)


def _saved(plt: Any, figure: Any, to: Path, name: str) -> Path:
    path = save(figure, to, name)
    plt.close(figure)
    return path
