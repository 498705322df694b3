"""Policies that users write in files of their own, named `FILE.py:CLASS`.

The class is called with a source of random numbers, for each broker a new one, and its objects are agents
(`trimtab.policies.api.Agent`): they have a `name` and `observes`, and `start`, `handle`, `matched` and `wake_at_s`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Final

from trimtab.policies.api import Agent

_MARK: Final = ".py:"
_PARTS: Final = ("name", "observes", "start", "handle", "matched", "wake_at_s")


def is_own(policy: str) -> bool:
    """Whether a policy's name is that of a file.

    >>> is_own("my_policy.py:MyPolicy"), is_own("padres")
    (True, False)
    """
    return _MARK in policy


@lru_cache
def own_policy(policy: str) -> Callable[[Random], Agent]:
    """The class in the file; a ValueError says what is wrong with either."""
    place, _, name = policy.rpartition(":")
    path = Path(place)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"policy: there is no file {place}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        made: Callable[[Random], Agent] = getattr(module, name)
        agent = made(Random(0))
    except AttributeError as error:
        raise ValueError(f"policy: {place}: {error}") from None
    except Exception as error:  # whatever the user's file does
        raise ValueError(f"policy: {place} cannot be used: {type(error).__name__}: {error}") from None
    missing = [part for part in _PARTS if not hasattr(agent, part)]
    if missing:
        raise ValueError(f"policy: {policy} is no agent: it has no {', '.join(missing)} (docs/own-policies.md)")
    return made
