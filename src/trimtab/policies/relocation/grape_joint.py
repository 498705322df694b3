"""Joint placement: all publishers of a broker at once, each with regard to what the moves before it did.

Beyond A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009): GRAPE places each publisher as if
it were alone, so that many may choose the same broker and overload it.

Publishers are placed one after the other, the one that saves most first. A move S to T changes the traffic of the
brokers on the path between them only, and by amounts that the trace shows link by link; a placement after which one
of them whose load rises would be above what it can bear is passed over for the publisher's next best one. What a
placement does to load is entered at once, and what it does to delays with it: a broker's delay grows as its free
capacity shrinks (the mean wait of a queue with one server, M/M/1), so that those placed later see it.

One pass over each publisher's tree and one over each path tried: O(publishers * brokers), with no search among
combinations. The result is not the best of all placements, but no single move of a publisher to a place with room
that it prefers was passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trimtab.policies.relocation.config import Aim, RelocationConfig
from trimtab.policies.relocation.decisions import Placement, Reason, Stay
from trimtab.policies.relocation.grape_selection import (
    candidates_of,
    hops_from_root,
    kept_candidates,
    mean_delays_s,
    shown,
    total_message_counts,
)
from trimtab.policies.relocation.grape_tracing import BrokerTrace, Headroom
from trimtab.policies.relocation.trace_tree import TraceTree


class TracedPublisher(msgspec.Struct, frozen=True, kw_only=True):
    """A publisher whose trace session is complete."""

    publisher: str
    broker: str
    """Where it is."""

    traces: tuple[BrokerTrace, ...]
    published_count: int
    over_s: float
    """How long the session took: its publications in that time are the publisher's rate."""

    aim: Aim = Aim()
    round_trips_s: dict[str, float] = {}
    moves_count: int = 0
    """How often it has moved lately."""


class PathChange(msgspec.Struct, frozen=True):
    """What a move does to one broker on its path: publications more (or fewer) a second."""

    broker: str
    input_per_s: float
    output_per_s: float


class JointPlacement(msgspec.Struct, frozen=True):
    """Where one publisher goes, and what that does to the brokers on its path."""

    placement: Placement | Stay
    changes: tuple[PathChange, ...] = ()


def path_changes(tree: TraceTree, to_broker: str, publications_per_s: float) -> tuple[PathChange, ...]:
    """What a move from the root to a broker does to the brokers on the path, in the order of the path.

    Before the move a broker receives what is wanted at or behind it; afterwards what is wanted on its other side. The
    publisher's own broker receives everything. It sends over the next link of the path before, over the previous one
    afterwards, and what goes to its clients and its other neighbours stays the same.
    """
    path = tree.path_to(to_broker)
    per_message = publications_per_s / tree.published_count if tree.published_count else 0.0
    ahead = [tree.below[place].bit_count() for place in path[1:]]
    behind = [tree.beyond[place].bit_count() for place in path[1:]]
    last = len(path) - 1
    changes: list[PathChange] = []
    for step, place in enumerate(path):
        before = tree.published_count if step == 0 else ahead[step - 1]
        after = tree.published_count if step == last else behind[step]
        sent_before = ahead[step] if step < last else 0
        sent_after = behind[step - 1] if step > 0 else 0
        changes.append(
            PathChange(tree.names[place], (after - before) * per_message, (sent_after - sent_before) * per_message)
        )
    return tuple(changes)


def has_room(room: Headroom | None, change: PathChange, bearable_ratio: float) -> bool:
    """Whether a broker can bear a change; one whose load does not rise always can, one that tells nothing cannot."""
    if change.input_per_s <= 0 and change.output_per_s <= 0:
        return True
    if room is None:
        return False
    after = room.with_more(change.input_per_s, change.output_per_s)
    input_is_fine = change.input_per_s <= 0 or after.input_ratio <= bearable_ratio
    return input_is_fine and (change.output_per_s <= 0 or after.output_ratio <= bearable_ratio)


