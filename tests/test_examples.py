"""What stands in examples/ runs as it stands there."""

import configparser
from pathlib import Path

from trimtab.network.links.connection import CLOSE_WITHIN_S
from trimtab.network.network_file import NetworkOptions
from trimtab.network.server.ending import LEFT_EXIT_CODE
from trimtab.simulation.scenarios.run import ScenarioRun
from trimtab.simulation.scenarios.scenario import read_scenario

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_scenario_levels_itself_and_loses_nothing() -> None:
    summaries = {
        policy: ScenarioRun(read_scenario(str(EXAMPLES / "own_scenario.toml"), {"policy": policy}), 1).run()
        for policy in ("none", "padres-fast")
    }
    for summary in summaries.values():
        assert summary.violations == []
        assert summary.details.faults == {"cut": 1}
    none, fast = summaries["none"].details.balance, summaries["padres-fast"].details.balance
    assert none is not None
    assert fast is not None
    assert none.overloaded_broker_seconds > 400
    assert fast.overloaded_broker_seconds == 0
    assert fast.subscribers_by_broker["strong"] > 2 * fast.subscribers_by_broker["weak"]


def test_the_systemd_unit_waits_longer_than_a_broker_needs_to_stop_and_starts_none_that_has_left() -> None:
    unit = configparser.ConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys of units have capitals
    unit.read(EXAMPLES / "trimtab@.service", encoding="utf-8")
    service = unit["Service"]
    assert service["KillSignal"] == "SIGTERM"
    assert service["Restart"] == "always"
    assert float(service["TimeoutStopSec"]) >= NetworkOptions().stop_within_s + 2 * CLOSE_WITHIN_S
    assert service["RestartPreventExitStatus"] == service["SuccessExitStatus"] == str(LEFT_EXIT_CODE)
