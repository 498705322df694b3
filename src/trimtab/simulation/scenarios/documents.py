"""Scenario and study files as documents: what one says, on which other it is based, and where a mistake stands.

Every file says its `kind`; what the kinds are is in `kinds`. `base = "NAME"` takes all that a file does not say from
another one: a bundled one by name, or a file whose path is relative to the file that names it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from trimtab.policies.registry import PolicyChoice, read_policy, refuse_former_places
from trimtab.policies.settings import SettingsError, line_of, wrong_value

MESSAGES: Final = "messages"
"""The kind of a file that names none."""

Part = TypeVar("Part", bound=msgspec.Struct)


class ScenarioError(ValueError):
    """A scenario that cannot be run; the message names the file, the line where possible, and what is wrong."""


class Document:
    """What a file says, what it is based on included, and where each key stands."""

    def __init__(self, source: str, text: str, data: dict[str, Any], folder: Path) -> None:
        self.source = source
        self.data = data
        self.folder = folder
        """Where the paths in it begin."""
        self._lines = text.splitlines()

    @property
    def kind(self) -> str:
        """The kind of scenario."""
        return str(self.data.get("kind", MESSAGES))

    def error(self, key: str, reason: str) -> ScenarioError:
        """What is wrong with a key, with its line."""
        line = line_of(self._lines, key.split("."))
        return ScenarioError(f"{self.source}{f':{line}' if line else ''}: {key + ': ' if key else ''}{reason}")

    def read(
        self, data: dict[str, Any], kind: type[Part], policy_of: Callable[[object], PolicyChoice] = read_policy
    ) -> Part:
        """Tables as a scenario of a kind; the data are those of this document, with other values here and there."""
        try:
            refuse_former_places(data)
            if "policy" in data:
                data = {**data, "policy": msgspec.to_builtins(policy_of(data["policy"]))}
            return msgspec.convert(data, kind)
        except SettingsError as error:
            raise self.error(error.key, error.reason) from None
        except (msgspec.ValidationError, ValueError) as error:
            raise self.error(*wrong_value(error, kind)) from None


def check_ranges(scenario: msgspec.Struct, *ranges: tuple[str, float, float]) -> None:
    """Raise a ValueError if a key is not between its least and its largest value."""
    for name, least, most in ranges:
        value = getattr(scenario, name)
        if not least <= value <= most:
            raise ValueError(f"{name} {value} is not between {least:,} and {most:,}")


def bundled_texts(package: str, folder: str) -> dict[str, str]:
    """The texts in a folder of a package by name, in the order of the names.

    >>> "figure-2-2" in bundled_texts("trimtab.simulation", "scenarios")
    True
    """
    found = [each for each in (resources.files(package) / folder).iterdir() if each.name.endswith(".toml")]
    return dict(sorted((each.name.removesuffix(".toml"), each.read_text("utf-8")) for each in found))


def bundled_documents() -> dict[str, Document]:
    """The scenarios and studies that are bundled, by name."""
    return {name: parse_document(text, name) for name, text in bundled_texts("trimtab.simulation", "scenarios").items()}


def find_document(name_or_file: str, folder: Path | None = None) -> Document:
    """A bundled file by name, or a file; a path is relative to the folder.

    >>> find_document("relocation-random").kind
    'relocation'
    """
    bundled = bundled_texts("trimtab.simulation", "scenarios")
    if name_or_file in bundled:
        return parse_document(bundled[name_or_file], name_or_file)
    path = (folder or Path()) / name_or_file
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        known = ", ".join(bundled)
        raise ScenarioError(f"{name_or_file}: neither a file nor a bundled scenario ({known})") from None
    except (OSError, UnicodeError) as error:
        raise ScenarioError(f"{name_or_file}: {error}") from None
    return parse_document(text, str(path), path.parent)


def parse_document(text: str, source: str = "scenario", folder: Path | None = None) -> Document:
    """A text as a document."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))
        line = int(place.group(1)) if place else max(1, len(text.splitlines()))
        raise ScenarioError(f"{source}:{line}: not TOML: {error}") from None
    document = Document(source, text, data, folder or Path())
    data.setdefault("name", Path(source).stem)
    if "parameter" in data and "kind" not in data:
        raise document.error("parameter", 'a study says kind = "study"')
    if "base" in data and document.kind != "study":
        document.data = _on_its_base(document)
    return document


def _on_its_base(document: Document) -> dict[str, Any]:
    """What a scenario says, and for the rest what the one says that it is based on."""
    data = dict(document.data)
    try:
        below = dict(find_document(str(data.pop("base")), document.folder).data)
    except ScenarioError as error:
        raise document.error("base", str(error)) from None
    for key, value in data.items():
        is_table = isinstance(value, dict) and isinstance(below.get(key), dict)
        below[key] = {**below[key], **value} if is_table else value
    return below


# ---- values that replace others ----


def value_of(text: str) -> Any:
    """What a text on the command line means: a value of TOML, otherwise the text itself.

    >>> value_of("10"), value_of("gsh")
    (10, 'gsh')
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def values_of(text: str) -> list[Any]:
    """The values of a text on the command line, of which several stand between commas.

    >>> values_of("pop,none"), values_of("[0, 10]"), values_of("1,2")
    (['pop', 'none'], [[0, 10]], [1, 2])
    """
    whole = value_of(text)
    return [value_of(each.strip()) for each in text.split(",")] if whole == text else [whole]


def replace_value(data: dict[str, Any], key: str, value: Any) -> None:
    """Put a value where a key with dots says (`broker.0.cpu_mhz`); `policy` is short for `policy.name`."""
    if key == "policy" and not isinstance(value, dict):
        key = "policy.name"
    place: Any = data
    *path, last = key.split(".")
    for part in path:
        if isinstance(place, list):
            if not part.isdigit() or int(part) >= len(place):
                raise ScenarioError(f"{key}: there is no number {part}")
            place = place[int(part)]
        elif isinstance(place, dict):
            place = place.setdefault(part, {})
        else:
            raise ScenarioError(f"{key}: {part} is inside something that has no parts")
    if not isinstance(place, dict):
        raise ScenarioError(f"{key}: the last part must be the name of a value")
    place[last] = value


def with_values(data: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of tables in which values are replaced by key."""
    copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(data))
    for key, value in values.items():
        replace_value(copy, key, value)
    return copy
