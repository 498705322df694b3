"""What a broker's load will be after subscriptions have come or gone.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), sections 4.1.2
to 4.1.5, equations 4.7 to 4.16.

Matching takes longer with more subscriptions, the input ratio grows with the rate of arrivals and with the matching
delay, the output ratio with what is sent, and the memory of queues and of the matching engine with all of these. A
change is told as four numbers (subscriptions, input rate, input bytes, output bytes); the sum of the changes of two
moves is the change of both.

Deviations:
- Where a broker has measured by how much one more subscription slows matching, or how much memory it takes (the slopes
  of sections 4.1.2 and 4.1.5), that is used; otherwise both are proportional to the number of subscriptions
  (equations 4.7 and 4.15).
- The processor's utilisation changes by as much as the input ratio does. Below 1 both are the same thing; a broker that
  works off a backlog is fully utilised although little arrives, and predicting the input ratio alone would hide that.
- A broker that has matched nothing yet, and of whose machine nothing is known (`trimtab.load.slope`), tells no delay;
  `with_matching_delay_like` lends it another broker's, and one without subscriptions what they take of the other's
  memory.
"""

from __future__ import annotations

import msgspec

from trimtab.load.indices import input_utilization_ratio, output_utilization_ratio


class BrokerResources(msgspec.Struct, frozen=True, kw_only=True):
    """What must be known of a broker in order to estimate its load after a change (the list in section 3.4.1)."""

    input_rate_per_s: float
    """Publications that enter its input queue (i_r)."""

    input_rate_bytes_per_s: float
    """The bandwidth that they take (i_b)."""

    matching_delay_s: float
    """The time to match one of them (d_m)."""

    subscription_count: int
    """Subscriptions in its matching engine, of clients and others (n)."""

    output_rate_bytes_per_s: float
    """What it sends (o_u)."""

    bandwidth_bytes_per_s: float
    """What it can send (o_t)."""

    cpu_utilization_ratio: float = 0.0
    matching_delay_slope_s: float | None = None
    """By how much one more subscription slows matching, if that was measured."""

    input_queue_bytes: float = 0.0
    """m_i"""
    output_queue_bytes: float = 0.0
    """m_o"""
    matching_memory_bytes: float = 0.0
    """m_m: what subscriptions take, without the program itself."""
    matching_memory_slope_bytes: float | None = None
    """How much memory one more subscription takes, if that was measured."""
    memory_bytes: float | None = None
    """The memory that it has (m_t); None if that is no limit."""

    @property
    def input_utilization_ratio(self) -> float:
        """I_r, equation 4.8."""
        return input_utilization_ratio(self.input_rate_per_s, self.matching_delay_s)

    @property
    def output_utilization_ratio(self) -> float:
        """O_r, equation 4.9."""
        return output_utilization_ratio(self.output_rate_bytes_per_s, self.bandwidth_bytes_per_s)

    @property
    def memory_used_bytes(self) -> float:
        """m_u, equations 4.11 and 4.16."""
        return self.input_queue_bytes + self.output_queue_bytes + self.matching_memory_bytes

    @property
    def memory_utilization_ratio(self) -> float:
        """M_r, equation 4.12."""
        return 0.0 if self.memory_bytes is None else self.memory_used_bytes / self.memory_bytes

    @property
    def highest_utilization_ratio(self) -> float:
        """The largest of the four utilisations: input, output, processor, memory."""
        return max(
            self.input_utilization_ratio,
            self.output_utilization_ratio,
            self.cpu_utilization_ratio,
            self.memory_utilization_ratio,
        )


