"""Which matching engine is used: the compiled kernel where it is built, otherwise the one in Python."""

from __future__ import annotations

import os
from typing import Any, Final, Literal, TypeAlias, get_args

from trimtab.matching.index import FilterIndex
from trimtab.matching.python_index import PythonIndex

Engine: TypeAlias = Literal["auto", "kernel", "python"]
"""The names of the engines; "auto" takes the kernel if it is built."""

ENGINE_VARIABLE: Final = "TRIMTAB_ENGINE"
"""The environment variable that decides what "auto" means."""


class EngineError(RuntimeError):
    """An engine that is wanted and is not there; the message says which."""


def choose_engine(engine: Engine = "auto") -> Literal["kernel", "python"]:
    """The engine that a name stands for here.

    >>> choose_engine("python")
    'python'
    """
    wanted: str = engine
    if wanted == "auto":
        wanted = os.environ.get(ENGINE_VARIABLE, "auto")
    if wanted not in get_args(Engine):
        raise EngineError(f"unknown matching engine {wanted!r}; use auto, kernel or python")
    if wanted == "python":
        return "python"
    if kernel_is_built():
        return "kernel"
    if wanted == "kernel":
        raise EngineError("the compiled matching kernel is not built; use the engine python or auto")
    return "python"


def kernel_is_built() -> bool:
    """Whether the compiled kernel can be used here."""
    try:
        import trimtab.matching._kernel  # noqa: F401
    except ImportError:
        return False
    return True


def new_index(engine: Engine = "auto") -> FilterIndex[Any]:
    """An empty index of the wanted engine."""
    if choose_engine(engine) == "python":
        return PythonIndex()
    from trimtab.matching._kernel import Index

    return Index()
