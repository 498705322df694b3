"""Which policies there are, how one is chosen and set in a file, and which agents it gives a broker.

    [policy]
    name = "padres+grape-load75"    # one that moves subscribers, one that moves publishers, or both with a plus

    [policy.padres]                 # the policy's own settings
    local_pie_period_s = 5

A policy that a user has written is named by its file, `my_policy.py:MyPolicy`; `[policy.MyPolicy]` holds what its class
is called with. One more bundled policy takes a package with a module that has `agent_of`, and a line in `_BUNDLED`.
Agents are loaded when they are wanted, for a replica without any should begin soon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, Literal, TypeVar

import msgspec

from trimtab.policies.api import Agent, AgentPlace
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.multistage.config import CoordinatorConfig
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.relocation.config import RelocationConfig, relocation_of
from trimtab.policies.settings import SettingsError, read_settings
from trimtab.policies.user_policies import is_own, own_policy, table_of

Config = TypeVar("Config", bound=msgspec.Struct)


class _Bundled(msgspec.Struct, frozen=True):
    """A policy that comes with the package."""

    moves: Literal["subscribers", "publishers"]
    module: str
    """Where its `agent_of` is, below `trimtab.policies`; empty for the policy that does nothing."""
    config: type[msgspec.Struct]
    tables: tuple[str, ...]
    """The tables of `[policy]` that set it; a later one counts more."""


_BUNDLED: Final = {
    "none": _Bundled("subscribers", "", PadresConfig, ("padres",)),
    "naive": _Bundled("subscribers", "naive.agent", PadresConfig, ("padres", "naive")),
    "padres": _Bundled("subscribers", "padres.agent", PadresConfig, ("padres",)),
    "padres-fast": _Bundled("subscribers", "padres_fast.head", PadresConfig, ("padres", "padres-fast")),
    "delay": _Bundled("subscribers", "delay.agent", DelayConfig, ("delay",)),
    "coordinated": _Bundled("subscribers", "multistage.coordinated_agent", CoordinatorConfig, ("coordinated",)),
    "connection-counts": _Bundled("subscribers", "rivals.agent", PadresConfig, ("padres", "connection-counts")),
    "average-shedding": _Bundled("subscribers", "rivals.agent", PadresConfig, ("padres", "average-shedding")),
    "threshold-shedding": _Bundled("subscribers", "rivals.agent", PadresConfig, ("padres", "threshold-shedding")),
    "filter-hashing": _Bundled("subscribers", "rivals.agent", PadresConfig, ("padres", "filter-hashing")),
    "grape-subscribers": _Bundled(
        "subscribers", "relocation.subscriber_agent", RelocationConfig, ("relocation", "grape-subscribers")
    ),
    "pop": _Bundled("publishers", "relocation.agent", RelocationConfig, ("relocation", "pop")),
    "grape": _Bundled("publishers", "relocation.agent", RelocationConfig, ("relocation", "grape")),
    "grape-joint": _Bundled("publishers", "relocation.agent", RelocationConfig, ("relocation", "grape-joint")),
}
"""none: clients stay where they are; naive: random clients to a random broker that is less loaded; padres: the thesis's
balancing; padres-fast: a plan for all brokers at once; delay: by latency requirements; coordinated: a coordination
server tells who moves; grape-subscribers: subscribers go towards their publishers; pop and the other GRAPE: publishers
move, by a priority and a weight (`grape-load75`); the rest are what other systems do (`trimtab.policies.rivals`)."""

_EXAMPLES: Final = ", ".join(_BUNDLED).replace("grape,", "grape-load100, grape-delay100,")

_FORMER_PLACES: Final = {name: f"policy.{name}" for name in ("padres", "delay", "relocation")} | {
    "coordination": "policy.coordinated"
}


class PolicyChoice(msgspec.Struct, frozen=True):
    """The section `[policy]` of a file.

    >>> choice = PolicyChoice("padres-fast", {"padres": {"press_sample_count": 9}})
    >>> choice.config(PadresConfig).press_sample_count
    9
    """

    name: str = "none"
    settings: dict[str, dict[str, Any]] = {}
    """The tables `[policy.NAME]` as they stand."""

    @classmethod
    def of(cls, name: str = "none", **settings: msgspec.Struct) -> PolicyChoice:
        """A policy with the settings of these tables.

        >>> PolicyChoice.of("padres", padres=PadresConfig()).config(PadresConfig) == PadresConfig()
        True
        """
        return cls(name, {table: msgspec.to_builtins(config) for table, config in settings.items()})

    @property
    def parts(self) -> list[str]:
        """The policies that the name names.

        >>> PolicyChoice("padres+pop").parts
        ['padres', 'pop']
        """
        return [self.name] if is_own(self.name) else self.name.split("+")

    def named(self, name: str) -> PolicyChoice:
        """Another policy with the same tables."""
        return PolicyChoice(name, self.settings)

    def config(self, kind: type[Config], policy: str = "") -> Config:
        """The settings of one kind: of a policy by name, or of the chosen one or the first that has such settings."""
        names = [policy] if policy else [*self.parts, *_BUNDLED]
        tables = next(found.tables for name in names if (found := _bundled(name)) and found.config is kind)
        merged = {key: value for table in tables for key, value in self.settings.get(table, {}).items()}
        return read_settings(merged, kind, f"policy.{tables[-1]}")

    def check(self) -> PolicyChoice:
        """Raise a SettingsError if there is no such policy, or a table is none of a policy, or a value is wrong."""
        check_policy(self.name, self.settings)
        own = table_of(self.name) if is_own(self.name) else None
        kinds = policy_tables()
        for table, values in self.settings.items():
            if table in kinds:
                read_settings(values, kinds[table], f"policy.{table}")
            elif table != own:
                known = ", ".join([*kinds, *([own] if own else [])])
                raise SettingsError(f"policy.{table}", f"no policy has a table {table}; expected one of {known}")
        for part in self.parts:
            if found := _bundled(part):
                self.config(found.config, part)
        return self


def policy_tables() -> dict[str, type[msgspec.Struct]]:
    """The tables of `[policy]`, and the settings that each holds.

    >>> policy_tables()["padres-fast"].__name__
    'PadresConfig'
    """
    return {table: found.config for found in _BUNDLED.values() for table in found.tables}


def read_policy(section: object) -> PolicyChoice:
    """The choice in a section `[policy]`, checked; raises a SettingsError.

    >>> read_policy({"name": "padres", "padres": {"press_sample_count": 9}}).settings
    {'padres': {'press_sample_count': 9}}
    >>> read_policy("padres")
    Traceback (most recent call last):
    ...
    trimtab.policies.settings.SettingsError: policy: a policy is chosen by a section [policy] with name = "padres"
    """
    return policy_section(section).check()


def policy_section(section: object) -> PolicyChoice:
    """The name and the tables in a section `[policy]`, whether they are those of a policy or not."""
    if not isinstance(section, dict):
        raise SettingsError("policy", f'a policy is chosen by a section [policy] with name = "{section}"')
    name = section.get("name", "none")
    if not isinstance(name, str):
        raise SettingsError("policy.name", "expected a text in quotes")
    settings = {key: value for key, value in section.items() if key != "name"}
    for key, value in settings.items():
        if not isinstance(value, dict):
            raise SettingsError(f"policy.{key}", f"expected name, or a section [policy.{key}] with settings")
    return PolicyChoice(name, settings)


def refuse_former_places(data: Mapping[str, object], plain_in: str = "") -> None:
    """Raise a SettingsError that names the new place of what stood elsewhere in a file before.

    >>> refuse_former_places({"padres": {}})
    Traceback (most recent call last):
    ...
    trimtab.policies.settings.SettingsError: padres: the settings of this policy belong into a section [policy.padres]
    """
    for section, place in _FORMER_PLACES.items():
        if section in data:
            raise SettingsError(section, f"the settings of this policy belong into a section [{place}]")
    options = data.get(plain_in)
    if isinstance(options, dict) and "policy" in options:
        reason = f'a policy is chosen by a section [policy] with name = "{options["policy"]}"'
        raise SettingsError(f"{plain_in}.policy", reason)


def check_policy(policy: str, settings: Mapping[str, dict[str, Any]] | None = None) -> None:
    """Raise a SettingsError that says what was expected if there is no such policy.

    >>> check_policy("padres+grape-load75")
    >>> check_policy("grape-load101")
    Traceback (most recent call last):
    ...
    trimtab.policies.settings.SettingsError: policy: no policy is called grape-load101; expected one of none, naive, \
