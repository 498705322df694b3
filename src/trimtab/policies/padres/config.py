"""The settings of dynamic subscriber balancing, each with its unit, default, reason and source.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), Table 5.2 and
the sections named with each field. Where the thesis names no value, the field says so and why ours was chosen.
"""

from __future__ import annotations

import math

import msgspec


class PadresConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that all brokers of a network share.

    >>> PadresConfig().local_ratio_threshold
    0.1
    >>> PadresConfig(lower_overload_ratio=1.0)
    Traceback (most recent call last):
    ...
    ValueError: the lower overload ratio (1.0) must be below the higher one (0.95)
    """

    # Exchange of load information (PIE, section 3.3.1)

    pie_ratio_threshold: float = 0.025
    """A utilisation ratio is worth publishing when it changed by more than this (Table 5.2)."""

    pie_delay_threshold: float = 0.025
    """A delay is worth publishing when it changed by more than this, by equation 3.5 (Table 5.2)."""

    local_pie_period_s: float = 30.0
    """How often an edge-broker looks whether it has something to publish (Table 5.2, section 3.3.1.1)."""

    global_pie_period_s: float = 60.0
    """The same for a cluster-head and its cluster (Table 5.2, section 3.3.1.2)."""

    pie_lifetime_periods: float = 3.0
    """What was heard of a broker is forgotten after so many periods without news (section 3.3.1)."""

    # Detection (section 3.3.2)

    lower_overload_ratio: float = 0.9
    """A broker with a utilisation beyond this accepts no more load (Table 5.2, Figure 3.4)."""

    higher_overload_ratio: float = 0.95
    """A broker with a utilisation beyond this gives load away at once (Table 5.2, Figure 3.4)."""

    inert_patience_s: float = 60.0
    """A broker that stays between the two thresholds for so long balances differences as others do (no value given: in
    the thesis it never acts, and steady load keeps it there for good): as long as indices take to settle."""

    local_ratio_threshold: float = 0.1
    """Brokers of a cluster whose utilisation ratios differ by more than this balance them (Table 5.2)."""

    local_delay_threshold: float = 0.1
    """The same for matching delays, by equation 3.5 (Table 5.2)."""

    global_ratio_threshold: float = 0.15
    """The same for the mean ratios of two clusters; at least the local one, or the two contradict (Table 5.2)."""

    global_delay_threshold: float = 0.15
    """The same for the mean matching delays of two clusters (Table 5.2)."""

    delay_normalization_s: float = 0.1
    """Delay differences are told as a share of this (N_f, equation 3.5, Table 5.2)."""

    stabilize_duration_s: float = 30.0
    """A broker balances no difference for at least so long after a session (Table 5.2, "stabilize duration")."""

    stabilize_change: float = 0.05
    """And not before its indices changed by less than this (Table 5.2, "stabilize percentage") ..."""

    stabilize_interval_s: float = 60.0
    """... within so long (section 3.3.2.1, where it is fixed)."""

    local_detection_min_interval_s: float = 20.0
    """An edge-broker looks at its load after a random time, at least this (Table 5.2)."""
    local_detection_max_interval_s: float = 40.0
    """An edge-broker looks at its load after a random time between these, so that brokers do not ask each other in
    step (Table 5.2)."""

    global_detection_min_interval_s: float = 50.0
    """A cluster-head looks at its cluster after a random time, at least this (Table 5.2)."""
    global_detection_max_interval_s: float = 70.0
    """The same for a cluster-head (Table 5.2)."""

    smoothing_alpha: float = 0.75
    """The weight of the present in the indices that detection sees (equation 3.4, Table 5.2)."""

    global_request_threshold_count: int = 3
    """So many calls for help from overloaded brokers end a session between clusters and start another (Table 5.2)."""

    overload_priority_s: float = 120.0
    """An overloaded broker keeps others of its cluster from balancing differences for at most so long (section
    3.3.2.3; the thesis sets no limit, but a broker that nobody can relieve must not stop all others): four times the
    usual interval between two detections."""

    fruitless_patience_s: float = 60.0
    """After a session that found nothing to move, the two brokers leave that index alone for so long (no value given):
    as long as indices take to settle, so that the load may have changed; see
    `trimtab.policies.padres.empty_sessions`."""

    # Planning (chapter 4)

    press_sample_count: int = 50
    """Publications that are looked at before a plan is made (N, Table 5.2, section 4.1.1)."""

    press_timeout_s: float = 30.0
    """Sampling ends after so long even with fewer publications (T, Table 5.2, section 4.1.1)."""

    balance_difference: float = 0.005
    """Two brokers closer than this in the index at hand are balanced (Table 5.2, "balance percentage")."""

    acceptor_margin_ratio: float = 0.025
    """An accepting broker is planned to stay below the lower overload threshold by this (no value given): by as much as
    the output ratio fluctuates at rest (section 5.2.1.7)."""

    slope_subscription_count: int = 20
    """The matching delay and memory per subscription are measured between two moments that differ by so many
    subscriptions (S, sections 4.1.2 and 4.1.5; no value given): a change of delay that stands out from noise."""

    session_clients_max_count: int = 1_000
    """Clients that one session moves at most (no value given): four times the largest session that the thesis tells
    of, and it bounds the time that two brokers are busy."""

    # Mediation (section 3.4)

    migration_timeout_s: float = 10.0
    """A session with N clients waits N times this for them to arrive (Table 5.2, section 3.4.2)."""

    migration_timeout_max_s: float = 600.0
    """But never longer than this (no value given): with a thousand clients the product alone would be hours."""

    reply_timeout_s: float = 10.0
    """An answer to a request is awaited for so long (no value given): control messages overtake all others, so that
    even across an overloaded cluster an answer takes well under a second."""

    planning_timeout_s: float = 60.0
    """The accepting broker waits so long from its answer to the start of the moves (no value given): sampling, which
    takes `press_timeout_s` at most, and as much again to plan."""

    global_session_max_s: float = 600.0
    """A session between clusters ends after so long even if some balanced set never fills (no value given): input and
    output sessions may undo a little of each other for ever, and meanwhile neither cluster is free for a third one."""

    global_session_quiet_s: float = 240.0
    """Or after so long in which no broker of the two clusters gave or took clients (no value given: in the thesis a
    session ends with full balanced sets only, but output is levelled no further than input allows, and two clusters
    that can do no more for each other must be free for others): six detections in which nobody found anything."""

    def __post_init__(self) -> None:
        for name, value in msgspec.structs.asdict(self).items():
            if not math.isfinite(value) or value <= 0:
                raise ValueError(f"{name} must be positive and finite, not {value}")
        if self.lower_overload_ratio >= self.higher_overload_ratio:
            raise ValueError(
                f"the lower overload ratio ({self.lower_overload_ratio}) must be below the higher one "
                f"({self.higher_overload_ratio})"
            )
        if self.acceptor_margin_ratio >= self.lower_overload_ratio:
            raise ValueError("the margin of accepting brokers must leave something below the lower overload ratio")
        if self.smoothing_alpha > 1:
            raise ValueError(f"the smoothing alpha is at most 1, not {self.smoothing_alpha}")
        if self.global_ratio_threshold < self.local_ratio_threshold:
            raise ValueError("the global ratio threshold must not be below the local one")
        if self.global_delay_threshold < self.local_delay_threshold:
            raise ValueError("the global delay threshold must not be below the local one")
        if self.local_detection_min_interval_s > self.local_detection_max_interval_s:
            raise ValueError("the local detection interval ends before it begins")
        if self.global_detection_min_interval_s > self.global_detection_max_interval_s:
            raise ValueError("the global detection interval ends before it begins")
        if self.balance_difference > min(self.local_ratio_threshold, self.local_delay_threshold):
            raise ValueError("brokers must be balanced more closely than the thresholds that trigger balancing")
        if self.planning_timeout_s < self.press_timeout_s:
            raise ValueError("the planning timeout must leave time to sample (press_timeout_s)")

    @property
    def bearable_ratio(self) -> float:
        """Up to which utilisation an accepting broker may be filled.

        >>> PadresConfig().bearable_ratio
        0.875
        """
        return self.lower_overload_ratio - self.acceptor_margin_ratio

    @property
    def local_pie_lifetime_s(self) -> float:
        """How long what was heard of an edge-broker is believed."""
        return self.pie_lifetime_periods * self.local_pie_period_s

    @property
    def global_pie_lifetime_s(self) -> float:
        """How long what was heard of a cluster is believed."""
        return self.pie_lifetime_periods * self.global_pie_period_s

    def migration_deadline_s(self, client_count: int) -> float:
        """How long a session waits for its clients to arrive.

        >>> PadresConfig().migration_deadline_s(3)
        30.0
        """
        return min(client_count * self.migration_timeout_s, self.migration_timeout_max_s)
