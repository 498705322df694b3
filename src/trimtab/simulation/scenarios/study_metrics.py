"""What one run of a study showed: the values over which the thesis draws the curves of section 5.3.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 5.3.

"At the end" is the last third of the run. Loads are those of edge-brokers (brokers with one link), or the means of
clusters where the scenario compares these; of each reading the standard deviation is taken, and of these the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean, pstdev
from typing import Annotated, Final

import msgspec

from trimtab.policies.padres.config import PadresConfig
from trimtab.protocol.records import AnyRecord, LoadRecord, SessionRecord
from trimtab.simulation.scenarios.messages import Scenario
from trimtab.simulation.scenarios.run import MessagesSummary
from trimtab.simulation.world.world import World

END_RATIO: Final = 1 / 3
"""The share of the run that counts as its end."""


def _says(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description)


class RunMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of one run; None where there is nothing to tell."""

    converged_at_s: Annotated[float | None, _says("loads level from then on [s]")]
    last_session_s: Annotated[float | None, _says("end of the last session that moved subscribers [s]")]
    input_ratio_std: Annotated[float | None, _says("deviation of input ratios at the end")]
    output_ratio_std: Annotated[float | None, _says("deviation of output ratios at the end")]
    matching_delay_std_s: Annotated[float | None, _says("deviation of matching delays at the end [s]")]
    own_input_error_points: Annotated[float | None, _says("input estimate of the giving broker, error [points]")]
    other_input_error_points: Annotated[float | None, _says("input estimate of the accepting broker, error [points]")]
    own_output_error_points: Annotated[float | None, _says("output estimate of the giving broker, error [points]")]
    other_output_error_points: Annotated[float | None, _says("output estimate of the accepting broker, error [points]")]
    delivery_delay_s: Annotated[float | None, _says("mean delivery delay at the end [s]")]
    sessions_count: Annotated[int, _says("sessions between two edge-brokers")]
    global_sessions_count: Annotated[int, _says("sessions between two cluster-heads")]
    moves: Annotated[int, _says("moves of subscribers")]
    overhead_ratio: Annotated[float | None, _says("share of messages that are no publications, at the end")]
    joining_input_ratio_max: Annotated[float | None, _says("highest input ratio where subscribers join")]
    joining_overloaded_until_s: Annotated[float | None, _says("broker where subscribers join no longer overloaded [s]")]
    lost: Annotated[int | None, _says("publications lost")]
    duplicated: Annotated[int | None, _says("deliveries twice")]
    reordered: Annotated[int | None, _says("deliveries out of order")]


def _descriptions() -> dict[str, str]:
    info = msgspec.inspect.type_info(RunMetrics)
    assert isinstance(info, msgspec.inspect.StructType)
    found: dict[str, str] = {}
    for field in info.fields:
        assert isinstance(field.type, msgspec.inspect.Metadata)
        found[field.name] = str((field.type.extra_json_schema or {})["description"])
    return found


METRICS: Final[Mapping[str, str]] = _descriptions()
"""The metrics by name, with what each means."""


