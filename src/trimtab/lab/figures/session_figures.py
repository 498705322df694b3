"""Figures of balancing sessions: how good estimates were, and who gave to whom.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), Figures 5.4,
5.5 and 5.14. Sessions that began while subscribers were still joining are drawn hollow, as there: what joins after the
estimate is no fault of it.
"""

from __future__ import annotations

from typing import Any, Final

from trimtab.lab.figures.style import COLOURS, legend_beside
from trimtab.records.runs import Row, RunRecords, broker_order

_INDICES: Final = {
    "input ratio": ("input_utilization_ratio", 1),
    "output ratio": ("output_utilization_ratio", 1),
    "matching delay [ms]": ("matching_delay_s", 1000),
}
_SIDES: Final = (("initiator", "giving broker", "o"), ("acceptor", "accepting broker", "v"))


def draw_estimates(plt: Any, records: RunRecords) -> Any:
    """What was observed over what was estimated, for the three indices and both brokers."""
    figure, all_axes = plt.subplots(1, 3, figsize=(10.2, 3.9))
    joined_s = all_joined_s(records)
    rows = [row for row in records.sessions if row["subscribers_moved_count"]]
    for axes, (title, (index, factor)) in zip(all_axes, _INDICES.items(), strict=True):
        largest = 0.0
        for number, (side, label, marker) in enumerate(_SIDES):
            for is_settled in (False, True):
                pairs = _pairs([row for row in rows if (row["begin_s"] > joined_s) == is_settled], side, index, factor)
                largest = max([largest, *(max(pair) for pair in pairs)])
                axes.scatter(
                    [pair[0] for pair in pairs],
                    [pair[1] for pair in pairs],
                    s=24,
                    marker=marker,
                    facecolors=COLOURS[number] if is_settled else "none",
                    edgecolors=COLOURS[number],
                    linewidths=0.9,
                    alpha=0.85 if is_settled else 0.5,
                    label=label if is_settled else f"{label}, others join",
                )
        limit = 1.05 * largest or 1.0
        axes.plot([0, limit], [0, limit], color="#999999", linewidth=1, zorder=0)
        axes.set_xlim(0, limit)
        axes.set_ylim(0, limit)
        axes.set_title(title)
        axes.set_xlabel("estimated")
    all_axes[0].set_ylabel("observed")
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="lower center", ncols=4, handletextpad=0.2)
    figure.subplots_adjust(left=0.06, right=0.985, top=0.91, bottom=0.24, wspace=0.22)
    return figure


def _pairs(rows: list[Row], side: str, index: str, factor: float) -> list[tuple[float, float]]:
    pairs = [(row[f"{side}_estimated_{index}"], row[f"{side}_observed_{index}"]) for row in rows]
    return [(factor * guess, factor * seen) for guess, seen in pairs if guess is not None and seen is not None]


def all_joined_s(records: RunRecords) -> float:
    """When there are as many clients as there ever are, less those that are on their way (1 %)."""
    counts = {time_s: sum(row["clients_count"] for row in rows) for time_s, rows in records.everyone.items()}
    return min(time_s for time_s, count in counts.items() if count >= 0.99 * max(counts.values()))


def draw_session_counts(plt: Any, records: RunRecords) -> Any:
    """How many sessions moved subscribers from whom to whom, by index."""
    rows = [row for row in records.sessions if row["acceptor"] and row["subscribers_moved_count"]]
    pairs = sorted(
        {(row["initiator"], row["acceptor"]) for row in rows},
        key=lambda pair: (broker_order(pair[0]), broker_order(pair[1])),
    )
    figure, axes = plt.subplots(figsize=(7.2, max(2.4, 0.28 * len(pairs) + 1.2)))
    axes.set_title("Sessions that moved subscribers")
    left = [0] * len(pairs)
    for number, index in enumerate(("input", "matching", "output")):
        counts = [
            sum(row["index"] == index and (row["initiator"], row["acceptor"]) == pair for row in rows) for pair in pairs
        ]
        axes.barh(range(len(pairs)), counts, left=left, color=COLOURS[number], label=index, height=0.7)
        left = [before + count for before, count in zip(left, counts, strict=True)]
    axes.set_yticks(range(len(pairs)), [f"{giver} to {taker}" for giver, taker in pairs])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("sessions")
    axes.xaxis.get_major_locator().set_params(integer=True)
    legend_beside(axes)
    return figure
