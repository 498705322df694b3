"""Which neighbour a group of subscribers should move to: nearer to where its publications come from.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009), section 7 names a relocation of
subscribers that works together with GRAPE as future work; priority, weight and normalisation are those of section 4.2.

Moved over one link, a group no longer gets over it what comes from there, and gets over it what does not. Publications
that nobody else here wants need not come any more, and those that do not go there yet must go there. So both totals of
GRAPE, messages and hops, change by numbers that the broker sees itself. A group walks link by link, as a publisher
does with POP, as long as the next link saves enough.

Deviations: this is beyond the paper. Subscribers with the same filters are one group: one of two that moves alone saves
nothing. Delay is counted in hops, which is what moving over a link changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trimtab.policies.relocation.config import Aim
from trimtab.policies.relocation.decisions import Placement, Reason, Stay
from trimtab.policies.relocation.grape_selection import kept_candidates, shown


class LinkCounts(msgspec.Struct):
    """What moving a group over a link to a neighbour would change, in publications that were looked at."""

    from_there_count: int = 0
    """Wanted, and coming from there."""

    spared_count: int = 0
    """Of those, the ones that come for this group only."""

    extra_count: int = 0
    """Wanted, coming from elsewhere, and not going there yet."""


class GroupCounts(msgspec.Struct):
    """What a group of subscribers wanted of the publications that were looked at."""

    clients: tuple[str, ...]
    wanted_count: int = 0
    links: dict[str, LinkCounts] = {}

    def messages_change(self, neighbour: str) -> int:
        """By how many the messages that brokers receive would change.

        >>> group = GroupCounts(("alice",), 10, {"B2": LinkCounts(8, 6, 2)})
        >>> group.messages_change("B2"), group.hops_change("B2")
        (-4, -6)
        """
        link = self.links[neighbour]
        return link.extra_count - link.spared_count

    def hops_change(self, neighbour: str) -> int:
        """By how many the hops of all deliveries to one of these clients would change."""
        return self.wanted_count - 2 * self.links[neighbour].from_there_count


def count_publication(
    group: GroupCounts, neighbours: Sequence[str], source: str, hops: Mapping[str, None], members: Mapping[str, None]
) -> None:
    """Note a publication that the group wants: where it came from, and who else it goes to."""
    group.wanted_count += 1
    others = [hop for hop in hops if hop not in members and hop != source]
    for neighbour in neighbours:
        link = group.links.setdefault(neighbour, LinkCounts())
        if neighbour == source:
            link.from_there_count += 1
            link.spared_count += not others
        elif neighbour not in hops:
            link.extra_count += 1


def select_neighbour(group: GroupCounts, neighbours: Sequence[str], aim: Aim, wanted_ratio: float) -> Placement | Stay:
    """The neighbour that a group should move to; only those given may take it."""
    if not group.wanted_count:
        return Stay(Reason.NO_DELIVERIES)
    candidates = ["", *(name for name in neighbours if name in group.links)]
    messages = [0.0, *(float(group.messages_change(name)) for name in candidates[1:])]
    hops = [0.0, *(float(group.hops_change(name)) for name in candidates[1:])]
    first, second = (messages, hops) if aim.priority == "load" else (hops, messages)
    kept = kept_candidates(range(len(candidates)), first, aim.weight_percent)
    best = min(kept, key=lambda each: (second[each], first[each], candidates[each]))
    if best == 0:
        return Stay(Reason.BEST_HERE)
    metric, is_load = (first, aim.priority == "load") if 0 not in kept else (second, aim.priority != "load")
    gain_ratio = -metric[best] / group.wanted_count
    kind = "messages" if is_load else "hops"
    why = f"{shown(-metric[best])} {kind} less for {shown(float(group.wanted_count))} publications"
    if gain_ratio < wanted_ratio:
        return Stay(Reason.GAIN_TOO_SMALL, f"{candidates[best]}: {why}")
    return Placement(candidates[best], gain_ratio, why)
