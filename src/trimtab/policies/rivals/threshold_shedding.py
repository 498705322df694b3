"""Threshold shedding: a broker well above the mean usage gives traffic away until it is below the mean.

Source: Apache Pulsar, ThresholdShedder (default of the modular load manager from 2.10 to 4.x, with
LeastLongTermMessageRate for placement): every minute usage is smoothed, nine parts of the past and one of the
present. A broker more than 10 points above the mean of all unloads units, those with most traffic first, until its
share above the threshold and 5 points more have gone. A unit that was unloaded is left alone for half an hour. It
goes to the broker with the smallest message rate of those that are not overloaded (85 %).

Deviations: the unit is a client here and a bundle of topics there, which is coarser.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from trimtab.policies.padres.snapshot import BrokerLoad
from trimtab.policies.rivals.decision import Moves, ServedClient, message_rate_per_s, usage

CHECK_EVERY_S: Final = 60.0
"""`loadBalancerSheddingIntervalMinutes`."""

THRESHOLD: Final = 0.10
"""`loadBalancerBrokerThresholdShedderPercentage`."""

HISTORY_WEIGHT: Final = 0.9
"""`loadBalancerHistoryResourcePercentage`."""

MARGIN: Final = 0.05
GRACE_S: Final = 1_800.0
"""`loadBalancerSheddingGracePeriodMinutes`."""

OVERLOADED_USAGE: Final = 0.85
"""`loadBalancerBrokerOverloadedThresholdPercentage`."""


class ThresholdShedding:
    """Compares this broker's smoothed usage with the mean of all."""

    every_s = CHECK_EVERY_S
    wants_rates = True

    def __init__(self) -> None:
        self._usages: dict[str, float] = {}
        self._unloaded_s: dict[str, float] = {}

    def decide(
        self, ours: BrokerLoad, others: Sequence[BrokerLoad], clients: Sequence[ServedClient], rng: Random, now_s: float
    ) -> Moves:
        """Unload what is too much, each client to the broker with the least messages by then."""
        loads = [ours, *others]
        before = self._usages
        self._usages = {
            load.broker: before.get(load.broker, usage(load)) * HISTORY_WEIGHT + usage(load) * (1 - HISTORY_WEIGHT)
            for load in loads
        }
        mean = sum(self._usages.values()) / len(loads)
        excess = self._usages[ours.broker] - mean - THRESHOLD
        rates_per_s = {
            load.broker: message_rate_per_s(load) for load in others if self._usages[load.broker] < OVERLOADED_USAGE
        }
        if excess <= 0 or not rates_per_s:
            return []
        to_unload_per_s = message_rate_per_s(ours) * (excess + MARGIN)
        self._unloaded_s = {name: at_s for name, at_s in self._unloaded_s.items() if now_s - at_s < GRACE_S}
        moves: Moves = []
        for client in sorted(clients, key=lambda each: (-each.rate_per_s, each.name)):
            if to_unload_per_s <= 0:
                break
            if client.name in self._unloaded_s or client.rate_per_s <= 0:
                continue
            target = min(rates_per_s, key=lambda name: (rates_per_s[name], name))
            rates_per_s[target] += client.rate_per_s
            to_unload_per_s -= client.rate_per_s
            self._unloaded_s[client.name] = now_s
            moves.append((client.name, target))
        return moves
