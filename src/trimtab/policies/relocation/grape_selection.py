"""GRAPE, phase 2: the broker where a publisher causes least traffic or least delay, weighed against each other.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009), section 4.2, algorithms 1 to 3.

For every broker that the trace reached, the total number of messages of all brokers and the mean delivery delay are
estimated as if the publisher were there. Candidates too far from the best one in the metric of priority are dropped,
and of the others the best one in the other metric is taken. The weight says how far is too far.

Deviations:
- The paper walks the tree once for each candidate, O(N^2). Moving the publisher over one link changes the messages of
  the two brokers at its ends only, and the delay of everybody on one side by as much as the other's falls: one pass
  over the tree gives all totals.
- The delay of a link is part of the delay to a neighbour (`own_delays.py`).
- The publisher's own broker is a candidate too; staying must be possible.
- A value counts as equal to the best one within a billionth, lest rounding decides; if all candidates are equal, none
  is dropped. Ties go to the lower value of the metric of priority, then to the present broker, then to fewer hops.
- A move must save a wanted share (`RelocationConfig.gain_wanted_ratio`): of the metric of priority if the present
  broker is too far from the best in that, otherwise of the other one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from trimtab.policies.relocation.config import Aim
from trimtab.policies.relocation.decisions import Placement, Reason, Stay
from trimtab.policies.relocation.trace_tree import TraceTree

_ALIKE: Final = 1e-9


def total_message_counts(tree: TraceTree) -> list[int]:
    """Messages that all brokers together receive of the session, with the publisher at each broker in turn.

    This is calcTotalMsgRate (algorithms 2 and 3) for all candidates. A broker receives what is delivered at it or
    behind it, seen from the publisher; the publisher's own receives everything.
    """
    totals = [0] * len(tree.names)
    totals[0] = tree.published_count + sum(bits.bit_count() for bits in tree.below[1:])
    for place in range(1, len(totals)):
        totals[place] = totals[tree.parents[place]] - tree.below[place].bit_count() + tree.beyond[place].bit_count()
    return totals


def mean_delays_s(tree: TraceTree, round_trips_s: Mapping[str, float]) -> list[float]:
    """The mean delivery delay of the session, with the publisher at each broker in turn.

    This is calcAvgDelay (algorithm 1) for all candidates: the way from the publisher's client to its broker (half a
    round trip), then queues, matching and links at every broker on the way to each delivery.
    """
    traces, parents = tree.traces, tree.parents
    deliveries = [trace.deliveries_count for trace in traces]
    for place in range(len(deliveries) - 1, 0, -1):
        deliveries[parents[place]] += deliveries[place]
    all_count = deliveries[0]
    if not all_count:
        return [0.0] * len(deliveries)
    from_root_s = [0.0] * len(traces)
    sums_s = [0.0] * len(traces)
    for place, trace in enumerate(traces):
        if place:
            parent = parents[place]
            from_root_s[place] = from_root_s[parent] + traces[parent].delay_to_s(trace.broker) + tree.links_s[place]
        sums_s[0] += trace.deliveries_count * (from_root_s[place] + trace.delay_to_clients_s)
    for place in range(1, len(traces)):
        parent = parents[place]
        away_s = traces[parent].delay_to_s(tree.names[place]) + tree.links_s[place]
        back_s = traces[place].delay_to_s(tree.names[parent]) + tree.links_s[place]
        sums_s[place] = sums_s[parent] - deliveries[place] * away_s + (all_count - deliveries[place]) * back_s
    return [
        round_trips_s.get(name, 0.0) / 2 + sum_s / all_count for name, sum_s in zip(tree.names, sums_s, strict=True)
    ]


def normalised_percent(values: Sequence[float]) -> list[float]:
    """Each value as a share of the way from the least to the greatest; 0 for all if they are equal.

    >>> normalised_percent([2.0, 3.0, 6.0]), normalised_percent([5.0, 5.0])
    ([0.0, 25.0, 100.0], [0.0, 0.0])
    """
    least, greatest = min(values), max(values)
    span = greatest - least
    if span <= _ALIKE * max(abs(least), abs(greatest)):
        return [0.0] * len(values)
    return [100 * (value - least) / span for value in values]


def kept_candidates(candidates: Sequence[int], values: Sequence[float], weight_percent: float) -> list[int]:
    """The candidates whose normalised value is not above 100 - P.

    >>> kept_candidates([0, 1, 2], [2.0, 3.0, 6.0], 75), kept_candidates([0, 1], [5.0, 5.0], 100)
    ([0, 1], [0, 1])
    """
    shares = normalised_percent([values[each] for each in candidates])
    limit_percent = 100 - weight_percent + _ALIKE
    return [each for each, share in zip(candidates, shares, strict=True) if share <= limit_percent]


def candidates_of(tree: TraceTree) -> list[int]:
    """The brokers that may serve the publisher: those that serve publishers, and the present one."""
    return [place for place, trace in enumerate(tree.traces) if place == 0 or trace.serves_publishers]


def round_trips_wanted(tree: TraceTree, aim: Aim) -> list[str]:
    """The brokers to which the publisher's round-trip time must be known before `select_broker`."""
    candidates = candidates_of(tree)
    if aim.priority == "load":
        candidates = kept_candidates(candidates, total_message_counts(tree), aim.weight_percent)
    return [tree.names[each] for each in candidates] if len(candidates) > 1 else []


def select_broker(
    tree: TraceTree, aim: Aim, round_trips_s: Mapping[str, float], gain_wanted_ratio: float
) -> Placement | Stay:
    """Where the publisher at the root of the tree should be."""
    if not any(trace.deliveries_count for trace in tree.traces):
        return Stay(Reason.NO_DELIVERIES)
    counts: Sequence[float] = total_message_counts(tree)
    delays_s: Sequence[float] = mean_delays_s(tree, round_trips_s)
    first, second = (counts, delays_s) if aim.priority == "load" else (delays_s, counts)
    kept = kept_candidates(candidates_of(tree), first, aim.weight_percent)
    hops = hops_from_root(tree)
    best = min(kept, key=lambda each: (second[each], first[each], hops[each], tree.names[each]))
    is_kept = 0 in kept
    if best == 0 or (is_kept and second[0] <= second[best] * (1 + _ALIKE)):
        return Stay(Reason.BEST_HERE)
    metric, name = (second, _name(aim, of_priority=False)) if is_kept else (first, _name(aim, of_priority=True))
    gain_ratio = (metric[0] - metric[best]) / metric[0] if metric[0] else 0.0
    why = f"{name} {shown(metric[best])} instead of {shown(metric[0])}"
    if gain_ratio < gain_wanted_ratio:
        return Stay(Reason.GAIN_TOO_SMALL, f"{tree.names[best]}: {why}")
    return Placement(tree.names[best], gain_ratio, why)


def hops_from_root(tree: TraceTree) -> list[int]:
    """Links between the present broker and each candidate."""
    hops = [0] * len(tree.names)
    for place in range(1, len(hops)):
        hops[place] = hops[tree.parents[place]] + 1
    return hops


def _name(aim: Aim, *, of_priority: bool) -> str:
    return "messages" if (aim.priority == "load") == of_priority else "mean delay in s"


def shown(value: float) -> str:
    """A count or a delay, for people.

    >>> shown(1200), shown(0.012345)
    ('1,200', '0.0123')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
