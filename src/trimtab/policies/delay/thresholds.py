"""The dynamic threshold of queue depth, from each subscription's latency requirement.

Source: R. Tao, S. Poslad, J. Bigham (2013), section IV.B.2, steps a to c, formulas (1) and (2).

What remains of the required time after transmission, the other brokers, arrival, matching and departure may be spent in
the queue. The queue that can be worked off in that time, less what balancing takes and less what the queue grows by
until the next reading, is the longest that is allowed now.

Deviations:
- Predicted rates: the last reading's rate and the former prediction, weighted (exponential smoothing). The paper names
  no predictor. Bursts step up and stay, which this follows within two readings; a trend would overshoot at the step.
- If balancing takes longer than a message may wait, formula (2) is negative and would call every queue overloaded,
  empty ones too. A floor of a share of the allowed wait stands in its place: such a queue is too long as soon as it
  grows.
- A queue that does not grow, and whose messages will still be in time, is not overloaded: it is being cleared, and
  moving more subscribers would be needless.
"""

from __future__ import annotations

import math

import msgspec

from trimtab.policies.delay.config import DelayConfig


class Transmission(msgspec.Struct, frozen=True, kw_only=True):
    """Measured one-way times on the links of a publication's way (step a)."""

    publisher_head_s: float = 0.0
    """t_p-h: the longest of all publishers that matter."""

    head_head_s: float = 0.0
    """t_h-h"""

    head_edge_s: float = 0.0
    """t_h-e"""

    edge_subscriber_s: float = 0.0
    """t_e-s"""

    @property
    def total_s(self) -> float:
        """t_trans-sel"""
        return self.publisher_head_s + self.head_head_s + self.head_edge_s + self.edge_subscriber_s


def one_way_s(round_trip_s: float) -> float:
    """Half of a round trip: neither end needs the other's clock.

    >>> one_way_s(0.4)
    0.2
    """
    return round_trip_s / 2


def allowed_wait_s(
    within_s: float,
    transmission_s: float,
    *,
    other_brokers_s: float = 0.0,
    arrival_s: float = 0.0,
    matching_s: float = 0.0,
    departure_s: float = 0.0,
) -> float:
    """How long a message may wait in the edge's output queue (t_s,T-e, step c).

    Topic 1 of the paper's experiment:

    >>> round(allowed_wait_s(1.8, 0.2 + 0.1), 6)
    1.5
    """
    return within_s - transmission_s - other_brokers_s - arrival_s - matching_s - departure_s


def predicted_rate_per_s(measured_per_s: float, predicted_before_per_s: float | None, alpha: float) -> float:
    """The rate expected until the next reading.

    >>> predicted_rate_per_s(200.0, 100.0, 0.75)
    175.0
    """
    if predicted_before_per_s is None:
        return measured_per_s
    return alpha * measured_per_s + (1 - alpha) * predicted_before_per_s


def predicted_wait_s(queued_count: float, input_per_s: float, output_per_s: float) -> float:
    """How long the last message will wait in a second's time: the left side of formula (1).

    >>> predicted_wait_s(100, 200.0, 100.0)
    2.0
    """
    waiting = max(queued_count + input_per_s - output_per_s, 0.0)
    if output_per_s <= 0:
        return math.inf if waiting > 0 else 0.0
    return waiting / output_per_s


def queue_threshold_count(wait_s: float, balancing_s: float, input_per_s: float, output_per_s: float) -> float:
    """The longest queue that is allowed now (TH_s,T, formula (2)); negative if balancing comes too late anyway.

    >>> queue_threshold_count(1.5, 0.5, 120.0, 100.0)
    80.0
    """
    return (wait_s - balancing_s) * output_per_s - (input_per_s - output_per_s)


def is_queue_overloaded(  # noqa: PLR0917 (the symbols of the formulas)
    queued_count: int, wait_s: float, balancing_s: float, input_per_s: float, output_per_s: float, config: DelayConfig
) -> bool:
    """Whether a queue is beyond its threshold, with the floor and the exception for queues that are being cleared."""
    floor_count = config.wait_floor_ratio * max(wait_s, 0.0) * output_per_s
    threshold_count = max(queue_threshold_count(wait_s, balancing_s, input_per_s, output_per_s), floor_count)
    if queued_count <= threshold_count:
        return False
    grows = input_per_s > output_per_s * (1 + config.growth_ratio)
    return grows or predicted_wait_s(queued_count, input_per_s, output_per_s) > wait_s


def expected_balancing_s(head_edge_s: float, edge_subscriber_s: float, sampling_s: float) -> float:
    """What balancing will take (t_LB) as long as none was measured.

    Six control messages between edge and head until clients may go, one to the client, three between it and its new
    broker, and the handover over the head to the old one.

    >>> round(expected_balancing_s(0.1, 0.2, 0.3), 3)
    1.9
    """
    return sampling_s + (6 + 2) * head_edge_s + 4 * edge_subscriber_s


class QueueRates:
    """The predicted rates of one client's queue, from the number of messages that entered and left it.

    >>> rates = QueueRates(0.75)
    >>> rates.read(0.0, entered_count=0, left_count=0)
    >>> rates.read(1.0, entered_count=200, left_count=100)
    >>> rates.input_per_s, rates.output_per_s
    (200.0, 100.0)
    """

    __slots__ = ("_alpha", "_last", "input_per_s", "output_per_s")

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._last: tuple[float, int, int] | None = None
        self.input_per_s: float | None = None
        self.output_per_s: float | None = None

    def read(self, now_s: float, *, entered_count: int, left_count: int) -> None:
        """Take a reading."""
        last, self._last = self._last, (now_s, entered_count, left_count)
        if last is None or now_s <= last[0]:
            return
        over_s = now_s - last[0]
        self.input_per_s = predicted_rate_per_s((entered_count - last[1]) / over_s, self.input_per_s, self._alpha)
        self.output_per_s = predicted_rate_per_s((left_count - last[2]) / over_s, self.output_per_s, self._alpha)
