"""Options of the data source, checked with an error that says what is missing or wrong."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.activedata.errors import ActiveDataError


def needed(options: Mapping[str, str], name: str, example: str) -> str:
    """An option that must be there.

    >>> needed({}, "broker", "127.0.0.1:7001")
    Traceback (most recent call last):
    trimtab.activedata.errors.ActiveDataError: the option 'broker' is missing, for example 127.0.0.1:7001
    """
    value = options.get(name)
    if not value:
        raise ActiveDataError(f"the option {name!r} is missing, for example {example}")
    return value


def number(options: Mapping[str, str], name: str, default: float, least: float = 0.0) -> float:
    """An option that is a number."""
    text = options.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = least - 1
    if not least <= value < 1e18:
        raise ActiveDataError(f"the option {name!r} must be a number of at least {least:g}, and is {text!r}")
    return value
