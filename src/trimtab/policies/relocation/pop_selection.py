"""POP, phase 2: the broker closest to most deliveries, found step by step from neighbour to neighbour.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009), section 3.2 and Figure 2.

A request walks from the publisher's broker. Whoever has it passes it on to the neighbour that leads to more subscribers
than all other neighbours and the broker itself together. Where there is no such neighbour the walk ends: that broker
is the closest one, and each step of the walk has saved more hops than it cost.

Deviations:
- The request also tells how many subscribers the sender counts behind the link. Averages at the receiver are per
  publication that came there; scaled to that number they are comparable with those of the sender.
- The request adds up what the steps save, in hops per delivery: a move must be worth it.
- A broker that serves no publishers (an edge-broker of a PEER network) turns the request back: the one before it is the
  closest.
"""

from __future__ import annotations

import msgspec

from trimtab.policies.relocation.pop_tracing import Profile


class Walk(msgspec.Struct, frozen=True):
    """A relocation request at one broker, before that has decided."""

    sender: str = ""
    """The neighbour that it came from; empty at the publisher's broker."""

    sender_side_count: float = 0.0
    """Subscribers on the link that it came over (total number of subscribers)."""

    here_count: float = 0.0
    """Subscribers at and behind this broker, as the sender counts them; 0 at the publisher's broker."""

    saved_hops: float = 0.0
    """Hops that the steps so far save, of all subscribers together."""


class Step(msgspec.Struct, frozen=True):
    """The request goes on to a neighbour, with this."""

    to: str
    walk: Walk


class Arrival(msgspec.Struct, frozen=True):
    """The request has found the closest broker."""

    saved_hops_per_delivery: float


def next_closest(profile: Profile, walk: Walk, broker: str) -> Step | Arrival:
    """Where a request goes from a broker with this profile of the publisher.

    >>> profile = Profile(1.0, {"B2": 6.0, "B4": 3.0, "B5": 15.0}, 1)
    >>> next_closest(profile, Walk(), "B1")
    Step(to='B5', walk=Walk(sender='B1', sender_side_count=10.0, here_count=15.0, saved_hops=5.0))
    """
    own_total = profile.total_count
    scale = walk.here_count / own_total if walk.sender and own_total else 1.0
    total_count = walk.sender_side_count + own_total * scale
    for neighbour, count in profile.by_neighbour.items():
        there_count = count * scale
        rest_count = total_count - there_count
        if there_count > rest_count:
            saved_hops = walk.saved_hops + there_count - rest_count
            return Step(neighbour, Walk(broker, rest_count, there_count, saved_hops))
    return Arrival(walk.saved_hops / total_count if total_count else 0.0)


def turned_back(walk: Walk) -> Arrival:
    """The request came to a broker that serves no publishers: its sender is the closest one, without the last step."""
    total_count = walk.sender_side_count + walk.here_count
    saved_hops = walk.saved_hops - (walk.here_count - walk.sender_side_count)
    return Arrival(saved_hops / total_count if total_count else 0.0)
