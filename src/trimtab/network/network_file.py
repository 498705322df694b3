"""The network file: brokers, links and options as TOML. Errors name the file, the line and what was expected."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar, cast

import msgspec

from trimtab.broker.flow.rate_limits import RateLimitConfig
from trimtab.network.failover.replication_settings import BROKER_NAME, ReplicationSettings
from trimtab.network.links.address import Address
from trimtab.network.network_plan import (
    BYTES_PER_MEGABIT,
    MATCHING_S_MHZ_PER_SUBSCRIPTION,
    RETRANSMIT_AFTER_S,
    BrokerEntry,
    LinkEntry,
    NetworkOptions,
    NetworkPlan,
)
from trimtab.network.security.caller import default_to
from trimtab.network.security.settings import LimitSettings, SecuritySettings, is_loopback
from trimtab.network.server.back_end import checked_url
from trimtab.policies.registry import PolicyChoice, read_policy, refuse_former_places
from trimtab.policies.settings import Settings, SettingsError, line_of, read_settings
from trimtab.protocol.messages import VERSION, VERSION_MIN

__all__ = [
    "BYTES_PER_MEGABIT",
    "MATCHING_S_MHZ_PER_SUBSCRIPTION",
    "RETRANSMIT_AFTER_S",
    "BrokerEntry",
    "LinkEntry",
    "NetworkFileError",
    "NetworkOptions",
    "NetworkPlan",
    "commanded_network",
    "parse_network",
    "read_network_file",
]

_BROKER_KEYS: Final = (
    "name",
    "listen",
    "advertise",
    "cpu_mhz",
    "memory_mb",
    "bandwidth_mbps",
    "site",
    "wire_version_max",
)
_LINK_KEYS: Final = ("between", "via")
_STANDBY_KEYS: Final = ("listen",)
_SECTIONS: Final = (
    "broker",
    "link",
    "standby",
    "network",
    "policy",
    "replication",
    "protection",
    "security",
    "limits",
)


_RETIRED: Final = {
    "network": {"recovers_after_s": "what is on a disk goes on as soon as all routes are known"},
    "replication": {"clients_return_within_s": "a replica knows the clients of the broker before it"},
}
"""Keys by section that older files may have, and why they have no effect."""

Result = TypeVar("Result")

log = logging.getLogger("trimtab.network_file")


class NetworkFileError(ValueError):
    """A network file that cannot be used; the message names the file, the line and what was expected."""


def read_network_file(path: str | Path) -> NetworkPlan:
    """Read a network file; raises `NetworkFileError`, also if it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise NetworkFileError(f"{path}: cannot be read: {reason}") from None
    return parse_network(text, str(path))


def commanded_network(path: str | Path) -> NetworkPlan:
    """Read a network file for a command, which calls as its operator unless somebody else is named (`--as`).

    Raises `NetworkFileError`.
    """
    plan = read_network_file(path)
    if plan.security.operator:
        default_to(plan.security.operator)
    return plan


def parse_network(text: str, file_name: str = "network file") -> NetworkPlan:
    """Read the text of a network file.

    >>> plan = parse_network('''
    ... [[broker]]
    ... name = "B1"
    ... listen = "127.0.0.1:7001"
    ... ''')
    >>> plan.broker("B1").listen.port
    7001
    >>> parse_network('[[link]]\\nbetween = ["B1", "B2"]', "net.toml")
    Traceback (most recent call last):
    ...
    trimtab.network.network_file.NetworkFileError: net.toml:2: a link to B1, but no broker has this name
    """
    return _NetworkReader(text, file_name).plan()


