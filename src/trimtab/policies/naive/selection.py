"""A naive balancer to compare with: random clients to a random broker that is less loaded.

It looks at the same load information as the thesis's detection (section 3.3.2.1) and at nothing else: it does not
sample, does not know what a client receives, and takes all clients to be alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import msgspec

from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction, Reason, Status
from trimtab.policies.padres.detection import index_differences
from trimtab.policies.padres.snapshot import BrokerLoad, KnownBroker


class NaivePlan(msgspec.Struct, frozen=True):
    """Clients to move to a broker."""

    to_broker: str
    action: LoadIndex
    clients: tuple[str, ...]


def plan_naively(
    ours: BrokerLoad, known: Mapping[str, KnownBroker], clients: Sequence[str], rng: Random, config: PadresConfig
) -> NaivePlan | NoAction:
    """Pick a random broker that we exceed by more than the threshold in some index, and so many random clients that,
    were all alike and both brokers equal, half of the difference would go."""
    if ours.status == Status.BUSY:
        return NoAction(Reason.BUSY)
    if not clients:
        return NoAction(Reason.NO_CLIENTS)
    lower: list[tuple[str, LoadIndex, float]] = []
    for name, entry in sorted(known.items()):
        if name == ours.broker or entry.load.status != Status.OK:
            continue
        differences = index_differences(ours, entry.load, config)
        action = max(differences, key=lambda each: differences[each])
        threshold = config.local_delay_threshold if action == LoadIndex.MATCH else config.local_ratio_threshold
        if differences[action] > threshold:
            lower.append((name, action, differences[action]))
    if not lower:
        return NoAction(Reason.BALANCED)
    name, action, difference = rng.choice(lower)
    own_index = {
        LoadIndex.INPUT: ours.input_utilization_ratio,
        LoadIndex.MATCH: ours.matching_delay_s / config.delay_normalization_s,
        LoadIndex.OUTPUT: ours.output_utilization_ratio,
    }[action]
    wanted_count = max(round(len(clients) * difference / (2 * own_index)), 1)
    count = min(wanted_count, len(clients), config.session_clients_max_count)
    return NaivePlan(name, action, tuple(rng.sample(list(clients), count)))
