"""Connection counts: brokers with more clients than the mean disconnect the surplus, which connect elsewhere.

Source: EMQX, cluster load rebalancing (https://docs.emqx.com/en/emqx/latest/deploy/cluster/rebalancing.html): nodes
above the mean are donors, the others recipients; donors disconnect clients at `conn-evict-rate` until the donors'
mean exceeds the recipients' by no more than `rel-conn-threshold` or `abs-conn-threshold`.

It looks at nothing but the number of clients: neither at what they are sent nor at what brokers can do.

Deviations: there an operator starts it; here it runs all the time. The absolute threshold of 1,000 is for nodes with
very many clients, and stands at ten. A client that is told to leave moves without loss, as all clients do here; there
it reconnects, and what comes meanwhile waits in its session or is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from trimtab.policies.padres.snapshot import BrokerLoad
from trimtab.policies.rivals.decision import Moves, ServedClient

RELATIVE_THRESHOLD: Final = 1.1
"""`rel-conn-threshold`."""

ABSOLUTE_THRESHOLD_COUNT: Final = 10
"""`abs-conn-threshold`, scaled down."""

EVICTED_PER_S: Final = 500
"""`conn-evict-rate`."""


class ConnectionCounts:
    """Levels the number of clients."""

    every_s = 10.0
    wants_rates = False

    def decide(
        self, ours: BrokerLoad, others: Sequence[BrokerLoad], clients: Sequence[ServedClient], rng: Random, now_s: float
    ) -> Moves:
        """Send the surplus to brokers below the mean, each to a random one as behind a load balancer."""
        counts = {load.broker: load.client_count for load in others} | {ours.broker: len(clients)}
        mean = sum(counts.values()) / len(counts)
        recipients = [name for name, count in counts.items() if count < mean and name != ours.broker]
        donors = [name for name, count in counts.items() if count >= mean]
        if ours.broker not in donors or not recipients:
            return []
        of_donors = sum(counts[name] for name in donors) / len(donors)
        of_recipients = sum(counts[name] for name in recipients) / len(recipients)
        if of_donors <= max(of_recipients * RELATIVE_THRESHOLD, of_recipients + ABSOLUTE_THRESHOLD_COUNT):
            return []
        surplus_count = min(len(clients) - round(mean), round(EVICTED_PER_S * self.every_s))
        if surplus_count <= 0:
            return []
        leaving = rng.sample([client.name for client in clients], surplus_count)
        return [(name, rng.choice(recipients)) for name in leaving]