class LoadChange(msgspec.Struct, frozen=True):
    """What comes to a broker (or goes, when negative)."""

    subscription_count: int = 0
    input_rate_per_s: float = 0.0
    input_rate_bytes_per_s: float = 0.0
    output_rate_bytes_per_s: float = 0.0

    def __add__(self, other: LoadChange) -> LoadChange:
        """Both changes together."""
        return LoadChange(
            self.subscription_count + other.subscription_count,
            self.input_rate_per_s + other.input_rate_per_s,
            self.input_rate_bytes_per_s + other.input_rate_bytes_per_s,
            self.output_rate_bytes_per_s + other.output_rate_bytes_per_s,
        )


def estimated_matching_delay_s(
    matching_delay_s: float, subscription_count: int, change_count: int, slope_s: float | None = None
) -> float:
    """The matching delay with so many subscriptions more (d'_m, equation 4.7), or fewer.

    >>> estimated_matching_delay_s(0.02, subscription_count=100, change_count=50)
    0.03
    >>> estimated_matching_delay_s(0.02, subscription_count=100, change_count=50, slope_s=0.0001)
    0.025
    """
    if slope_s is not None:
        return max(matching_delay_s + slope_s * change_count, 0.0)
    if subscription_count <= 0:
        return matching_delay_s
    return max(subscription_count + change_count, 0) / subscription_count * matching_delay_s


def estimated_input_queue_bytes(queue_bytes: float, rate_factor: float, subscription_factor: float) -> float:
    """The memory of the input queue (m'_i, equation 4.13): it grows with arrivals and with the time that each takes."""
    return rate_factor * subscription_factor * queue_bytes


def estimated_output_queue_bytes(queue_bytes: float, output_factor: float) -> float:
    """The memory of the output queues (m'_o, equation 4.14)."""
    return output_factor * queue_bytes


def estimated_matching_memory_bytes(
    matching_memory_bytes: float, subscription_count: int, change_count: int, slope_bytes: float | None = None
) -> float:
    """The memory of the matching engine with so many subscriptions more (m'_m, equation 4.15), or fewer.

    >>> estimated_matching_memory_bytes(2_000.0, subscription_count=100, change_count=50)
    3000.0
    >>> estimated_matching_memory_bytes(2_000.0, subscription_count=100, change_count=50, slope_bytes=10.0)
    2500.0
    """
    if slope_bytes is not None:
        return max(matching_memory_bytes + slope_bytes * change_count, 0.0)
    return _factor(subscription_count, change_count) * matching_memory_bytes


def _factor(before: float, change: float) -> float:
    return max(before + change, 0.0) / before if before > 0 else 1.0


def after_change(broker: BrokerResources, change: LoadChange) -> BrokerResources:
    """A broker's load after a change, by equations 4.7 to 4.16; rates never fall below zero.

    >>> broker = BrokerResources(
    ...     input_rate_per_s=20, input_rate_bytes_per_s=6_000, matching_delay_s=0.02, subscription_count=100,
    ...     output_rate_bytes_per_s=30_000, bandwidth_bytes_per_s=60_000)
    >>> broker.input_utilization_ratio, broker.output_utilization_ratio
    (0.4, 0.5)
    >>> later = after_change(broker, LoadChange(subscription_count=50, output_rate_bytes_per_s=6_000))
    >>> later.matching_delay_s, round(later.input_utilization_ratio, 3), later.output_utilization_ratio
    (0.03, 0.6, 0.6)
    """
    matching_delay_s = estimated_matching_delay_s(
        broker.matching_delay_s, broker.subscription_count, change.subscription_count, broker.matching_delay_slope_s
    )
    input_rate_per_s = max(broker.input_rate_per_s + change.input_rate_per_s, 0.0)
    input_ratio_change = input_utilization_ratio(input_rate_per_s, matching_delay_s) - broker.input_utilization_ratio
    subscription_factor = _factor(broker.subscription_count, change.subscription_count)
    return BrokerResources(
        input_rate_per_s=input_rate_per_s,
        input_rate_bytes_per_s=max(broker.input_rate_bytes_per_s + change.input_rate_bytes_per_s, 0.0),
        matching_delay_s=matching_delay_s,
        subscription_count=max(broker.subscription_count + change.subscription_count, 0),
        output_rate_bytes_per_s=max(broker.output_rate_bytes_per_s + change.output_rate_bytes_per_s, 0.0),
        bandwidth_bytes_per_s=broker.bandwidth_bytes_per_s,
        cpu_utilization_ratio=max(broker.cpu_utilization_ratio + input_ratio_change, 0.0),
        matching_delay_slope_s=broker.matching_delay_slope_s,
        input_queue_bytes=estimated_input_queue_bytes(
            broker.input_queue_bytes,
            _factor(broker.input_rate_bytes_per_s, change.input_rate_bytes_per_s),
            subscription_factor,
        ),
        output_queue_bytes=estimated_output_queue_bytes(
            broker.output_queue_bytes, _factor(broker.output_rate_bytes_per_s, change.output_rate_bytes_per_s)
        ),
        matching_memory_bytes=estimated_matching_memory_bytes(
            broker.matching_memory_bytes,
            broker.subscription_count,
            change.subscription_count,
            broker.matching_memory_slope_bytes,
        ),
        matching_memory_slope_bytes=broker.matching_memory_slope_bytes,
        memory_bytes=broker.memory_bytes,
    )


