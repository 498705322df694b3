"""What a plan changes before it goes on: brokers that are gone, other traffic, other machines, other settings.

Each change is a text KEY=VALUE; a wrong one is refused with what would be right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from trimtab.operations.plan.present import BrokerPresent, Present
from trimtab.policies.registry import PolicyChoice
from trimtab.policies.settings import SettingsError
from trimtab.simulation.scenarios.documents import value_of

NAMES_SHOWN_MAX_COUNT: Final = 20
"""So many names are listed where one is not known."""

EXPECTED: Final = (
    "broker.NAME=gone, cpu.NAME=MHZ, bandwidth.NAME=MBPS, traffic=FACTOR, traffic.PUBLISHER=FACTOR, "
    "client.NAME=BROKER or policy.NAME.SETTING=VALUE"
)


class ChangeError(ValueError):
    """A change that cannot be made; the message says which and what was expected."""


def gone_brokers(changes: Sequence[str]) -> list[str]:
    """The brokers that changes take away.

    >>> gone_brokers(["traffic=2", "broker.B3=gone"])
    ['B3']
    """
    return [key.removeprefix("broker.") for key, value in map(_parts, changes) if value == "gone"]


def changed(present: Present, changes: Sequence[str]) -> tuple[Present, list[str]]:
    """The present with these changes, and what they mean in words; all settings of policies are checked together."""
    told: list[str] = []
    settings: dict[str, str] = {}
    for change in changes:
        key, value = _parts(change)
        kind, _, name = key.partition(".")
        if kind == "policy" and "." in name:
            settings[name] = value
            continue
        if kind not in _MAKERS or (kind != "traffic" and not name):
            raise ChangeError(f"--set {change}: expected {EXPECTED}")
        try:
            present, words = _MAKERS[kind](present, name, value)
        except ChangeError as error:
            raise ChangeError(f"--set {change}: {error}") from None
        told.append(words)
    if settings:
        present = _with_settings(present, settings)
        for key, value in settings.items():
            table, _, setting = key.rpartition(".")
            told.append(f"[policy.{table}] {setting} = {value}")
    return present, told


def _parts(change: str) -> tuple[str, str]:
    key, separator, value = change.partition("=")
    if not separator or not value:
        raise ChangeError(f"--set {change}: expected {EXPECTED}")
    return key.strip(), value.strip()


def _without_broker(present: Present, name: str, value: str) -> tuple[Present, str]:
    """A broker is gone: its clients join the strongest of its neighbours, and so do its other neighbours."""
    broker = _known_broker(present, name)
    if value != "gone":
        raise ChangeError("a broker can only be gone")
    neighbours = present.neighbours_of(broker.name)
    if not neighbours:
        raise ChangeError(f"{name} has no neighbour that its clients could join")
    heir = max(neighbours, key=lambda each: (_strength(present.broker(each)), -neighbours.index(each)))
    moved = [each for each in present.clients if each.broker == name]
    links = [link for link in present.links if name not in link]
    rejoined = [each for each in neighbours if each != heir]
    links += [(heir, each) for each in rejoined]
    words = f"{name} is gone; its {len(moved):,} clients join {heir}"
    if rejoined:
        words += f", and {', '.join(rejoined)} {'is' if len(rejoined) == 1 else 'are'} linked to {heir}"
    return msgspec.structs.replace(
        present,
        brokers=tuple(each for each in present.brokers if each.name != name),
        links=tuple(links),
        clients=tuple(
            msgspec.structs.replace(each, broker=heir) if each.broker == name else each for each in present.clients
        ),
    ), words


def _strength(broker: BrokerPresent) -> tuple[float, float]:
    return broker.bandwidth_mbps or math.inf, broker.cpu_mhz or math.inf


def _with_cpu(present: Present, name: str, value: str) -> tuple[Present, str]:
    mhz = _positive(value, "a speed in MHz above 0")
    broker = _known_broker(present, name)
    was = f" instead of {broker.cpu_mhz:,.0f}" if broker.cpu_mhz else ""
    return _with_broker(present, msgspec.structs.replace(broker, cpu_mhz=mhz)), f"{name} has {mhz:g} MHz{was}"


def _with_bandwidth(present: Present, name: str, value: str) -> tuple[Present, str]:
    mbps = _positive(value, "a bandwidth in Mbps above 0")
    broker = _known_broker(present, name)
    was = f" instead of {broker.bandwidth_mbps:g}" if broker.bandwidth_mbps else ""
    return _with_broker(present, msgspec.structs.replace(broker, bandwidth_mbps=mbps)), f"{name} has {mbps:g} Mbps{was}"


def _with_broker(present: Present, broker: BrokerPresent) -> Present:
    brokers = tuple(broker if each.name == broker.name else each for each in present.brokers)
    return msgspec.structs.replace(present, brokers=brokers)


def _with_traffic(present: Present, name: str, value: str) -> tuple[Present, str]:
    factor = _positive(value, "a factor above 0")
    publishers = [each.name for each in present.clients if each.advertisements]
    if name and name not in publishers:
        raise ChangeError(_unknown("publisher", name, publishers))
    clients = tuple(
        msgspec.structs.replace(each, rate_per_s=each.rate_per_s * factor) if name in ("", each.name) else each
        for each in present.clients
    )
    return msgspec.structs.replace(present, clients=clients), f"traffic of {name or 'all publishers'} times {factor:g}"


def _with_client(present: Present, name: str, value: str) -> tuple[Present, str]:
    names = [each.name for each in present.clients]
    if name not in names:
        raise ChangeError(_unknown("client", name, names))
    broker = _known_broker(present, value)
    clients = tuple(
        msgspec.structs.replace(each, broker=broker.name) if each.name == name else each for each in present.clients
    )
    return msgspec.structs.replace(present, clients=clients), f"client {name} begins at {broker.name}"


_MAKERS: Final[Mapping[str, Callable[[Present, str, str], tuple[Present, str]]]] = {
    "broker": _without_broker,
    "cpu": _with_cpu,
    "bandwidth": _with_bandwidth,
    "traffic": _with_traffic,
    "client": _with_client,
}


def _with_settings(present: Present, values: Mapping[str, str]) -> Present:
    tables = {name: dict(table) for name, table in present.policy.settings.items()}
    for key, value in values.items():
        table, _, setting = key.rpartition(".")
        tables.setdefault(table, {})[setting] = value_of(value)
    try:
        choice = PolicyChoice(present.policy.name, tables).check()
    except SettingsError as error:
        said = " ".join(f"--set policy.{key}={value}" for key, value in values.items())
        raise ChangeError(f"{said}: {error.reason}") from None
    return msgspec.structs.replace(present, policy=choice)


def _known_broker(present: Present, name: str) -> BrokerPresent:
    try:
        return present.broker(name)
    except KeyError:
        raise ChangeError(_unknown("broker", name, [each.name for each in present.brokers])) from None


def _unknown(kind: str, name: str, known: Sequence[str]) -> str:
    if len(known) > NAMES_SHOWN_MAX_COUNT:
        similar = get_close_matches(name, known, 5, 0.5) or known[:5]
        return f"no {kind} is named {name}; of {len(known):,} the nearest are {', '.join(similar)}"
    return f"no {kind} is named {name}; there are {', '.join(known) or 'none'}"


def _positive(text: str, expected: str) -> float:
    value = value_of(text)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ChangeError(f"expected {expected}")
    return float(value)
