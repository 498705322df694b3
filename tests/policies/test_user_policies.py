"""Policies in users' files take part like others, and mistakes in them are told."""

from pathlib import Path

import pytest

from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.registry import agents_of, check_policy, read_policy
from trimtab.policies.settings import SettingsError
from trimtab.simulation.scenarios.run import ScenarioRun
from trimtab.simulation.scenarios.scenario import read_scenario

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_policy.py"


def test_the_example_is_an_agent_of_every_broker() -> None:
    (agent,) = agents_of(f"{EXAMPLE}:Even", "B1", 1)
    assert agent.name == "even"


def test_the_example_moves_clients_and_nothing_is_lost() -> None:
    settings = {"policy": f"{EXAMPLE}:Even", "duration_s": "150", "rate.0.at_s": "150", "balance.change_s": "150"}
    summary = ScenarioRun(read_scenario("padres-local", settings), 1).run()
    assert summary.violations == []
    assert summary.moves > 50


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ("", "Mine", "module 'mine' has no attribute 'Mine'"),
        ("class Mine:\n    def __init__(self, rng): pass", "Mine", "is no agent: it has no name, observes, start"),
        ("class Mine: pass", "Mine", "cannot be used: TypeError"),
        ("import nothing_like_this", "Mine", "cannot be used: ModuleNotFoundError"),
        ("def (", "Mine", "cannot be used: SyntaxError"),
    ],
)
def test_a_mistake_is_told(tmp_path: Path, text: str, name: str, says: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="policy: ") as caught:
        check_policy(f"{path}:{name}")
    assert says in str(caught.value)


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(ValueError, match="policy: there is no file nowhere"):
        check_policy("nowhere.py:Mine")


def test_a_policy_of_ones_own_takes_settings() -> None:
    choice = read_policy({"name": f"{EXAMPLE}:Even", "Even": {"every_s": 5.0}})
    (agent,) = agents_of(choice, "B1", 1)
    assert getattr(agent, "every_s") == 5.0  # noqa: B009 (the type is the user's)
    with pytest.raises(SettingsError, match=r"policy.Even: .* cannot be used with speed: TypeError: .*'speed'"):
        read_policy({"name": f"{EXAMPLE}:Even", "Even": {"speed": 5.0}})
    with pytest.raises(SettingsError, match=r"no policy has a table Odd; expected one of .*, Even"):
        read_policy({"name": f"{EXAMPLE}:Even", "Odd": {}})


def test_settings_of_a_policy_count_whatever_is_chosen() -> None:
    section = {"name": "none", "padres": {"press_sample_count": 9}, "padres-fast": {"press_sample_count": 7}}
    choice = read_policy(section)
    assert choice.config(PadresConfig).press_sample_count == 9
    assert choice.named("padres-fast").config(PadresConfig).press_sample_count == 7
    assert choice.named("naive").config(PadresConfig).press_sample_count == 9
    with pytest.raises(SettingsError, match=r"policy.delay.low_ratio: .*"):
        read_policy({"delay": {"low_ratio": 0.97}})
