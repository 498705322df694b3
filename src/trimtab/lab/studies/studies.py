"""What the laboratory runs: files that name scenarios, what varies in them, and so all runs of an experiment, as TOML.

    title = "My comparison"

    [[runs]]
    scenario = "relocation-clustered"       one that `trimtab sim list` shows, or a file beside this one
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

from trimtab.simulation.scenarios.documents import ScenarioError, bundled_texts
from trimtab.simulation.scenarios.kinds import load
from trimtab.simulation.scenarios.study import find_study, scenario_at


class RunsPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[runs]]`: a scenario, and what is replaced in it."""

    scenario: str
    """One that `trimtab sim list` shows, or a file beside this one."""
    set: dict[str, Any] = {}
    """Values of its keys, the same in every run."""
    vary: dict[str, list[Any]] = {}
    """Lists of values; every combination is run."""


class LabStudy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the laboratory."""

    runs: list[RunsPart]
    """What is run."""
    title: str = ""
    """For people."""
    name: str = ""
    """What it is called; the name of the file where it is missing."""


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


def bundled_lab_studies() -> dict[str, str]:
    """The bundled studies: their text by name.

    >>> "relocation" in bundled_lab_studies()
    True
    """
    return bundled_texts("trimtab.lab", "studies")


def read_lab_study(name_or_file: str) -> LabStudy:
    """A bundled study, a file, or a scenario or study of the simulator by itself."""
    bundled = bundled_lab_studies()
    if name_or_file in bundled:
        return parse_lab_study(bundled[name_or_file], name_or_file)
    path = Path(name_or_file)
    try:
        text = path.read_text(encoding="utf-8")
        if "runs" in tomllib.loads(text):
            return parse_lab_study(text, name_or_file, path.parent)
    except (OSError, UnicodeError, tomllib.TOMLDecodeError):
        pass  # whoever reads it as a scenario says what is wrong
    return LabStudy([RunsPart(name_or_file)], name=path.stem)


def parse_lab_study(text: str, source: str, folder: Path | None = None) -> LabStudy:
    """Read a study's text; scenarios that are files are named relative to its folder.

    >>> parse_lab_study('[[runs]]\\nscenario = "stock-small"\\nvary = {policy = "none"}', "my.toml")
    Traceback (most recent call last):
    ...
    trimtab.simulation.scenarios.documents.ScenarioError: my.toml: Expected `array`, got `str` - at `runs[0].vary[...]`
    """
    try:
        study = msgspec.convert(tomllib.loads(text), LabStudy)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ScenarioError(f"{source}: {str(error).replace('`$.', '`')}") from None
    runs = [_beside(part, folder) for part in study.runs]
    return msgspec.structs.replace(study, runs=runs, name=study.name or Path(source).stem)


def _beside(part: RunsPart, folder: Path | None) -> RunsPart:
    is_file = folder is not None and part.scenario.endswith(".toml")
    return msgspec.structs.replace(part, scenario=str((folder or Path()) / part.scenario)) if is_file else part


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
    grid = load(scenario, settings).points
    single = [{**settings, **{key: _text(value) for key, value in each.values.items()}} for each in grid]
    return [Job(study, scenario, each, seed) for seed in seeds for each in single]


def _text(value: object) -> str:
    """A value as `--set` takes it.

    >>> _text(True), _text(0.5), _text("none")
    ('true', '0.5', 'none')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)
