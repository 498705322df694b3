"""Studies of the laboratory become runs; mistakes show before anything runs."""

from pathlib import Path

import pytest

from trimtab.lab.studies.any_run import run_job
from trimtab.lab.studies.studies import Job, bundled_lab_studies, jobs_of, parse_lab_study, read_lab_study
from trimtab.simulation.scenarios.documents import ScenarioError


@pytest.mark.parametrize("name", bundled_lab_studies())
def test_a_shipped_study_names_runs_that_exist(name: str) -> None:
    jobs = jobs_of(read_lab_study(name), [1, 2, 3])
    assert jobs
    assert len({job.key for job in jobs}) == len(jobs)
    assert {job.seed for job in jobs} == {1, 2, 3}


def test_every_combination_of_what_varies_is_run_once() -> None:
    text = """
        [[runs]]
        scenario = "relocation-clustered"
        set = {duration_s = 300}
        vary = {policy = ["none", "pop"], spread = [1, 4]}
        [[runs]]
        scenario = "relocation-clustered"
        set = {duration_s = 300, spread = 4, policy = "pop"}
        [[runs]]
        scenario = "padres-press-samples"
    """
    jobs = jobs_of(parse_lab_study(text, "mine.toml"), [7])
    relocation = [job.settings for job in jobs if job.scenario == "relocation-clustered"]
    assert [(each["policy"], each["spread"]) for each in relocation] == [
        ("none", "1"),
        ("none", "4"),
        ("pop", "1"),
        ("pop", "4"),
    ]
    assert [job.point for job in jobs if job.scenario == "padres-press-samples"] == list(range(7))
    assert {job.study for job in jobs} == {"mine"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("title = 3", "Expected `str`, got `int` - at `title`"),
        ('[[runs]]\nscenario = "nowhere"', "nowhere: neither a file nor a bundled scenario"),
        ('[[runs]]\nscenario = "bad-scale"\nvary = {policy = ["gsh", "best"]}', "policy: best is none of none, ldm"),
        ('[[runs]]\nscenario = "relocation-clustered"\nset = {spread = 100}', "spread 100 is not between 1 and 63"),
        ('[[runs]]\nscenario = "padres-local-pie"\nset = {duration = 100}', "duration"),
        ("[[runs]", "Expected"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(text: str, says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        jobs_of(parse_lab_study(text, "mine.toml"), [1])
    assert says in str(caught.value)


def test_a_scenario_is_a_study_by_itself(tmp_path: Path) -> None:
    (job,) = jobs_of(read_lab_study("stock-small"), [4], {"duration_s": "2"})
    assert (job.study, job.scenario, job.settings, job.seed) == ("stock-small", "stock-small", {"duration_s": "2"}, 4)
    path = tmp_path / "mine.toml"
    path.write_text('[[runs]]\nscenario = "figure-2-2"\n', encoding="utf-8")
    assert [job.described() for job in jobs_of(read_lab_study(str(path)), [1])] == ["figure-2-2, seed 1"]


def test_a_job_gives_its_numbers_and_a_failing_one_its_reason() -> None:
    good = run_job(Job("mine", "figure-2-2", {}, 1))
    assert good.error == ""
    assert good.metrics["deliveries"] > 0
    assert good.metrics["lost"] == 0
    replaced = run_job(Job("mine", "replication-pending", {"protocol": "basic", "pending_count": "100"}, 1))
    assert replaced.error == ""
    assert replaced.metrics["details.missing_ratio"] > 0, "which synchronous replication would not lose"
    bad = run_job(Job("mine", "stock-small", {"quotes": "nowhere.csv"}, 1))
    assert "nowhere.csv" in bad.error
    assert bad.metrics == {}
