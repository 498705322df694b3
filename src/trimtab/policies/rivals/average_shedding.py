"""Average shedding: the most loaded broker gives half of the difference in message rate to the least loaded one.

Source: Apache Pulsar, AvgShedder (PIP-364; default of the modular load manager from 5.0 on): every minute brokers are
sorted by their largest resource usage and paired, the most with the least loaded, the second with the second but
last. A pair whose usages differ by 15 points in 8 checks in a row, or by 40 in 2, levels its message rates: units are
moved, large ones first, until `maxUnloadPercentage`, a half, of the difference in rate has gone.

Deviations: the unit is a client here and a bundle of topics there, which is coarser. Which broker a unit goes to is
decided with it, as there where the same class places.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from trimtab.policies.padres.snapshot import BrokerLoad
from trimtab.policies.rivals.decision import Moves, ServedClient, message_rate_per_s, usage

CHECK_EVERY_S: Final = 60.0
"""`loadBalancerSheddingIntervalMinutes`."""

LOW_THRESHOLD, LOW_HITS_COUNT = 0.15, 8
HIGH_THRESHOLD, HIGH_HITS_COUNT = 0.40, 2
UNLOADED_SHARE: Final = 0.5


class AverageShedding:
    """Counts how often this broker was much more loaded than its counterpart, and then levels the two.

    >>> shedding = AverageShedding()
    >>> one = BrokerLoad(broker="B1", cluster="C", status="OK", input_utilization_ratio=0.9,
    ...     output_utilization_ratio=0.5, matching_delay_s=0.01, output_rate_per_s=100.0)
    >>> two = BrokerLoad(broker="B2", cluster="C", status="OK", input_utilization_ratio=0.3,
    ...     output_utilization_ratio=0.2, matching_delay_s=0.01, output_rate_per_s=20.0)
    >>> clients = [ServedClient(f"c{n}", (), 10.0) for n in range(10)]
    >>> shedding.decide(one, [two], clients, Random(1), 60.0)
    []
    >>> len(shedding.decide(one, [two], clients, Random(1), 120.0))
    4
    """

    every_s = CHECK_EVERY_S
    wants_rates = True

    def __init__(self) -> None:
        self._low_hits_count = 0
        self._high_hits_count = 0

    def decide(
        self, ours: BrokerLoad, others: Sequence[BrokerLoad], clients: Sequence[ServedClient], rng: Random, now_s: float
    ) -> Moves:
        """Send half of the difference to this broker's counterpart, if it was there often enough."""
        ranked = sorted([ours, *others], key=lambda load: (usage(load), load.broker))
        place = next(number for number, load in enumerate(ranked) if load.broker == ours.broker)
        counterpart = ranked[len(ranked) - 1 - place]
        difference = usage(ours) - usage(counterpart)
        self._high_hits_count = self._high_hits_count + 1 if difference > HIGH_THRESHOLD else 0
        self._low_hits_count = self._low_hits_count + 1 if difference > LOW_THRESHOLD else 0
        if self._high_hits_count < HIGH_HITS_COUNT and self._low_hits_count < LOW_HITS_COUNT:
            return []
        self._high_hits_count = self._low_hits_count = 0
        to_unload_per_s = (message_rate_per_s(ours) - message_rate_per_s(counterpart)) * UNLOADED_SHARE
        moves: Moves = []
        for client in sorted(clients, key=lambda each: (-each.rate_per_s, each.name)):
            rate_per_s = client.rate_per_s
            if 0 < rate_per_s <= to_unload_per_s:
                to_unload_per_s -= rate_per_s
                moves.append((client.name, counterpart.broker))
        return moves
