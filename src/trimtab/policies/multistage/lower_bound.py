"""How low the largest load of a broker can be at best, whatever the assignment: bounds from below.

The problem (Nguyen, Uddin, Venkatasubramanian, multistage adaptive load balancing, the slide "problem formulation") is
hard, so the best assignment is not known. Three bounds hold for every assignment; the largest counts.

Linear program. Minimise t with t >= sum_i u_i x_ij + sum_k lambda_k z_jk for each broker j, sum_j x_ij = 1, and
z_jk >= x_ij where subscriber i wants k: the problem with shares of subscribers in place of whole ones. Brokers are
alike, so the mean over all exchanges of brokers' names of any solution is a solution that is as good; x_ij = 1/m is
therefore optimal, and its value needs no solver: everything sent once and fetched once, divided by the brokers. (The
dual solution with the same value: weight 1/m for each broker, lambda_k / (m n_k) for each pair of k and a subscriber.)

Copies. The program lets brokers fetch shares of a subscription. But if no load is above t, a broker that fetches k
sends at most t - lambda_k, and the subscribers who want k are sent W_k together, so at least W_k / (t - lambda_k)
brokers, rounded up, fetch all of k. The least t with room for all these copies is a bound, and never below the
program's.

Heaviest. A broker fetches and sends everything that its heaviest subscriber wants; and of the m + 1 heaviest two meet.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from trimtab.policies.multistage.instance import Instance

_HALVINGS_COUNT: Final = 60
_ROUNDING_RATIO: Final = 1e-9
"""Bounds are lowered by this share, so that sums of decimals do not make them too high."""


class LowerBound(msgspec.Struct, frozen=True):
    """Bounds from below of the largest load, in bytes/s."""

    linear_program: float
    copies: float
    heaviest: float

    @property
    def best(self) -> float:
        """The largest of them."""
        return max(self.linear_program, self.copies, self.heaviest)


def lower_bound(instance: Instance, brokers_count: int) -> LowerBound:
    """All bounds.

    >>> alone = Instance.of([[0], [1], [2]], [6.0, 1.0, 1.0])
    >>> bound = lower_bound(alone, 2)
    >>> round(bound.linear_program, 3), round(bound.heaviest, 3)
    (8.0, 12.0)
    """
    exact = 1 - _ROUNDING_RATIO
    return LowerBound(
        linear_program_bound(instance, brokers_count) * exact,
        copies_bound(instance, brokers_count) * exact,
        heaviest_bound(instance, brokers_count) * exact,
    )


def linear_program_bound(instance: Instance, brokers_count: int) -> float:
    """Everything sent, and fetched once, in equal parts."""
    is_wanted = instance.subscribers_by_subscription_count > 0
    fetched = float(instance.rates_bytes_per_s[is_wanted].sum())
    return (float(instance.own_loads_bytes_per_s.sum()) + fetched) / brokers_count


def copies_bound(instance: Instance, brokers_count: int) -> float:
    """The least load that leaves room for all copies that are needed at that load.

    >>> copies_bound(Instance.of([[0]] * 6, [1.0]), 2)  # three at each of two brokers that both fetch it
    4.0
    """
    sent = float(instance.own_loads_bytes_per_s.sum())
    wanted = np.flatnonzero(instance.subscribers_by_subscription_count > 0)
    rates = instance.rates_bytes_per_s[wanted]
    if not rates.any():
        return 0.0
    own_loads = instance.own_loads_bytes_per_s[instance.owners]
    everywhere = np.bincount(instance.subscriptions, weights=own_loads, minlength=instance.subscriptions_count)
    sent_to_wanting = everywhere[wanted]

    def has_room(load: float) -> bool:
        most_sent = load - rates
        if (most_sent <= 0).any():
            return False
        copies = np.minimum(np.ceil(sent_to_wanting / most_sent - _ROUNDING_RATIO), brokers_count)
        return sent + float(np.maximum(copies, 1) @ rates) <= brokers_count * load

    low, high = 0.0, sent + float(rates.sum())
    for _ in range(_HALVINGS_COUNT):
        middle = (low + high) / 2
        low, high = (low, middle) if has_room(middle) else (middle, high)
    return high


def heaviest_bound(instance: Instance, brokers_count: int) -> float:
    """The heaviest subscriber alone, or the two lightest of the heaviest that cannot all be apart.

    >>> heaviest_bound(Instance.of([[0], [1], [2]], [6.0, 6.0, 6.0]), 2)
    18.0
    """
    heaviest = np.sort(instance.own_loads_bytes_per_s)[::-1]
    if not len(heaviest):
        return 0.0
    alone = 2 * float(heaviest[0])
    if len(heaviest) <= brokers_count:
        return alone
    first, second = float(heaviest[brokers_count - 1]), float(heaviest[brokers_count])
    return max(alone, second + 2 * first)
