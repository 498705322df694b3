"""Studies: scenarios with one parameter changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.policies.padres.config import PadresConfig
from trimtab.simulation.scenarios.documents import ScenarioError, parse_document
from trimtab.simulation.scenarios.scenario import parse_scenario
from trimtab.simulation.scenarios.study import QUICK_DURATION_S, find_study, scenario_at, study_of
from trimtab.simulation.scenarios.study_metrics import heads_by_edge

NINE = (
    "padres-clusters",
    "padres-edge-brokers",
    "padres-global-pie",
    "padres-global-threshold",
    "padres-local-pie",
    "padres-local-threshold",
    "padres-press-samples",
    "padres-subscribers",
    "padres-zero-traffic",
)


@pytest.mark.parametrize("name", NINE)
def test_every_point_of_the_studies_of_section_5_3_is_a_scenario(name: str) -> None:
    study = find_study(name)
    assert study is not None and study.figure
    for point in range(len(study.values)):
        scenario = scenario_at(study, point)
        assert scenario.balance is not None and scenario.policy.name == "padres"
        assert scenario.balance.joined_s == scenario.subscribers[0].join_s[1]
        assert scenario.balance.change_s >= scenario.duration_s
        assert scenario.subscribers[0].broker in heads_by_edge(scenario)


def test_lists_of_the_grid_change_together_and_overrides_come_last() -> None:
    study = find_study("padres-local-threshold")
    assert study is not None
    scenario = scenario_at(study, 5)
    config = scenario.policy.config(PadresConfig)
    assert (config.local_ratio_threshold, config.local_delay_threshold) == (0.2, 0.2)
    assert scenario_at(study, 0, quick=True).duration_s == QUICK_DURATION_S
    assert scenario_at(study, 0, {"duration_s": "7"}, quick=True).duration_s == 7


def test_points_do_not_change_the_study() -> None:
    study = find_study("padres-edge-brokers")
    assert study is not None
    assert [len(scenario_at(study, point).broker) - 1 for point in (0, 4, 0)] == [2, 8, 2]


def test_clusters_of_a_scenario() -> None:
    study = find_study("padres-global-pie")
    assert study is not None
    scenario = scenario_at(study, 0)
    heads = heads_by_edge(scenario)
    assert heads["B11"] == "B10" and heads["B42"] == "B40"
    machines = {broker.name: broker.cpu_mhz for broker in scenario.broker}
    assert (machines["B10"], machines["B11"], machines["B12"], machines["B42"]) == (3000, 266, 700, 233)
    between = [link.between for link in scenario.link if "0" in link.between[1]]
    assert between == [("B10", "B20"), ("B10", "B30"), ("B10", "B40")]


FIGURE = '[[figure]]\nnumber = "1"\ntitle = "t"\nmetrics = ["y"]'
MACHINE = "{ cpu_mhz = 1, memory_mb = 1, bandwidth_mbps = 1 }"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"[clusters]\ncount = 0\nedge_brokers_count = 1\nhead = {MACHINE}\nedges = [{MACHINE}]", "between 1 and 99"),
        (f"[clusters]\ncount = 1\nedge_brokers_count = 1\nhead = {MACHINE}\nedges = []", "at least one edge-broker"),
        (
            f'broker = [{{ name = "X" }}]\n[clusters]\ncount = 1\nedge_brokers_count = 1\n'
            f"head = {MACHINE}\nedges = [{MACHINE}]",
            "give either clusters, or brokers",
        ),
    ],
)
def test_wrong_clusters_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        parse_scenario(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('kind = "study"\nbase = 1\nparameter = "x"\n[grid]', "base: expected a text, not a whole number"),
        ("base =", "Invalid value"),
        ('kind = "study"\nbase = "stock-small"\nparameter = "x"\n[grid]', "at least one key"),
        (
            'kind = "study"\nbase = "nothing"\nparameter = "x"\n[grid]\nseed = [1]',
            "base: nothing: neither a file",
        ),
        (
            'kind = "study"\nbase = "stock-small"\nparameter = "x"\n[grid]\nseed = [1]\nduration_s = [1, 2]',
            "duration_s: 2 values where seed has 1",
        ),
        (
            f'kind = "study"\nbase = "stock-small"\nparameter = "x"\n[grid]\nseed = [1]\n{FIGURE}',
            "no metric y; expected one of converged_at_s",
        ),
    ],
)
def test_wrong_studies_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        study_of(parse_document(text, "my.toml"))


def test_a_file_is_a_study_if_it_says_so(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('kind = "study"\nbase = "stock-small"\nparameter = "seconds"\n[grid]\nduration_s = [1, 2]')
    study = find_study(str(file))
    assert study is not None
    assert (study.name, study.values) == ("mine", [1, 2])
    assert find_study("stock-small") is None
    file.write_text('base = "stock-small"\nparameter = "seconds"\n[grid]\nduration_s = [1, 2]')
    with pytest.raises(ScenarioError, match=r'mine\.toml:2: parameter: a study says kind = "study"'):
        find_study(str(file))


def test_the_base_of_a_study_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.toml").write_text('base = "figure-2-2"\nduration_s = 5.0')
    file = tmp_path / "study.toml"
    file.write_text('kind = "study"\nbase = "folder/mine.toml"\nparameter = "seconds"\n[grid]\nduration_s = [1, 2]')
    study = find_study(str(file))
    assert study is not None
    assert [scenario_at(study, point).duration_s for point in (0, 1)] == [1, 2]
    assert len(scenario_at(study, 0).broker) == 4
