"""Policies that users write in files of their own, named `FILE.py:CLASS`.

The class is called with a source of random numbers, for each broker a new one, and with what `[policy.CLASS]` says. Its
objects are agents (`trimtab.policies.api.Agent`): they have a `name` and `observes`, and `start`, `handle`, `matched`
and `wake_at_s`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import Any, Final

from trimtab.policies.api import Agent
from trimtab.policies.settings import SettingsError

_MARK: Final = ".py:"
_PARTS: Final = ("name", "observes", "start", "handle", "matched", "wake_at_s")


def is_own(policy: str) -> bool:
    """Whether a policy's name is that of a file.

    >>> is_own("my_policy.py:MyPolicy"), is_own("padres")
    (True, False)
    """
    return _MARK in policy


def table_of(policy: str) -> str:
    """The table of `[policy]` with its settings.

    >>> table_of("my_policy.py:MyPolicy")
    'MyPolicy'
    """
    return policy.rpartition(":")[2]


def own_policy(policy: str, settings: Mapping[str, Any]) -> Callable[[Random], Agent]:
    """What makes the agents of a policy with these settings; a SettingsError says what is wrong with either."""
    made = partial(_class_of(policy), **settings)
    file = policy.rpartition(":")[0]
    try:
        agent = made(Random(0))
    except Exception as error:  # whatever the user's file does
        with_them = f" with {', '.join(settings)}" if settings else ""
        reason = f"{file} cannot be used{with_them}: {type(error).__name__}: {error}"
        raise SettingsError(f"policy.{table_of(policy)}" if settings else "policy", reason) from None
    missing = [part for part in _PARTS if not hasattr(agent, part)]
    if missing:
        raise SettingsError("policy", f"{policy} is no agent: it has no {', '.join(missing)} (docs/own-policies.md)")
    return made


@lru_cache
def _class_of(policy: str) -> Callable[..., Agent]:
    """The class in the file."""
    file, _, name = policy.rpartition(":")
    path = Path(file)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SettingsError("policy", f"there is no file {file}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        found: Callable[..., Agent] = getattr(module, name)
    except AttributeError as error:
        raise SettingsError("policy", f"{file}: {error}") from None
    except Exception as error:  # whatever the user's file does
        raise SettingsError("policy", f"{file} cannot be used: {type(error).__name__}: {error}") from None
    return found
