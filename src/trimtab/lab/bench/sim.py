"""How fast the simulation is: checked deliveries per second of one processor core."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import msgspec

from trimtab.simulation.scenarios.run import ScenarioRun
from trimtab.simulation.scenarios.scenario import read_scenario

SCENARIOS: Final = ("stock-throughput", "stock-single")
"""Many subscriptions on few connections without limits; one subscription per client, five brokers with limits."""


class SimulationFigures(msgspec.Struct, frozen=True):
    """What running a scenario took."""

    scenario: str
    simulated_s: float
    publications_count: int
    deliveries_count: int
    cpu_s: float
    deliveries_per_cpu_s: float
    cpu_us_per_publication: float
    violations_count: int
    trace_hash: str


def measure(duration_s: float | None = None) -> Iterator[SimulationFigures]:
    """Run each scenario, for its own duration unless another is given."""
    for name in SCENARIOS:
        overrides = {} if duration_s is None else {"duration_s": str(duration_s)}
        run = ScenarioRun(read_scenario(name, overrides))
        begun_s = time.process_time()
        summary = run.run()
        cpu_s = time.process_time() - begun_s
        publications_count, deliveries_count = summary.publications or 0, summary.deliveries or 0
        yield SimulationFigures(
            scenario=name,
            simulated_s=summary.simulated_s,
            publications_count=publications_count,
            deliveries_count=deliveries_count,
            cpu_s=cpu_s,
            deliveries_per_cpu_s=deliveries_count / cpu_s,
            cpu_us_per_publication=cpu_s / max(1, publications_count) * 1e6,
            violations_count=len(summary.violations),
            trace_hash=summary.trace_hash,
        )
