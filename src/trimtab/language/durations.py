"""Durations as people write them: 1.5s, 200ms, 2min."""

from __future__ import annotations

import re
from typing import Final

from trimtab.language.errors import LanguageError

DURATION_MAX_S: Final = 31_536_000.0
"""A year: longer than anybody waits for a publication."""

_UNITS_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_NOTATION: Final = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*")


def parse_duration_s(text: str) -> float:
    """The seconds that a text names: a number with us, ms, s, min or h.

    >>> parse_duration_s("1.5s"), parse_duration_s("200 ms"), parse_duration_s("2min")
    (1.5, 0.2, 120.0)
    >>> parse_duration_s("soon")
    Traceback (most recent call last):
    ...
    trimtab.language.errors.LanguageError: 'soon' is not a duration: expected a number and us, ms, s, min or h (1.5s)
    """
    found = _NOTATION.fullmatch(text)
    if found is None or found.group(2) not in _UNITS_S:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise LanguageError(f"{shown!r} is not a duration: expected a number and us, ms, s, min or h (1.5s)") from None
    seconds = float(found.group(1)) * _UNITS_S[found.group(2)]
    if not 0 < seconds <= DURATION_MAX_S:
        raise LanguageError(f"a duration is above 0 and at most a year, not {text.strip()}")
    return seconds
