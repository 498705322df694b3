"""Load indices of a broker: how much of its input, matching and output capacity is in use.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 3.3.1,
equations 3.1 to 3.3, and section 3.3.2, equation 3.4.

A broker can match as many publications per second as its matching delay allows; the share of that which arrives is its
input utilisation. The share of its bandwidth that its output takes is its output utilisation. Ratios are taken when
messages enter a queue, so that they show a change before the delays of the queue do.

Deviations: none.
"""

from __future__ import annotations

import msgspec


class LoadIndices(msgspec.Struct, frozen=True):
    """A broker's load at one moment."""

    input_rate_per_s: float
    matching_delay_s: float
    output_rate_bytes_per_s: float
    input_utilization_ratio: float
    output_utilization_ratio: float
    cpu_utilization_ratio: float
    input_queue_count: int
    input_queue_delay_s: float
    output_queue_count: int
    output_queue_delay_s: float
    memory_bytes: int


def maximum_matching_rate_per_s(matching_delay_s: float) -> float:
    """Publications that can be matched per second (m_r, equation 3.2).

    >>> maximum_matching_rate_per_s(0.02)
    50.0
    """
    return 1 / matching_delay_s if matching_delay_s > 0 else float("inf")


def input_utilization_ratio(input_rate_per_s: float, matching_delay_s: float) -> float:
    """The share of the matching capacity that arriving publications take (I_r, equation 3.1).

    >>> input_utilization_ratio(20.0, 0.02)
    0.4
    """
    return input_rate_per_s / maximum_matching_rate_per_s(matching_delay_s)


def output_utilization_ratio(output_rate_bytes_per_s: float, bandwidth_bytes_per_s: float) -> float:
    """The share of the bandwidth that the output takes (O_r, equation 3.3).

    >>> output_utilization_ratio(31_250.0, 62_500.0)
    0.5
    """
    return output_rate_bytes_per_s / bandwidth_bytes_per_s


def smoothed(current: float, previous: float, alpha: float) -> float:
    """The index that detection works on (y_n, equation 3.4): alpha of the present, the rest of the past.

    >>> smoothed(1.0, 0.0, alpha=0.75)
    0.75
    """
    return alpha * current + (1 - alpha) * previous


def smoothed_indices(current: LoadIndices, previous: LoadIndices | None, alpha: float) -> LoadIndices:
    """Rates, delays and ratios smoothed; counts and memory as they are."""
    if previous is None:
        return current
    changes = {
        name: smoothed(getattr(current, name), getattr(previous, name), alpha)
        for name in current.__struct_fields__
        if not name.endswith(("_count", "_bytes"))
    }
    return msgspec.structs.replace(current, **changes)