padres, padres-fast, delay, coordinated, connection-counts, average-shedding, threshold-shedding, filter-hashing, \
grape-subscribers, pop, grape-load100, grape-delay100, grape-joint (or another weight), or one of each kind with a plus
    """
    if is_own(policy):
        own_policy(policy, (settings or {}).get(table_of(policy), {}))
        return
    parts = policy.split("+")
    found = [_bundled(part) for part in parts]
    moved = [each.moves for each in found if each is not None]
    if None in found or len(set(moved)) != len(moved):
        unknown = next((part for part, each in zip(parts, found, strict=True) if each is None), "")
        problem = f"no policy is called {unknown}" if unknown else f"{policy} moves {moved[0]} twice"
        raise SettingsError(
            "policy",
            f"{problem}; expected one of {_EXAMPLES} (or another weight), or one of each kind with a plus",
        )


def objection_to_change(policy: str, other: str) -> str:
    """Why a broker that works by a policy cannot work by another from now on, empty if it can.

    Files are named by whoever starts a broker, and not by whoever can reach it.

    >>> objection_to_change("none", "padres"), objection_to_change("none", "my_policy.py:MyPolicy")
    ('', 'a policy in a file is named in the network file, before brokers start')
    """
    if is_own(other):
        return "a policy in a file is named in the network file, before brokers start"
    if "coordinated" in (*policy.split("+"), *other.split("+")):
        return "a network is coordinated from its beginning, or it is not"
    check_policy(other)
    return ""


def agents_of(
    policy: PolicyChoice | str, broker: str, seed: int | str, site: tuple[float, float] | None = None
) -> list[Agent]:
    """The agents of one broker; random choices come from the seed and the broker's name.

    >>> [agent.name for agent in agents_of("padres+grape-load75", "B1", 1)]
    ['padres', 'grape']
    """
    choice = PolicyChoice(policy) if isinstance(policy, str) else policy
    check_policy(choice.name, choice.settings)
    agents: list[Agent] = []
    for part in choice.parts:
        place = AgentPlace(part, broker, seed, site)
        found = _bundled(part)
        if found is None:
            agents.append(own_policy(part, choice.settings.get(table_of(part), {}))(place.rng(part)))
        elif found.module:
            agent_of: Callable[[msgspec.Struct, AgentPlace], Agent]
            agent_of = import_module(f"trimtab.policies.{found.module}").agent_of
            agents.append(agent_of(choice.config(found.config, part), place))
    return agents


def _bundled(name: str) -> _Bundled | None:
    """A policy by name, GRAPE's priority and weight included; None if there is none."""
    relocation = relocation_of(name)
    return _BUNDLED.get(name if relocation is None else relocation.algorithm)
