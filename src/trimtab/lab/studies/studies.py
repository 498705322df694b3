"""What the laboratory runs: files that name scenarios, what varies in them, and so all runs of an experiment, as TOML.

    title = "My comparison"

    [[runs]]
    scenario = "relocation-clustered"       a scenario or study that `trimtab sim list` shows, or a file
    set = {duration_s = 640}                the same in every run
    vary = {policy = ["none", "pop"], spread = [1, 4]}      every combination is run

A scenario or study of the simulator can be run without such a file.
"""

from __future__ import annotations

import hashlib
import itertools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trimtab.simulation.coordination.scenario import find_coordination_text, parse_coordination
from trimtab.simulation.relocation.scenario import find_relocation_text, parse_relocation
from trimtab.simulation.replication.scenario import find_replication_text, parse_replication
from trimtab.simulation.scenarios.bundled import shipped_texts
from trimtab.simulation.scenarios.scenario import ScenarioError, read_scenario
from trimtab.simulation.scenarios.study import find_study, scenario_at


class RunsPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[runs]]`: a scenario, and what is replaced in it."""

    scenario: str
    set: dict[str, Any] = {}
    vary: dict[str, list[Any]] = {}


class LabStudy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the laboratory."""

    runs: list[RunsPart]
    title: str = ""
    name: str = ""


class Job(msgspec.Struct, frozen=True):
    """One run: everything that a worker must know, wherever it is."""

    study: str
    scenario: str
    settings: dict[str, str]
    """What is replaced in the scenario, as `--set` takes it."""
    seed: int
    point: int | None = None
    """The place in the grid of a study of the simulator."""

    @property
    def key(self) -> str:
        """A name for the run's files, the same whenever the same is run.

        >>> Job("mine", "stock-small", {"duration_s": "5"}, 1).key
        'stock-small-seed-1-81aa75e9'
        """
        said = msgspec.json.encode((self.scenario, sorted(self.settings.items()), self.seed, self.point))
        return f"{Path(self.scenario).stem}-seed-{self.seed}-{hashlib.blake2b(said, digest_size=4).hexdigest()}"

    @property
    def policy(self) -> str:
        """The policy that was chosen, empty for the scenario's own."""
        return self.settings.get("policy", "")

    def described(self) -> str:
        """The run in words.

        >>> Job("mine", "stock-small", {"policy": "none"}, 3).described()
        'stock-small, policy none, seed 3'
        """
        point = [] if self.point is None else [f"point {self.point + 1}"]
        said = [f"{name} {value}" for name, value in self.settings.items()]
        return ", ".join([self.scenario, *point, *said, f"seed {self.seed}"])


def shipped_lab_studies() -> dict[str, str]:
    """The studies that come with the package: their text by name.

    >>> "relocation" in shipped_lab_studies()
    True
    """
    return shipped_texts("trimtab.lab", "studies")


def read_lab_study(name_or_file: str) -> LabStudy:
    """A shipped study, a file, or a scenario or study of the simulator by itself."""
    shipped = shipped_lab_studies()
    if name_or_file in shipped:
        return parse_lab_study(shipped[name_or_file], name_or_file)
    path = Path(name_or_file)
    try:
        text = path.read_text(encoding="utf-8")
        if "runs" in tomllib.loads(text):
            return parse_lab_study(text, name_or_file)
    except (OSError, UnicodeError, tomllib.TOMLDecodeError):
        pass  # whoever reads it as a scenario says what is wrong
    return LabStudy([RunsPart(name_or_file)], name=path.stem)


def parse_lab_study(text: str, source: str) -> LabStudy:
    """Read a study's text.

    >>> parse_lab_study('[[runs]]\\nscenario = "stock-small"\\nvary = {policy = "none"}', "my.toml")
    Traceback (most recent call last):
    ...
    trimtab.simulation.scenarios.scenario.ScenarioError: my.toml: Expected `array`, got `str` - at `runs[0].vary[...]`
    """
    try:
        study = msgspec.convert(tomllib.loads(text), LabStudy)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ScenarioError(f"{source}: {str(error).replace('`$.', '`')}") from None
    return study if study.name else msgspec.structs.replace(study, name=Path(source).stem)


def jobs_of(study: LabStudy, seeds: Sequence[int], overrides: Mapping[str, str] | None = None) -> list[Job]:
    """All runs of a study; mistakes in any of them show here, before anything runs."""
    found: dict[str, Job] = {}
    for part in study.runs:
        settings = {key: _text(value) for key, value in part.set.items()}
        for chosen in itertools.product(*part.vary.values()):
            varied = dict(zip(part.vary, map(_text, chosen), strict=True))
            for job in _jobs(study.name, part.scenario, {**settings, **varied, **(overrides or {})}, seeds):
                found.setdefault(job.key, job)
    return list(found.values())


def _jobs(study: str, scenario: str, settings: dict[str, str], seeds: Sequence[int]) -> list[Job]:
    of_simulator = find_study(scenario)
    if of_simulator is not None:
        points = range(len(of_simulator.values))
        for point in points:
            scenario_at(of_simulator, point, settings)
        return [Job(study, scenario, settings, seed, point) for seed in seeds for point in points]
    varied: list[str] = []
    scenarios: Sequence[object] = ()
    if (text := find_relocation_text(scenario)) is not None:
        varied, scenarios = parse_relocation(text, scenario, settings)
    elif (text := find_replication_text(scenario)) is not None:
        varied, scenarios = parse_replication(text, scenario, settings)
    if scenarios:
        single = [{**settings, **{key: _text(getattr(each, key)) for key in varied}} for each in scenarios]
        return [Job(study, scenario, each, seed) for seed in seeds for each in single]
    if (text := find_coordination_text(scenario)) is not None:
        parse_coordination(text, scenario, settings)
    else:
        read_scenario(scenario, settings)
    return [Job(study, scenario, settings, seed) for seed in seeds]


def _text(value: object) -> str:
    """A value as `--set` takes it.

    >>> _text(True), _text(0.5), _text("none")
    ('true', '0.5', 'none')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)
