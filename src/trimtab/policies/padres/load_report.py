"""A broker's load as it tells it to others and hears it from them, for policies that have their own way of deciding.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), sections
3.3.1.1 and 3.3.2 (equation 3.4).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trimtab.load.indices import LoadIndices, input_utilization_ratio, smoothed_indices
from trimtab.load.slope import SlopeMeter
from trimtab.policies.api import AgentAction, AgentHost, Tell
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import Status
from trimtab.policies.padres.measured_load import resources_of
from trimtab.policies.padres.snapshot import BrokerLoad, broker_load, broker_load_to_values, has_news


class LoadReporter:
    """Reads the load of a broker, smooths it, and tells it when there is news."""

    def __init__(  # noqa: PLR0917 (a broker, and how it tells)
        self,
        host: AgentHost,
        cluster: str,
        config: PadresConfig,
        refresh_period_s: float,
        now_s: float,
        slope: SlopeMeter | None = None,
    ) -> None:
        """With a slope, matching delay and input ratio are those of the present number of subscriptions; else both are
        means over the meters' window."""
        self.status = Status.OK
        self._host = host
        self._cluster = cluster
        self._config = config
        self._refresh_period_s = refresh_period_s
        self._smoothed: LoadIndices | None = None
        self._slope = slope
        self._told: BrokerLoad | None = None
        self._told_s = now_s

    def read(self, now_s: float) -> BrokerLoad:
        """Take a reading; returns the smoothed load with the present status."""
        self._smoothed = smoothed_indices(self._present(now_s), self._smoothed, self._config.smoothing_alpha)
        return self.load(now_s)

    def _present(self, now_s: float) -> LoadIndices:
        load = self._host.load(now_s)
        if self._slope is None:
            return load
        delay_s = self._slope.with_slope(resources_of(self._host, load), now_s).matching_delay_s
        ratio = input_utilization_ratio(load.input_rate_per_s, delay_s)
        return msgspec.structs.replace(load, matching_delay_s=delay_s, input_utilization_ratio=ratio)

    def load(self, now_s: float, balanced_with: Sequence[str] = ()) -> BrokerLoad:
        """The load as it was read last."""
        indices = self._smoothed or self._present(now_s)
        return broker_load(
            self._host.name,
            self._cluster,
            self.status,
            resources_of(self._host, indices),
            indices,
            client_count=len(self._host.clients()),
            balanced_with=balanced_with,
        )

    def tell(self, now_s: float, *, always: bool = False) -> list[AgentAction]:
        """Tell the load if it changed by more than the thresholds, or if nothing was told for long."""
        load = self.load(now_s)
        if not always and not has_news(load, self._told, now_s - self._told_s, self._refresh_period_s, self._config):
            return []
        self._told, self._told_s = load, now_s
        return [Tell(broker_load_to_values(load))]
