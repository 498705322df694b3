"""Transcripts: what a machine is told and what it does, as text files for people; a test plays them.

    # asked: End of the old broker          the row of the machine's table that the file shows
    == Remarks                              a part; each begins with a new machine
    given a subscriber s at B1              happens before; what comes of it is not shown
    > from B1: End stay 2                   happens
        effect: Moved B2                    what comes of it: effects, then messages
        to B2: Unsubscribe s/s1

A message is its name and its fields, without those that are as usual. Every filter is `n > 0`. Causes, sessions, times
and what links say to each other (numbers, acknowledgements) are left out. What is sent arrives and is done at once.

With REWRITE_TRANSCRIPTS=1 in the environment the indented lines are written anew; read what has changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from difflib import unified_diff
from pathlib import Path
from typing import Final, Protocol, get_args

import msgspec

from trimtab.language import Filter
from trimtab.protocol.frames import Payload, Sendable
from trimtab.protocol.messages import AnyMessage, ClientRecord, KnownAdvertisement, KnownSubscription, is_control

ANY: Final = Filter.parse("n > 0")
_UNNAMED: Final = ("id", "client", "publisher", "broker", "peer", "names", "about")
"""Fields that are told without their names."""
_USUAL: Final = {"cause": "", "session": "1", "filter": ANY, "values": {"n": 1}, "origin_s": 0.0}
"""Fields that are not told, with what they are in messages that a file tells."""
_UNTOLD: Final = (*_USUAL, "hops", "wire", "address", "addresses", "within_s", "waited_s", "publication", "delay_s")
_KINDS: Final = {kind.__name__: kind for kind in get_args(AnyMessage)}


class Machine(Protocol):
    """A role under test."""

    def happens(self, text: str) -> list[str]:
        """Something happens; what comes of it, a line each."""
        ...


# ---- files ----


def play(text: str, new_machine: Callable[[], Machine]) -> str:
    """A transcript as it is when its events happen."""
    played: list[str] = []
    machine = new_machine()
    for line in text.splitlines():
        if line.startswith("    "):
            continue
        played.append(line)
        if line.startswith("=="):
            machine = new_machine()
        elif line.startswith("given "):
            machine.happens(line.removeprefix("given "))
        elif line.startswith("> "):
            played += [f"    {each}" for each in machine.happens(line.removeprefix("> ")) or ["(nothing)"]]
    return "\n".join(played) + "\n"


def check(file: Path, new_machine: Callable[[], Machine]) -> None:
    """A transcript tells what happens."""
    told = file.read_text(encoding="utf-8")
    played = play(told, new_machine)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        file.write_text(played, encoding="utf-8")
        return
    difference = unified_diff(told.splitlines(), played.splitlines(), "the file", "what happens", lineterm="", n=20)
    assert told == played, "\n".join(["", *difference])


def row_of(file: Path) -> str:
    """The row that a transcript shows."""
    return file.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def table_in(text: str, first: str, starts: tuple[int, int, int]) -> list[tuple[str, str]]:
    """The first two columns of a table, line by line, from a line that begins with `first` to an empty one.

    >>> table_in("Text\\n\\none    two  three\\n       2    3\\n\\nText", "one", (0, 7, 12))
    [('one', 'two'), ('', '2')]
    """
    begin, middle, end = starts
    lines = text.splitlines()
    lines = lines[next(place for place, line in enumerate(lines) if line[begin:].startswith(first)) :]
    length = next((place for place, line in enumerate(lines) if not line.strip()), len(lines))
    return [(line[begin:middle].strip(), line[middle:end].strip()) for line in lines[:length]]


# ---- messages ----


def tell(said: msgspec.Struct) -> str:
    """A message or an effect as text.

    >>> from trimtab.protocol.messages import Handover, Confirmed
    >>> tell(Handover(client="s", session="1", stay=2, old_broker="B1", new_broker="B2", publishes=True))
    'Handover s, stay 2, old broker B1, new broker B2, publishes'
    >>> tell(read("ClientRecords version 3, records (s, stay 1, subscriptions s/s1 s/s2) (t, stay 4)"))
    'ClientRecords version 3, records (s, stay 1, subscriptions s/s1 s/s2) (t, stay 4)'
    """
    return f"{type(said).__name__} {', '.join(_told_fields(said))}".strip()


def _told_fields(said: msgspec.Struct) -> list[str]:
    fields = [each for each in msgspec.structs.fields(said) if each.name not in _UNTOLD]
    if type(said).__name__ == "Deliver":
        fields = [each for each in fields if each.name in ("publisher", "sequence")]
    fields.sort(key=lambda each: each.name not in _UNNAMED)
    told = [(each.name, getattr(said, each.name)) for each in fields if getattr(said, each.name) != each.default]
    return [_told_field(name, value) for name, value in told if value != ()]


def _told_field(name: str, value: object) -> str:
    label = "" if name in _UNNAMED else _label(name)
    if value is True:
        return label
    return f"{label} {' '.join(map(_told_value, value)) if isinstance(value, tuple) else _told_value(value)}".strip()


def _told_value(value: object) -> str:
    if isinstance(value, KnownSubscription | KnownAdvertisement):
        return value.id
    return f"({', '.join(_told_fields(value))})" if isinstance(value, msgspec.Struct) else str(value)


def read(text: str) -> AnyMessage:
    """The message that a text tells."""
    kind, _, rest = text.partition(" ")
    message: AnyMessage = _KINDS[kind](**_read_fields(_KINDS[kind], rest))
    return message


def _read_fields(kind: type[msgspec.Struct], text: str) -> dict[str, object]:
    types = {each.name: each.type for each in msgspec.structs.fields(kind)}
    given: dict[str, object] = {name: value for name, value in _USUAL.items() if name in types}
    for part in re.findall(r"(?:\([^)]*\)|[^,(])+", text):
        part = part.strip()
        name = next((name for name in types if f"{part} ".startswith(f"{_label(name)} ")), "")
        value = part.removeprefix(_label(name)).strip()
        name = name or next(name for name in types if name in _UNNAMED)
        given[name] = _read_field(name, types[name], value)
    return given


def _read_field(name: str, type: object, value: str) -> object:
    if type is int:
        return int(value)
    if type is bool:
        return True
    if name == "subscriptions":
        return tuple(KnownSubscription(id, ANY) for id in value.split())
    if name == "advertisements":
        return tuple(KnownAdvertisement(id, ANY) for id in value.split())
    if name == "records":
        return tuple(ClientRecord(**_read_fields(ClientRecord, each)) for each in re.findall(r"\(([^)]*)\)", value))  # type: ignore[arg-type]
    return tuple(value.split()) if name == "names" else value


def _label(name: str) -> str:
    """What a field is called in a text."""
    return name.removeprefix("is_").replace("_", " ")


# ---- the other end of a link ----


class OtherEnd:
    """A peer of the machine, as far as its link is concerned: what it is told it has done at once."""

    def __init__(self, incarnation: int = 1) -> None:
        self.incarnation = incarnation
        self.sent_count = 0
        self.seen_count = 0
        self.done_count = 0

    def says(self, message: AnyMessage) -> Payload:
        """It says something."""
        self.sent_count += 1
        return Payload(self.sent_count, self.seen_count, [message], self.done_count, self.done_count)

    def hears(self, messages: Iterable[Sendable]) -> list[str]:
        """It is told something."""
        told: list[str] = []
        for message in messages:
            assert not isinstance(message, bytes), "nothing is encoded here"
            told.append(tell(message))
            self.seen_count += 1
            self.done_count += not is_control(message)
        return told