def place_jointly(publishers: Sequence[TracedPublisher], config: RelocationConfig) -> dict[str, JointPlacement]:
    """Where each publisher goes, the one that saves most first."""
    rooms: dict[str, Headroom] = {}
    for each in publishers:
        rooms.update({trace.broker: trace.room for trace in each.traces if trace.room is not None})
    factors = dict.fromkeys(rooms, 1.0)
    trees = {each.publisher: TraceTree(each.broker, each.traces, each.published_count) for each in publishers}
    placed: dict[str, JointPlacement] = {}
    for each in sorted(publishers, key=lambda one: (-_messages_saved_per_s(one, trees[one.publisher]), one.publisher)):
        tree = trees[each.publisher]
        slow_down(tree, factors)
        joint = _place_one(each, tree, rooms, config)
        placed[each.publisher] = joint
        for change in joint.changes:
            room = rooms.get(change.broker)
            if room is not None:
                rooms[change.broker] = after = room.with_more(change.input_per_s, change.output_per_s)
                factors[change.broker] *= delay_factor(room, after)
    return placed


def delay_factor(before: Headroom, after: Headroom) -> float:
    """By how much matching and its queue take longer when a broker's input changes (M/M/1); at most tenfold a change.

    >>> room = Headroom(input_rate_per_s=50, matching_delay_s=0.01, output_rate_bytes_per_s=0, bandwidth_bytes_per_s=1,
    ...     publication_bytes=1)
    >>> delay_factor(room, room.with_more(25, 0))
    2.0
    """
    free_before, free_after = max(1 - before.input_ratio, 0.01), max(1 - after.input_ratio, 0.01)
    return min(max(free_before / free_after, 0.1), 10.0)


def slow_down(tree: TraceTree, factors: Mapping[str, float]) -> None:
    """Enter what earlier placements did to the delays of brokers."""
    for place, trace in enumerate(tree.traces):
        factor = factors.get(trace.broker, 1.0)
        if factor != 1.0:
            tree.traces[place] = msgspec.structs.replace(
                trace, input_delay_s=trace.input_delay_s * factor, matching_delay_s=trace.matching_delay_s * factor
            )


def _messages_saved_per_s(each: TracedPublisher, tree: TraceTree) -> float:
    """What moving a publisher to its best broker would save at most."""
    counts = total_message_counts(tree)
    best = min(counts[place] for place in candidates_of(tree))
    return (counts[0] - best) / each.over_s if each.over_s > 0 else 0.0


def _place_one(
    each: TracedPublisher, tree: TraceTree, rooms: Mapping[str, Headroom], config: RelocationConfig
) -> JointPlacement:
    """The best placement with room: first among those that the weight keeps, then among the others."""
    if not any(trace.deliveries_count for trace in tree.traces):
        return JointPlacement(Stay(Reason.NO_DELIVERIES))
    counts: Sequence[float] = total_message_counts(tree)
    delays_s: Sequence[float] = mean_delays_s(tree, each.round_trips_s)
    is_load = each.aim.priority == "load"
    first, second = (counts, delays_s) if is_load else (delays_s, counts)
    candidates, hops = candidates_of(tree), hops_from_root(tree)
    kept = kept_candidates(candidates, first, each.aim.weight_percent)
    is_kept = set(kept)
    in_order = sorted(kept, key=lambda place: (second[place], first[place], hops[place], tree.names[place]))
    in_order += sorted(
        (place for place in candidates if place not in is_kept),
        key=lambda place: (first[place], second[place], hops[place], tree.names[place]),
    )
    rate_per_s = each.published_count / each.over_s if each.over_s > 0 else 0.0
    was_full = ""
    for place in in_order:
        if place == 0:
            break
        both_kept = place in is_kept and 0 in is_kept
        metric = second if both_kept else first
        gain_ratio = (metric[0] - metric[place]) / metric[0] if metric[0] else 0.0
        if gain_ratio < config.gain_wanted_ratio(each.moves_count):
            break
        changes = path_changes(tree, tree.names[place], rate_per_s)
        full = next((one for one in changes if not has_room(rooms.get(one.broker), one, config.bearable_ratio)), None)
        if full is not None:
            was_full = was_full or full.broker
            continue
        name = "messages" if is_load != both_kept else "mean delay in s"
        why = f"{name} {shown(metric[place])} instead of {shown(metric[0])}"
        return JointPlacement(Placement(tree.names[place], gain_ratio, why), changes)
    if was_full:
        return JointPlacement(Stay(Reason.NO_ROOM, f"{was_full} would be too loaded"))
    return JointPlacement(Stay(Reason.BEST_HERE))
