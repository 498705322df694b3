"""Draws what a grid of coordination scenarios showed: loads and imbalance over time, and each policy beside the bound.

Source of the pictures' form: Nguyen, Uddin, Venkatasubramanian, multistage adaptive load balancing, the slides on
performance: load of each broker over time, largest load, cov, migrations, and the effect of alpha.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from trimtab.lab.figures.style import COLOURS, legend_beside, pyplot, save
from trimtab.simulation.coordination.world import CoordinationSummary
from trimtab.simulation.scenarios.summary import GridSummary

ALPHA_KEY: Final = "policy.multistage.migrate_cov"
_MEGA: Final = 1e6


def draw_grid(grid: GridSummary, to: Path) -> list[Path]:
    """Draw all that the grid allows; the paths of the files."""
    written: list[Path] = []
    if ALPHA_KEY in grid.varied:
        return [_draw_alpha(grid, to)]
    first_seed = grid.runs[0].seed
    for placement in dict.fromkeys(run.details.placement for run in grid.runs):
        runs = [run for run in grid.runs if run.details.placement == placement]
        shown = {run.policy: run for run in runs if run.seed == first_seed}
        written.append(_draw_loads(grid.scenario, placement, shown, to))
        written.append(_draw_cov(grid.scenario, placement, shown, to))
    written.append(_draw_bars(grid, to))
    return written


def _draw_loads(scenario: str, placement: str, runs: dict[str, CoordinationSummary], to: Path) -> Path:
    """A small picture for each policy: the load of each broker over time."""
    plt = pyplot()
    figure, all_axes = plt.subplots(
        1, len(runs), sharey=True, figsize=(2.3 * len(runs) + 1, 3.0), squeeze=False, layout="constrained"
    )
    for axes, (policy, run) in zip(all_axes[0], runs.items(), strict=True):
        times_s = [reading.time_s for reading in run.details.series]
        for broker in range(run.brokers or 0):
            loads = [reading.loads[broker] / _MEGA for reading in run.details.series]
            axes.plot(times_s, loads, color=COLOURS[broker % len(COLOURS)], linewidth=0.9)
        axes.plot(
            times_s,
            [each.lower_bounds.best / _MEGA for each in run.details.series],
            color="black",
            linestyle=":",
            linewidth=1,
        )
        axes.set_title(policy)
        axes.set_xlabel("time [s]")
    all_axes[0][0].set_ylabel("load [MB/s]")
    all_axes[0][0].set_ylim(bottom=0)
    figure.suptitle(f"{scenario}, {placement} placement: each broker's load; dotted: lower bound", fontsize=10)
    path = save(figure, to, f"{scenario}-{placement}-loads")
    plt.close(figure)
    return path


def _draw_cov(scenario: str, placement: str, runs: dict[str, CoordinationSummary], to: Path) -> Path:
    plt = pyplot()
    figure, axes = plt.subplots(layout="constrained")
    for number, (policy, run) in enumerate(runs.items()):
        axes.plot(
            [reading.time_s for reading in run.details.series],
            [reading.cov for reading in run.details.series],
            color=COLOURS[number % len(COLOURS)],
            label=policy,
        )
    axes.set_title(f"{scenario}, {placement} placement: imbalance over time")
    axes.set_xlabel("time [s]")
    axes.set_ylabel("cov")
    axes.set_ylim(bottom=0)
    legend_beside(axes)
    path = save(figure, to, f"{scenario}-{placement}-cov")
    plt.close(figure)
    return path


def _draw_bars(grid: GridSummary, to: Path) -> Path:
    """The largest load of each policy and placement in relation to the lower bound, and the moves that it took."""
    plt = pyplot()
    policies = list(dict.fromkeys(run.policy for run in grid.runs))
    placements = list(dict.fromkeys(run.details.placement for run in grid.runs))
    figure, (ratio_axes, move_axes) = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained")
    width = 0.8 / len(placements)
    for number, placement in enumerate(placements):
        places = [place + (number - (len(placements) - 1) / 2) * width for place in range(len(policies))]
        chosen = [
            [run for run in grid.runs if run.policy == policy and run.details.placement == placement]
            for policy in policies
        ]
        colour = COLOURS[number]
        ratios = [fmean(run.details.ratio for run in runs) for runs in chosen]
        ratio_axes.bar(places, ratios, width, color=colour, label=placement)
        move_axes.bar(places, [fmean(run.moves for run in runs) for runs in chosen], width, color=colour)
        for place, runs in zip(places, chosen, strict=True):
            ratio_axes.plot([place] * len(runs), [run.details.ratio for run in runs], "k.", markersize=3)
    for axes in (ratio_axes, move_axes):
        axes.set_xticks(range(len(policies)), policies, rotation=30)
    ratio_axes.axhline(1.0, color="black", linewidth=0.8)
    ratio_axes.set_title("Largest load / lower bound")
    move_axes.set_title("Moves")
    ratio_axes.legend()
    path = save(figure, to, f"{grid.scenario}-policies")
    plt.close(figure)
    return path


def _draw_alpha(grid: GridSummary, to: Path) -> Path:
    plt = pyplot()
    values: dict[float, list[CoordinationSummary]] = {}
    for point, run in zip(grid.points, grid.runs, strict=True):
        values.setdefault(float(point[ALPHA_KEY]), []).append(run)
    figure, (cov_axes, move_axes) = plt.subplots(1, 2, figsize=(9.0, 3.2), layout="constrained")
    panels: list[tuple[Any, str, Callable[[CoordinationSummary], float]]] = [
        (cov_axes, "cov", lambda run: run.details.cov),
        (move_axes, "moves", lambda run: run.moves),
    ]
    for axes, field, of in panels:
        means = [fmean(of(run) for run in runs) for runs in values.values()]
        axes.plot(list(values), means, marker="o", color=COLOURS[0])
        axes.set_xlabel("alpha")
        axes.set_title(field)
        axes.set_ylim(bottom=0)
    path = save(figure, to, f"{grid.scenario}-alpha")
    plt.close(figure)
    return path
