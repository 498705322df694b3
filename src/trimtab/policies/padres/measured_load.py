"""A broker's own load as planning needs it: what its meters tell, or the rates of the period of a sample.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 3.4.1
(what must be known of a broker), 4.1.1 (the rate is measured during the sampling period) and 4.1.5.

Deviations: a broker that is not overloaded plans with the means of its meters' window, which holds more publications
than a sample does and is no older than the last session's effect.
"""

from __future__ import annotations

import msgspec

from trimtab.load.estimation import BrokerResources
from trimtab.load.indices import LoadIndices, input_utilization_ratio, output_utilization_ratio
from trimtab.policies.api import AgentHost, TrafficTotals


def sampled_load(
    load: LoadIndices,
    before: TrafficTotals,
    after: TrafficTotals,
    duration_s: float,
    bandwidth_bytes_per_s: float,
) -> LoadIndices:
    """The load with the rates of a period instead of those of the meters' window (i_r of equation 4.1).

    >>> load = LoadIndices(40.0, 0.02, 30_000.0, 0.8, 0.5, 1.0, 90, 2.0, 0, 0.0, 0)
    >>> period = sampled_load(load, TrafficTotals(100, 5e4), TrafficTotals(300, 25e4), 10.0, 60_000.0)
    >>> period.input_rate_per_s, period.input_utilization_ratio, round(period.output_utilization_ratio, 3)
    (20.0, 0.4, 0.333)
    """
    if duration_s <= 0:
        return load
    rate_per_s = (after.arrived_count - before.arrived_count) / duration_s
    output_rate_bytes_per_s = (after.output_bytes - before.output_bytes) / duration_s
    return msgspec.structs.replace(
        load,
        input_rate_per_s=rate_per_s,
        input_utilization_ratio=input_utilization_ratio(rate_per_s, load.matching_delay_s),
        output_rate_bytes_per_s=output_rate_bytes_per_s,
        output_utilization_ratio=output_utilization_ratio(output_rate_bytes_per_s, bandwidth_bytes_per_s),
    )


def resources_of(host: AgentHost, load: LoadIndices) -> BrokerResources:
    """What must be known of a broker to estimate its load after a change."""
    capacity = host.capacity()
    size_bytes = host.publication_bytes()
    input_queue_bytes = load.input_queue_count * size_bytes
    output_queue_bytes = load.output_queue_count * size_bytes
    return BrokerResources(
        input_rate_per_s=load.input_rate_per_s,
        input_rate_bytes_per_s=load.input_rate_per_s * size_bytes,
        matching_delay_s=load.matching_delay_s,
        subscription_count=host.subscription_count(),
        output_rate_bytes_per_s=load.output_rate_bytes_per_s,
        bandwidth_bytes_per_s=capacity.bandwidth_bytes_per_s,
        cpu_utilization_ratio=load.cpu_utilization_ratio,
        input_queue_bytes=input_queue_bytes,
        output_queue_bytes=output_queue_bytes,
        matching_memory_bytes=max(load.memory_bytes - input_queue_bytes - output_queue_bytes, 0.0),
        memory_bytes=capacity.memory_bytes,
    )
