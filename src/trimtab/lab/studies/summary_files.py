"""DIR/summary.json: what the runs of a study or grid showed, in one file that is there whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from trimtab.protocol.records import RecordsError
from trimtab.simulation.scenarios.kinds import KINDS, summary_type
from trimtab.simulation.scenarios.summary import GridSummary, Summary

SUMMARY_FILE: Final = "summary.json"

Kind = TypeVar("Kind", bound=msgspec.Struct)


def write_summary(summary: msgspec.Struct, folder: Path) -> None:
    """Write a folder's summary."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".{SUMMARY_FILE}.unfinished"
        unfinished.write_text(json.dumps(msgspec.to_builtins(summary), indent=2) + "\n", encoding="utf-8")
        unfinished.replace(folder / SUMMARY_FILE)
    except OSError as error:
        raise RecordsError(f"{folder}: cannot be written: {error.strerror or error}") from None


def read_summary(folder: Path, kind: type[Kind], mark: str) -> Kind | None:
    """A folder's summary of one kind, which has a field that others have not; None if there is none of this kind."""
    path = folder / SUMMARY_FILE
    try:
        data: Any = msgspec.json.decode(path.read_bytes())
        return msgspec.convert(data, kind) if isinstance(data, dict) and mark in data else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordsError(f"{path}: cannot be read: {error.strerror or error}") from None
    except msgspec.MsgspecError as error:
        raise RecordsError(f"{path}: {error}") from None


def read_runs(folder: Path) -> GridSummary | Summary[Any] | None:
    """What `sim run` left in a folder: a run or a grid, each run as its kind says; None if it is something else."""
    path = folder / SUMMARY_FILE
    try:
        data: Any = msgspec.json.decode(path.read_bytes())
        if not isinstance(data, dict) or data.get("kind") not in KINDS:
            return None
        kind = summary_type(data["kind"])
        if "varied" not in data:
            run: Summary[Any] = msgspec.convert(data, kind, str_keys=True)
            return run
        grid = msgspec.convert(data, GridSummary, str_keys=True)
        return msgspec.structs.replace(grid, runs=[msgspec.convert(run, kind, str_keys=True) for run in data["runs"]])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordsError(f"{path}: cannot be read: {error.strerror or error}") from None
    except msgspec.MsgspecError as error:
        raise RecordsError(f"{path}: {error}") from None
