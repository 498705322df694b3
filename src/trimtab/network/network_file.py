"""The network file: brokers, links and options as TOML. Errors name the file, the line and what was expected."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec

from trimtab.broker.config import Acknowledges, SlowPolicy
from trimtab.broker.flow.rate_limits import RateLimitConfig
from trimtab.broker.flow.uplink import Uplink
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
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.registry import check_policy
from trimtab.policies.relocation.config import RelocationConfig
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

_HEADER: Final = re.compile(r"\s*\[\[?\s*([A-Za-z_]+)\s*\]\]?\s*(#.*)?$")
_BROKER_KEYS: Final = ("name", "listen", "cpu_mhz", "memory_mb", "bandwidth_mbps", "site", "wire_version_max")
_LINK_KEYS: Final = ("between", "via")
_NETWORK_KEYS: Final = (
    "covering",
    "advertisement_covering",
    "slow_policy",
    "client_queue_max_count",
    "client_lease_s",
    "silent_after_s",
    "answer_within_s",
    "filters_per_client_max_count",
    "clients_max_count",
    "window_frames_count",
    "enforce_capacities",
    "uplink",
    "policy",
    "meter_window_s",
    "back_end",
    "back_end_token_file",
    "acknowledges",
    "disk",
    "state",
    "stop_within_s",
    "disk_max_mb",
    "wire_version_max",
)
_STANDBY_KEYS: Final = ("listen",)
_PADRES_KEYS: Final = PadresConfig.__struct_fields__
Settings = TypeVar(
    "Settings", RelocationConfig, DelayConfig, ReplicationSettings, RateLimitConfig, SecuritySettings, LimitSettings
)
_SECTIONS: Final = (
    "broker",
    "link",
    "standby",
    "network",
    "padres",
    "relocation",
    "delay",
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
        for section in self._data:
            if section not in _SECTIONS:
                self._refuse(
                    self._line_of_top(section),
                    f"unknown section {section}; expected [[broker]], [[link]], [[standby]], [network], [padres], "
                    "[relocation], [delay], [replication], [protection], [security] or [limits]",
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
            self._padres(),
            relocation=self._settings("relocation", RelocationConfig),
            delay=self._settings("delay", DelayConfig),
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
            for other in found:
                if other.name == name:
                    self._refuse(line, f"a second broker named {name}")
                if other.listen == address:
                    self._refuse(self._line("broker", index, "listen"), f"{other.name} listens at {address} already")
            cpu_mhz, memory_mb, bandwidth_mbps = (
                self._positive("broker", index, table, key) for key in ("cpu_mhz", "memory_mb", "bandwidth_mbps")
            )
            site, version = self._site(index, table), self._wire_version("broker", index, table)
            found.append(BrokerEntry(name, address, cpu_mhz, memory_mb, bandwidth_mbps, site, version))
        return tuple(found)

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
        table = self._data.get("network", {})
        if not isinstance(table, dict):
            self._refuse(self._line_of_top("network"), "expected a section [network]")
        self._check_keys("network", 0, table, _NETWORK_KEYS)
        values: dict[str, Any] = {}
        for key, value in table.items():
            line = self._line("network", 0, key)
            if key in ("covering", "advertisement_covering"):
                if value not in ("on", "off"):
                    self._refuse(line, f'{key}: expected "on" or "off"')
                values[key] = value == "on"
            elif key == "slow_policy":
                if value not in get_args(SlowPolicy):
                    self._refuse(line, f"slow_policy: expected one of {', '.join(get_args(SlowPolicy))}")
                values[key] = value
            elif key == "acknowledges":
                if value not in get_args(Acknowledges):
                    self._refuse(line, f"acknowledges: expected one of {', '.join(get_args(Acknowledges))}")
                values[key] = value
            elif key == "uplink":
                if value not in get_args(Uplink):
                    self._refuse(line, f"uplink: expected one of {', '.join(get_args(Uplink))}")
                values[key] = value
            elif key in ("disk", "state"):
                values[key] = self._text("network", 0, table, key)
            elif key == "disk_max_mb":
                if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                    self._refuse(line, "disk_max_mb: expected a whole number of megabytes, 0 for no limit")
                if value and not table.get("disk"):
                    self._refuse(line, 'disk_max_mb is for disk = "FOLDER", and there is none')
                values[key] = value
            elif key == "enforce_capacities":
                if not isinstance(value, bool):
                    self._refuse(line, "enforce_capacities: expected true or false")
                values[key] = value
            elif key == "wire_version_max":
                values[key] = self._wire_version("network", 0, table)
            elif key == "back_end":
                try:
                    values[key] = checked_url(value) if value else ""
                except ValueError as error:
                    self._refuse(line, f"back_end: {error}")
            elif key == "back_end_token_file":
                if not isinstance(value, str):
                    self._refuse(line, "back_end_token_file: expected the name of a file")
                values[key] = value
            elif key == "policy":
                try:
                    check_policy(str(value))
                except ValueError as error:
                    self._refuse(line, str(error))
                values[key] = value
            elif key.endswith("_s"):
                values[key] = self._positive("network", 0, table, key)
            else:
                if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                    self._refuse(line, f"{key}: expected a whole number of at least 1")
                values[key] = value
        return NetworkOptions(**values)

    def _padres(self) -> PadresConfig:
        """The settings of [padres], each of them right in itself and all of them together."""
        table = self._data.get("padres", {})
        if not isinstance(table, dict):
            self._refuse(self._line_of_top("padres"), "expected a section [padres]")
        self._check_keys("padres", 0, table, _PADRES_KEYS)
        for key, value in table.items():
            self._positive("padres", 0, table, key)
            if key.endswith("_count") and not isinstance(value, int):
                self._refuse(self._line("padres", 0, key), f"{key}: expected a whole number of at least 1")
        try:
            return PadresConfig(**table)
        except ValueError as error:
            self._refuse(self._line("padres", 0, _at_fault(table, PadresConfig)), str(error))

    def _settings(self, section: str, kind: type[Settings]) -> Settings:
        """The settings of a policy in a section of its own."""
        table = self._data.get(section, {})
        if not isinstance(table, dict):
            self._refuse(self._line_of_top(section), f"expected a section [{section}]")
        self._check_keys(section, 0, table, kind.__struct_fields__)
        try:
            return msgspec.convert(table, kind)
        except (msgspec.ValidationError, ValueError) as error:
            key = str(error).rpartition("`$.")[2].split(".")[0].split("[")[0].removesuffix("`")
            line = self._line(section, 0, key if key in table else _at_fault(table, kind))
            choices = get_type_hints(kind).get(key)
            if get_origin(choices) is Literal:
                self._refuse(line, f"{key}: expected one of {', '.join(get_args(choices))}")
            self._refuse(line, str(error).replace(" - at `$.", " - at `"))

    def _tables(self, section: str) -> list[dict[str, Any]]:
        tables = self._data.get(section, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self._refuse(
                self._line_of_top(section), f"expected [[{section}]] with two brackets, one for each {section}"
            )
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

    def _line_of_top(self, section: str) -> int:
        wanted = re.compile(rf"\s*(\[\[?\s*{re.escape(section)}\b|\"?{re.escape(section)}\"?\s*[=.])")
        return next((number for number, line in enumerate(self._lines, 1) if wanted.match(line)), 1)

    def _line(self, section: str, index: int, key: str) -> int:
        """The line of a key in the section's table with this index, or of the table's header."""
        wanted = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]")
        seen, header_line = -1, 0
        for number, line in enumerate(self._lines, 1):
            header = _HEADER.match(line)
            if header is not None:
                if seen == index and header_line:
                    return header_line
                if header.group(1) == section:
                    seen += 1
                    header_line = number if seen == index else 0
                continue
            if header_line and wanted.match(line):
                return number
        return header_line or self._line_of_top(section)

    def _refuse(self, line: int, reason: str) -> NoReturn:
        raise NetworkFileError(f"{self._file_name}:{line}: {reason}") from None


def _at_fault(settings: dict[str, Any], kind: type[msgspec.Struct]) -> str:
    """The last setting without which the others go together, for an error that concerns several; else none.

    >>> _at_fault({"smoothing_alpha": 0.5, "lower_overload_ratio": 0.99}, PadresConfig)
    'lower_overload_ratio'
    """
    for key in reversed(settings):
        try:
            msgspec.convert({name: value for name, value in settings.items() if name != key}, kind)
        except ValueError:
            continue
        return key
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