class MetricsWatch:
    """Keeps the records of a run as far as its metrics need them."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._end_from_s = scenario.duration_s * (1 - END_RATIO)
        self._heads = heads_by_edge(scenario)
        joining = scenario.subscribers[0].broker if scenario.subscribers else None
        self._joining = joining if isinstance(joining, str) else None
        self._readings: dict[float, dict[str, LoadRecord]] = {}
        self._sessions: list[SessionRecord] = []
        self._delays_before: tuple[int, float] | None = None
        """How many deliveries there were before the end, and their delays together."""
        self._delays: tuple[int, float] = (0, 0.0)

    def record(self, record: AnyRecord) -> None:
        """Keep what matters here."""
        if isinstance(record, LoadRecord):
            if record.time_s <= self._scenario.duration_s:
                self._readings.setdefault(record.time_s, {})[record.broker] = record
        elif isinstance(record, SessionRecord) and record.acceptor:
            self._sessions.append(record)

    def read(self, world: World) -> None:
        """See how many deliveries there were."""
        delays = world.checker.delays
        self._delays = (delays.count, delays.total_s)
        if self._delays_before is None and world.now_s >= self._end_from_s:
            self._delays_before = self._delays

    def metrics(self, summary: MessagesSummary) -> RunMetrics:
        """What the run showed."""
        balance = summary.details.balance
        errors = balance.estimation_error if balance is not None else {}
        moving = [each.end_s for each in self._sessions if each.subscribers_moved_count]

        def error(name: str) -> float | None:
            return errors[name].mean_points if name in errors else None

        return RunMetrics(
            converged_at_s=balance.converged_at_s if balance is not None else None,
            last_session_s=max(moving, default=None),
            input_ratio_std=self._deviation(lambda load: load.input_utilization_ratio),
            output_ratio_std=self._deviation(lambda load: load.output_utilization_ratio),
            matching_delay_std_s=self._deviation(lambda load: load.matching_delay_s),
            own_input_error_points=error("own input_utilization_ratio"),
            other_input_error_points=error("other input_utilization_ratio"),
            own_output_error_points=error("own output_utilization_ratio"),
            other_output_error_points=error("other output_utilization_ratio"),
            delivery_delay_s=self._mean_delay_s(),
            sessions_count=sum(each.initiator in self._heads for each in self._sessions),
            global_sessions_count=sum(each.initiator not in self._heads for each in self._sessions),
            moves=summary.moves,
            overhead_ratio=self._overhead(),
            joining_input_ratio_max=self._joining_max(),
            joining_overloaded_until_s=self._joining_overloaded_until_s(),
            lost=summary.lost,
            duplicated=summary.duplicated,
            reordered=summary.reordered,
        )

    def _mean_delay_s(self) -> float | None:
        count_before, sum_before_s = self._delays_before or (0, 0.0)
        count = self._delays[0] - count_before
        return (self._delays[1] - sum_before_s) / count if count else None

    def _end(self) -> list[dict[str, LoadRecord]]:
        return [loads for time_s, loads in self._readings.items() if time_s >= self._end_from_s]

    def _deviation(self, value: Callable[[LoadRecord], float]) -> float | None:
        deviations = [pstdev(self._values(loads, value)) for loads in self._end()]
        return fmean(deviations) if deviations else None

    def _values(self, loads: Mapping[str, LoadRecord], value: Callable[[LoadRecord], float]) -> list[float]:
        edges = {name: value(load) for name, load in loads.items() if name in self._heads}
        if self._scenario.balance is None or not self._scenario.balance.clusters:
            return list(edges.values())
        clusters: dict[str, list[float]] = {}
        for name, each in edges.items():
            clusters.setdefault(self._heads[name], []).append(each)
        return [fmean(values) for values in clusters.values()]

    def _overhead(self) -> float | None:
        records = [record for loads in self._end() for record in loads.values()]
        control_count = sum(record.control_out_count for record in records)
        all_count = control_count + sum(record.publications_out_count for record in records)
        return control_count / all_count if all_count else None

    def _joining_max(self) -> float | None:
        return max((load.input_utilization_ratio for _, load in self._joining_loads()), default=None)

    def _joining_overloaded_until_s(self) -> float | None:
        """The last reading beyond the higher overload threshold, in input or output."""
        higher = self._scenario.policy.config(PadresConfig).higher_overload_ratio
        beyond = [
            time_s
            for time_s, load in self._joining_loads()
            if max(load.input_utilization_ratio, load.output_utilization_ratio) > higher
        ]
        return max(beyond, default=None)

    def _joining_loads(self) -> list[tuple[float, LoadRecord]]:
        return [
            (time_s, loads[self._joining])
            for time_s, loads in self._readings.items()
            if self._joining is not None and self._joining in loads
        ]


def heads_by_edge(scenario: Scenario) -> dict[str, str]:
    """The edge-brokers, which have one link, with the broker that each is linked to.

    >>> from trimtab.simulation.scenarios.scenario import read_scenario
    >>> heads_by_edge(read_scenario("padres-local"))
    {'B1': 'B0', 'B2': 'B0', 'B3': 'B0', 'B4': 'B0'}
    """
    neighbours: dict[str, list[str]] = {broker.name: [] for broker in scenario.broker}
    for link in scenario.link:
        first, second = link.between
        neighbours[first].append(second)
        neighbours[second].append(first)
    return {name: others[0] for name, others in neighbours.items() if len(others) == 1}
