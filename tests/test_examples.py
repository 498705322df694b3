"""What stands in examples/ runs as it stands there."""

from pathlib import Path

from trimtab.simulation.run import ScenarioRun
from trimtab.simulation.scenario import read_scenario

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_scenario_levels_itself_and_loses_nothing() -> None:
    summaries = {
        policy: ScenarioRun(read_scenario(str(EXAMPLES / "own_scenario.toml"), {"policy": policy}), 1).run()
        for policy in ("none", "padres-fast")
    }
    for summary in summaries.values():
        assert summary.violations == []
        assert summary.faults_count == {"cut": 1}
    none, fast = summaries["none"].balance, summaries["padres-fast"].balance
    assert none is not None
    assert fast is not None
    assert none.overloaded_broker_seconds > 400
    assert fast.overloaded_broker_seconds == 0
    assert fast.subscribers_by_broker["strong"] > 2 * fast.subscribers_by_broker["weak"]