class _NetworkReader:
    """Checks one text and knows the line of everything in it."""

    def __init__(self, text: str, file_name: str) -> None:
        self._file_name = file_name
        self._lines = text.splitlines()
        try:
            self._data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            place = re.search(r"\(at line (\d+), column \d+\)$", str(error))
            line = int(place.group(1)) if place else max(1, len(self._lines))
            reason = re.sub(r" \(at [^)]*\)$", "", str(error))
            self._refuse(line, f"not TOML: {reason}")

    def plan(self) -> NetworkPlan:
        self._drop_retired_keys()
        self._checked(lambda: refuse_former_places(self._data, "network"))
        for section in self._data:
            if section not in _SECTIONS:
                self._refuse(
                    self._line(section),
                    f"unknown section {section}; expected [[broker]], [[link]], [[standby]], [network], [policy], "
                    "[replication], [protection], [security] or [limits]",
                )
        options = self._options()
        brokers = self._brokers()
        links = self._links([entry.name for entry in brokers])
        if not brokers:
            self._refuse(1, "no broker; expected at least one [[broker]] with name and listen")
        return NetworkPlan(
            brokers,
            links,
            options,
            self._checked(lambda: read_policy(self._data["policy"])) if "policy" in self._data else PolicyChoice(),
            replication=self._replication(options),
            standbys=self._standbys(brokers),
            protection=self._settings("protection", RateLimitConfig) if "protection" in self._data else None,
            security=self._security(brokers),
            limits=self._settings("limits", LimitSettings),
        )

    def _drop_retired_keys(self) -> None:
        """Files that were written for an earlier version can be used; what has no effect any more is told."""
        for section, keys in _RETIRED.items():
            table = self._data.get(section)
            for key, reason in keys.items():
                if isinstance(table, dict) and key in table:
                    del table[key]
                    where = f"{self._file_name}:{self._line(section, 0, key)}"
                    log.warning("%s: %s has no effect any more: %s", where, key, reason)

    def _security(self, brokers: Sequence[BrokerEntry]) -> SecuritySettings:
        settings = self._settings("security", SecuritySettings)
        exposed = [entry for entry in brokers if not is_loopback(entry.listen.host)]
        if exposed and not settings.is_on:
            if not settings.insecure:
                index = brokers.index(exposed[0])
                self._refuse(
                    self._line("broker", index, "listen"),
                    f"{exposed[0].name} listens at {exposed[0].listen.host}, where others reach it, unencrypted; "
                    'expected [security] with certificates = "FOLDER" (trimtab certs init), or with insecure = true',
                )
            names = ", ".join(entry.name for entry in exposed)
            log.warning("%s: insecure: whoever reaches %s may do and read everything", self._file_name, names)
        return settings.beside(Path(self._file_name).resolve().parent)

    def _replication(self, options: NetworkOptions) -> ReplicationSettings | None:
        settings = self._settings("replication", ReplicationSettings) if "replication" in self._data else None
        if options.acknowledges != "received" and options.slow_policy != "block":
            reason = f'acknowledges = "{options.acknowledges}" needs slow_policy = "block"'
            self._refuse(self._line("network", 0, "slow_policy"), f"{reason}: what is acknowledged is not dropped")
        if (options.acknowledges == "durable") != bool(options.disk):
            reason = 'acknowledges = "durable" and disk = "FOLDER" go together'
            self._refuse(self._line("network", 0, "disk" if options.disk else "acknowledges"), reason)
        if settings is None:
            return None
        if options.acknowledges != "received" and settings.protocol != "synchronous":
            reason = f'protocol: acknowledges = "{options.acknowledges}" needs "synchronous", not "{settings.protocol}"'
            self._refuse(self._line("replication", 0, "protocol"), reason)
        if options.acknowledges != "received" and settings.assisting == "scheduling":
            reason = f'assisting: acknowledges = "{options.acknowledges}" needs "reordering", not "scheduling"'
            self._refuse(self._line("replication", 0, "assisting"), reason)
        if settings.provisioner == "standby" and not self._tables("standby"):
            reason = 'provisioner = "standby" needs at least one [[standby]] with listen'
            self._refuse(self._line("replication", 0, "provisioner"), reason)
        return settings

    def _standbys(self, brokers: Sequence[BrokerEntry]) -> tuple[Address, ...]:
        found: list[Address] = []
        for index, table in enumerate(self._tables("standby")):
            self._check_keys("standby", index, table, _STANDBY_KEYS)
            line = self._line("standby", index, "listen")
            try:
                address = Address.parse(self._text("standby", index, table, "listen"))
            except ValueError as error:
                if isinstance(error, NetworkFileError):
                    raise
                self._refuse(line, f"listen: {error}")
            taken = next((entry.name for entry in brokers if entry.listen == address), None)
            if taken or address in found:
                self._refuse(line, f"{taken or 'another standby'} listens at {address} already")
            found.append(address)
        return tuple(found)

    def _brokers(self) -> tuple[BrokerEntry, ...]:
        found: list[BrokerEntry] = []
        for index, table in enumerate(self._tables("broker")):
            self._check_keys("broker", index, table, _BROKER_KEYS)
            name, listen = self._text("broker", index, table, "name"), self._text("broker", index, table, "listen")
            line = self._line("broker", index, "name")
            if not BROKER_NAME.fullmatch(name):
                self._refuse(line, f"{name!r} is not a broker's name; expected letters, digits, _ . or -, at most 100")
            try:
                address = Address.parse(listen)
            except ValueError as error:
                self._refuse(self._line("broker", index, "listen"), f"listen: {error}")
            advertised = self._advertised(index, table)
            for other in found:
                if other.name == name:
                    self._refuse(line, f"a second broker named {name}")
                if other.address == (advertised or address):
                    key = "listen" if advertised is None else "advertise"
                    what = "listens" if advertised is None else "is reached"
                    self._refuse(self._line("broker", index, key), f"{other.name} {what} at {other.address} already")
            cpu_mhz, memory_mb, bandwidth_mbps = (
                self._positive("broker", index, table, key) for key in ("cpu_mhz", "memory_mb", "bandwidth_mbps")
            )
            site, version = self._site(index, table), self._wire_version("broker", index, table)
            found.append(BrokerEntry(name, address, cpu_mhz, memory_mb, bandwidth_mbps, site, version, advertised))
        return tuple(found)

    def _advertised(self, index: int, table: Mapping[str, Any]) -> Address | None:
        if "advertise" not in table:
            return None
        try:
            return Address.parse(self._text("broker", index, table, "advertise"))
        except ValueError as error:
            if isinstance(error, NetworkFileError):
                raise
            self._refuse(self._line("broker", index, "advertise"), f"advertise: {error}")

    def _wire_version(self, section: str, index: int, table: Mapping[str, Any]) -> int | None:
        version = table.get("wire_version_max")
        if version is None or (type(version) is int and VERSION_MIN <= version <= VERSION):
            return version
        reason = f"wire_version_max: expected a version that this program speaks, {VERSION_MIN} to {VERSION}"
        self._refuse(self._line(section, index, "wire_version_max"), reason)

    def _site(self, index: int, table: Mapping[str, Any]) -> tuple[float, float] | None:
        site = table.get("site")
        if site is None:
            return None
        try:
            return msgspec.convert(site, tuple[float, float])
        except msgspec.ValidationError:
            self._refuse(self._line("broker", index, "site"), "site: expected two numbers, [X, Y]")

    def _links(self, names: Sequence[str]) -> tuple[LinkEntry, ...]:
        entries: list[LinkEntry] = []
        found: list[tuple[str, str]] = []
        for index, table in enumerate(self._tables("link")):
            self._check_keys("link", index, table, _LINK_KEYS)
            ends = table.get("between")
            line = self._line("link", index, "between")
            if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(end, str) for end in ends):
                self._refuse(line, 'expected between = ["NAME", "NAME"], two brokers')
            for end in ends:
                if end not in names:
                    self._refuse(line, f"a link to {end}, but no broker has this name")
            first, second = ends
            if first == second:
                self._refuse(line, f"a link from {first} to itself")
            if (first, second) in found or (second, first) in found:
                self._refuse(line, f"a second link between {first} and {second}")
            way = _way(found, first, second)
            if way:
                self._refuse(line, f"this link closes a cycle: {' - '.join([*way, first])}; brokers must form a tree")
            found.append((first, second))
            entries.append(LinkEntry(first, second, self._via(index, table)))
        return tuple(entries)

    def _via(self, index: int, table: Mapping[str, Any]) -> Address | None:
        if "via" not in table:
            return None
        try:
            return Address.parse(self._text("link", index, table, "via"))
        except ValueError as error:
            if isinstance(error, NetworkFileError):
                raise
            self._refuse(self._line("link", index, "via"), f"via: {error}")

    def _options(self) -> NetworkOptions:
        """The options of [network], each of them right in itself."""
        table = self._data.get("network", {})
        switches: dict[str, bool] = {}
        for key in ("covering", "advertisement_covering"):
            if isinstance(table, dict) and key in table:
                if table[key] not in ("on", "off"):
                    self._refuse(self._line("network", 0, key), f'{key}: expected "on" or "off"')
                switches[key] = table[key] == "on"
        read = {**table, **switches} if isinstance(table, dict) else table
        options = self._checked(lambda: read_settings(read, NetworkOptions, "network"))
        for key in read:
            if problem := _problem_with(key, getattr(options, key)):
                self._refuse(self._line("network", 0, key), f"{key}: {problem}")
        if options.disk_max_mb and not options.disk:
            line = self._line("network", 0, "disk_max_mb")
            self._refuse(line, 'disk_max_mb is for disk = "FOLDER", and there is none')
        self._wire_version("network", 0, read)
        try:
            return msgspec.structs.replace(options, back_end=checked_url(options.back_end) if options.back_end else "")
        except ValueError as error:
            self._refuse(self._line("network", 0, "back_end"), f"back_end: {error}")

    def _settings(self, section: str, kind: type[Settings]) -> Settings:
        """The settings in a section."""
        return self._checked(lambda: read_settings(self._data.get(section, {}), kind, section))

    def _checked(self, read: Callable[[], Result]) -> Result:
        """What is read from sections; a wrong setting is told with its line."""
        try:
            return read()
        except SettingsError as error:
            path = error.key.split(".")
            is_named = path[-1] in error.reason or len(path) < 2
            told = error.reason if is_named else f"{path[-1]}: {error.reason}"
            self._refuse(line_of(self._lines, path) or 1, told)

    def _tables(self, section: str) -> list[dict[str, Any]]:
        tables = self._data.get(section, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self._refuse(self._line(section), f"expected [[{section}]] with two brackets, one for each {section}")
        return cast(list[dict[str, Any]], tables)

    def _check_keys(self, section: str, index: int, table: Mapping[str, Any], known: Sequence[str]) -> None:
        for key in table:
            if key not in known:
                self._refuse(
                    self._line(section, index, key), f"unknown key {key} in {section}; expected {', '.join(known)}"
                )

    def _text(self, section: str, index: int, table: Mapping[str, Any], key: str) -> str:
        value = table.get(key)
        if value is None:
            self._refuse(self._line(section, index, key), f'this {section} has no {key}; expected {key} = "..."')
        if not isinstance(value, str):
            self._refuse(self._line(section, index, key), f"{key}: expected a text in quotes")
        return value

    def _positive(self, section: str, index: int, table: Mapping[str, Any], key: str) -> float | None:
        value = table.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            self._refuse(self._line(section, index, key), f"{key}: expected a number above 0")
        return float(value)

    def _line(self, section: str, index: int = 0, key: str = "") -> int:
        """The line of a key in the section's table with this index, or of the table's header."""
        path = [section, str(index), key] if isinstance(self._data.get(section), list) else [section, key]
        return line_of(self._lines, path) or 1

    def _refuse(self, line: int, reason: str) -> NoReturn:
        raise NetworkFileError(f"{self._file_name}:{line}: {reason}") from None


def _problem_with(key: str, value: object) -> str:
    """What is wrong with a number that is out of range, empty if nothing is.

    >>> _problem_with("client_lease_s", 0.0), _problem_with("clients_max_count", 1)
    ('expected a number above 0', '')
    """
    if isinstance(value, float) and not 0 < value < float("inf"):
        return "expected a number above 0"
    if isinstance(value, int) and key.endswith("_count") and value < 1:
        return "expected a whole number of at least 1"
    if isinstance(value, int) and value < 0:
        return "expected a whole number of megabytes, 0 for no limit"
    return ""


def _way(links: Sequence[tuple[str, str]], start: str, goal: str) -> list[str]:
    """The brokers from one to another over the links so far, none if there is no way.

    >>> _way([("B1", "B2"), ("B3", "B2")], "B1", "B3")
    ['B1', 'B2', 'B3']
    """
    came_from: dict[str, str] = {start: start}
    waiting = [start]
    for here in waiting:
        for ends in links:
            if here in ends:
                there = ends[1] if ends[0] == here else ends[0]
                if there not in came_from:
                    came_from[there] = here
                    waiting.append(there)
    if goal not in came_from:
        return []
    way = [goal]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return way[::-1]
