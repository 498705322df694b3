"""The settings of delay-sensitive load management, each with its unit, default, reason and source.

Source: R. Tao, S. Poslad, J. Bigham, resilient delay sensitive load management in environment crisis messaging systems
(2013). Where the paper names no value, the field says why ours was chosen.
"""

from __future__ import annotations

import math

import msgspec


class DelayConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that all brokers of a network share.

    >>> DelayConfig(low_ratio=0.96)
    Traceback (most recent call last):
    ...
    ValueError: the lower threshold (0.96) must be below the higher one (0.95)
    """

    low_ratio: float = 0.9
    """TH_low: a broker beyond it in any utilisation accepts no more load (section IV.B)."""

    high_ratio: float = 0.95
    """TH_high of downlink, uplink (heads only) and matching: beyond it load is shifted (section IV.B)."""

    full_ratio: float = 0.99
    """Uplinks of accepting edge-brokers are filled up to this where nothing else ends an overload: a line that is full
    for a moment delays nobody for long (no value given)."""

    read_every_s: float = 0.5
    """Between two readings of the load (no value given): a fraction of the strictest requirement of Table VI."""

    tell_every_s: float = 1.0
    """Between two reports of an edge-broker to its cluster (no value given): each is about 300 bytes."""

    believed_s: float = 5.0
    """What was heard of a broker is forgotten after so long: five reports."""

    smoothing_alpha: float = 0.75
    """The weight of the last reading in the predicted rates (no predictor given; thesis of A. Cheung, equation 3.4)."""

    overloaded_readings_count: int = 2
    """Readings in a row beyond a threshold that make an overload: one alone may be chance."""

    wait_floor_ratio: float = 0.1
    """A queue whose wait is below this share of what is allowed is never too long, whatever balancing costs: if moving
    takes longer than a message may wait, formula (2) would call an empty queue overloaded."""

    growth_ratio: float = 0.02
    """A queue grows if more comes than goes by this share: less is chance."""

    busy_ratio: float = 0.97
    """Queues that grow below this uplink utilisation wait for something that moving subscribers does not help."""

    clear_within_s: float = 30.0
    """An overload counts as ended by a plan if what waits is cleared within so long (the paper's takes 28 s)."""

    sample_count: int = 1000
    """Publications that are looked at before a plan or an allocation is made: enough of each of some ten interests."""

    sample_timeout_s: float = 0.5
    """Or as many as come in this time."""

    gather_s: float = 0.2
    """A head waits so long for others who want the same before it allocates a subscriber, so that the broker has room
    for all of them (no value given): a way from client to broker in the paper's experiment."""

    sample_lifetime_s: float = 1.0
    """A head that has looked at publications does not look again for so long."""

    similar_ratio: float = 0.5
    """Subscribers go where this share of what they want arrives already (first principle; no value given)."""

    bundle_ratio: float = 0.9
    """Clients whose interests overlap by this much (common publications among all) are one bundle: a topic is the case
    where they overlap wholly (no value given)."""

    correlated_ratio: float = 0.8
    """Interests whose arrivals correlate by more than this are kept apart (second principle; no value given)."""

    bursty_dispersion: float = 1.5
    """Arrivals whose variance is below this many times their mean (1 for independent ones) cannot correlate in a way
    that matters: nothing sudden is in them."""

    correlation_slices_count: int = 20
    """Slices of a sample in which arrivals are counted."""

    measure_every_s: float = 20.0
    """Between two measurements of the way to each client and broker."""

    reply_timeout_s: float = 2.0
    """Answers are awaited for so long: control overtakes publications, so that they take a few round trips."""

    migration_timeout_s: float = 30.0
    """A load-balancing phase ends after so long even if some clients have not answered (section IV.D.3; no value)."""

    settle_s: float = 3.0
    """After a phase a broker begins no other for so long: rates must show what it did."""

    def __post_init__(self) -> None:
        for name, value in msgspec.structs.asdict(self).items():
            if not math.isfinite(value) or value <= 0:
                raise ValueError(f"{name} must be positive and finite, not {value}")
        if self.low_ratio >= self.high_ratio:
            raise ValueError(f"the lower threshold ({self.low_ratio}) must be below the higher one ({self.high_ratio})")
        if self.smoothing_alpha > 1:
            raise ValueError(f"the smoothing alpha is at most 1, not {self.smoothing_alpha}")