def with_matching_delay_like(broker: BrokerResources, other: BrokerResources) -> BrokerResources:
    """The broker, or, if it has not matched anything yet and told no slope, the broker with the other's delay per
    subscription: without it, any number of subscriptions would seem to cost nothing.

    >>> busy = BrokerResources(
    ...     input_rate_per_s=20, input_rate_bytes_per_s=6_000, matching_delay_s=0.02, subscription_count=100,
    ...     output_rate_bytes_per_s=30_000, bandwidth_bytes_per_s=60_000)
    >>> idle = BrokerResources(
    ...     input_rate_per_s=0, input_rate_bytes_per_s=0, matching_delay_s=0, subscription_count=10,
    ...     output_rate_bytes_per_s=0, bandwidth_bytes_per_s=60_000)
    >>> lent = with_matching_delay_like(idle, busy)
    >>> lent.matching_delay_s, lent.matching_delay_slope_s
    (0.002, 0.0002)
    """
    if broker.subscription_count == 0 and broker.matching_memory_slope_bytes is None:
        broker = msgspec.structs.replace(broker, matching_memory_slope_bytes=_memory_of_one_bytes(other))
    if broker.matching_delay_slope_s is not None or (broker.matching_delay_s > 0 and broker.subscription_count > 0):
        return broker
    slope_s = other.matching_delay_slope_s
    if slope_s is None:
        slope_s = other.matching_delay_s / other.subscription_count if other.subscription_count else 0.0
    return msgspec.structs.replace(
        broker,
        matching_delay_s=max(broker.matching_delay_s, slope_s * broker.subscription_count),
        matching_delay_slope_s=slope_s,
    )


def _memory_of_one_bytes(broker: BrokerResources) -> float | None:
    """What a subscription takes at a broker, as far as it knows."""
    if broker.matching_memory_slope_bytes is not None or not broker.subscription_count:
        return broker.matching_memory_slope_bytes
    return broker.matching_memory_bytes / broker.subscription_count


def slope_per_subscription(
    earlier: tuple[int, float], later: tuple[int, float], least_change_count: int
) -> float | None:
    """By how much one more subscription changed what was measured (a delay or memory), from two readings of the
    number of subscriptions and of that; None if the numbers differ by too few, or if more took less.

    >>> slope_per_subscription((100, 2.0), (150, 3.0), least_change_count=20)
    0.02
    >>> slope_per_subscription((100, 2.0), (101, 3.0), least_change_count=20) is None
    True
    """
    change_count = later[0] - earlier[0]
    if abs(change_count) < least_change_count:
        return None
    slope = (later[1] - earlier[1]) / change_count
    return slope if slope >= 0 else None
