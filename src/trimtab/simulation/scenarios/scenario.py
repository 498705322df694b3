"""Scenario files: a network, who joins it when, what is published, what changes and what goes wrong, as TOML.

Equivalents of the workload lines of the thesis (section 5.1):

    1.0 broker add B0 500 16 10      [[broker]] name = "B0", at_s = 1.0, cpu_mhz = 500, memory_mb = 16, ...
    1.0 publisher add P1 YHOO 10 B0  [[publisher]] name = "P1", at_s = 1.0, symbol = "YHOO", rate_per_min = 10, ...
    60.0 publisher chrate P1 20      [[rate]] at_s = 60.0, publisher = "P1", rate_per_min = 20

The `[[broker]]`, `[[link]]` and `[network]` parts of a network file are understood as they are, without `listen`;
`network_file = "network.toml"` takes them from there.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from trimtab.broker.config import SlowPolicy
from trimtab.broker.flow.rate_limits import RateLimitConfig
from trimtab.broker.flow.uplink import AnyUplink
from trimtab.language import Filter, LanguageError, Publication
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.multistage.config import CoordinatorConfig
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.registry import Policy, check_policy
from trimtab.policies.relocation.config import RelocationConfig
from trimtab.protocol.messages import Within
from trimtab.simulation.faults.attacks import AttackPart
from trimtab.simulation.faults.faults import Cut, Fault, FrameFault, Partition, Pause
from trimtab.simulation.scenarios.balance import BalancePart
from trimtab.simulation.scenarios.bundled import shipped_texts
from trimtab.simulation.scenarios.clusters import ClustersPart, brokers_of, links_of
from trimtab.simulation.scenarios.topics import CrisisPart, TopicPart, Topics

Uniform: TypeAlias = tuple[float, float]
"""The ends of a uniform distribution."""


class ScenarioError(ValueError):
    """A scenario that cannot be run; the message names the file, the line where possible, and what is wrong."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a scenario file."""


class NetworkPart(_Part, frozen=True, kw_only=True):
    """`[network]`: options of all brokers."""

    covering: bool | Literal["on", "off"] = "on"
    advertisement_covering: bool | Literal["on", "off"] = "on"
    latency_s: float = 0.001
    """Of links that do not say their own, those of clients included."""
    window_frames_count: int = 1024
    client_queue_max_count: int = 100_000
    slow_policy: SlowPolicy = "block"
    client_lease_s: float = 60.0
    filters_per_client_max_count: int = 10_000
    clients_max_count: int = 10_000
    enforce_capacities: bool = True
    meter_window_s: float = 10.0
    """Rates are means over so long."""
    uplink: AnyUplink = "turns"
    """How the output queues of a broker share its bandwidth."""


class BrokerPart(_Part, frozen=True, kw_only=True):
    """`[[broker]]`: one broker and its machine."""

    name: str
    at_s: float = 0.0
    listen: str = ""
    cpu_mhz: float | None = None
    memory_mb: float | None = None
    bandwidth_mbps: float | None = None
    site: tuple[float, float] | None = None


class LinkPart(_Part, frozen=True, kw_only=True):
    """`[[link]]`: two brokers."""

    between: tuple[str, str]
    at_s: float = 0.0
    latency_s: float | None = None


class PublisherPart(_Part, frozen=True, kw_only=True):
    """`[[publisher]]`: one publisher of a stock, with a rate, or of what `[[publish]]` says, with `advertise`."""

    name: str
    broker: str
    at_s: float = 0.0
    symbol: str | None = None
    rate_per_min: float = 0.0
    advertise: str | None = None


class PublishersPart(_Part, frozen=True, kw_only=True):
    """`[[publishers]]`: many publishers, each of its own stock."""

    count: int
    broker: str | list[str]
    from_s: float = 0.0
    every_s: float = 0.1
    rate_per_min: float | Uniform = (0.0, 60.0)
    prefix: str = "P"


class SubscriberPart(_Part, frozen=True, kw_only=True):
    """`[[subscriber]]`: one subscriber."""

    name: str
    broker: str
    filters: list[str]
    at_s: float = 0.0
    until_s: float | None = None
    within_s: Within = None
    """The latency requirement of its subscriptions."""


class SubscribersPart(_Part, frozen=True, kw_only=True):
    """`[[subscribers]]`: many subscribers with a stock subscription each, joining at uniformly distributed times."""

    count: int
    broker: str | list[str]
    join_s: Uniform = (0.0, 0.0)
    zero_traffic_ratio: float = 0.0
    prefix: str = "S"
    subscriptions_per_client: int = 1


class RatePart(_Part, frozen=True, kw_only=True):
    """`[[rate]]`: publication rates change: of one publisher, or of a random share of all that have a rate."""

    at_s: float
    publisher: str | None = None
    rate_per_min: float | None = None
    share_ratio: float = 1.0
    factor: float | None = None


class PublishPart(_Part, frozen=True, kw_only=True):
    """`[[publish]]`: publications at a time."""

    at_s: float
    publisher: str
    publications: list[str]
    every_s: float = 0.0


class MovePart(_Part, frozen=True, kw_only=True):
    """`[[move]]`: a subscriber is sent to another broker."""

    at_s: float
    subscriber: str
    broker: str


class DrainPart(_Part, frozen=True, kw_only=True):
    """`[[drain]]`: as if before a restart, a broker's subscribers are sent to the other edge-brokers in turn."""

    at_s: float
    broker: str


class Scenario(_Part, frozen=True, kw_only=True):
    """A whole scenario file."""

    name: str = ""
    description: str = ""
    duration_s: float = 60.0
    """Publishers with a rate stop then; what is under way is still delivered."""

    seed: int = 1
    symbols_count: int = 40
    quotes: str = ""
    """A quotes file; quotes are made up without one."""

    record_every_s: float = 10.0
    """Virtual time between the load records of each broker, where records are kept."""

    policy: Policy = "none"
    """Who moves subscribers and publishers while the scenario runs."""

    padres: PadresConfig = PadresConfig()
    coordination: CoordinatorConfig = CoordinatorConfig()
    """How the broker called coordinator leads the others, with the policy "coordinated"."""

    relocation: RelocationConfig = RelocationConfig()
    """How publishers are traced and placed, with a policy that moves them."""

    topics: Topics = "listed"
    """Whether `[[topic]]` is meant as it stands, or numbers are drawn by the seed."""

    topic: list[TopicPart] = []
    crisis: CrisisPart | None = None
    """Who the clients of topics are and when they burst."""

    delay: DelayConfig = DelayConfig()
    """How latency requirements are kept, with the policy "delay"."""

    protection: RateLimitConfig | Literal["off"] = "off"
    """What one client may send to its broker."""

    attack: AttackPart | None = None
    """Somebody who misbehaves on purpose, in a scenario with topics."""

    balance: BalancePart | None = None
    network: NetworkPart = NetworkPart()
    clusters: ClustersPart | None = None
    """Brokers and links in clusters, instead of `[[broker]]` and `[[link]]`."""

    broker: list[BrokerPart] = []
    link: list[LinkPart] = []
    publisher: list[PublisherPart] = []
    publishers: list[PublishersPart] = []
    subscriber: list[SubscriberPart] = []
    subscribers: list[SubscribersPart] = []
    rate: list[RatePart] = []
    publish: list[PublishPart] = []
    move: list[MovePart] = []
    drain: list[DrainPart] = []
    fault: list[Fault] = []


def shipped_scenarios() -> dict[str, str]:
    """The scenarios that come with the package: their text by name.

    >>> "figure-2-2" in shipped_scenarios()
    True
    """
    return shipped_texts("trimtab.simulation", "scenarios")


def read_scenario(name_or_file: str, overrides: Mapping[str, str] | None = None) -> Scenario:
    """A shipped scenario by name, or a file; overrides replace values by key (`duration_s`, `broker.0.cpu_mhz`)."""
    shipped = shipped_scenarios()
    if name_or_file in shipped:
        return parse_scenario(shipped[name_or_file], name_or_file, overrides)
    path = Path(name_or_file)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        known = ", ".join(shipped)
        raise ScenarioError(f"{name_or_file}: neither a file nor a scenario that comes along ({known})") from None
    except (OSError, UnicodeError) as error:
        raise ScenarioError(f"{name_or_file}: {error}") from None
    return parse_scenario(text, name_or_file, overrides)


def parse_scenario(
    text: str,
    source: str = "scenario",
    overrides: Mapping[str, str] | None = None,
    values: Mapping[str, Any] | None = None,
) -> Scenario:
    """Read a scenario's text; values replace what it says, then overrides, which are texts, do.

    >>> parse_scenario('[[broker]]\\nname = "B1"\\ncpu_mhz = "fast"', "my.toml")
    Traceback (most recent call last):
    ...
    trimtab.simulation.scenarios.scenario.ScenarioError: my.toml:3: broker.0.cpu_mhz: Expected `float | null`, got `str`
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))
        line = int(place.group(1)) if place else max(1, len(text.splitlines()))
        raise ScenarioError(f"{source}:{line}: not TOML: {error}") from None
    reader = _Reader(text, source)
    if "base" in data:
        data = _on_its_base(data, reader)
    if "network_file" in data:
        _take_in_network_file(data, reader)
    for key, value in (values or {}).items():
        replace_value(data, key, copy.deepcopy(value))
    for key, text_of_value in (overrides or {}).items():
        replace_value(data, key, value_of(text_of_value))
    try:
        scenario = msgspec.convert(data, Scenario)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        key = path.removesuffix("`").strip(".").replace("[", ".").replace("]", "").strip(".")
        unknown = re.search(r"unknown field `(\w+)`", reason)
        raise reader.error(f"{key}.{unknown.group(1)}".strip(".") if unknown else key, reason) from None
    scenario = _with_clusters(scenario, reader)
    _check(scenario, reader)
    return scenario


def _on_its_base(data: dict[str, Any], reader: _Reader) -> dict[str, Any]:
    """What a scenario says, and for the rest what the shipped scenario says that it is based on."""
    name = data.pop("base")
    shipped = shipped_scenarios()
    if name not in shipped:
        raise reader.error("base", f"no scenario that comes along is called {name!r}")
    below = tomllib.loads(shipped[name])
    if "base" in below:
        below = _on_its_base(below, reader)
    for key, value in data.items():
        is_table = isinstance(value, dict) and isinstance(below.get(key), dict)
        below[key] = {**below[key], **value} if is_table else value
    return below


def _take_in_network_file(data: dict[str, Any], reader: _Reader) -> None:
    """Put the brokers, links and options of a network file where the scenario's own would stand."""
    name = data.pop("network_file")
    if not isinstance(name, str):
        raise reader.error("network_file", "the name of a file is wanted")
    own = [key for key in ("broker", "link") if key in data]
    if own:
        raise reader.error(own[0], "brokers and links stand in the network file, or here, but not in both")
    path = Path(reader.source).parent / name
    try:
        network = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise reader.error("network_file", f"{path}: {error}") from None
    data["broker"] = network.get("broker", [])
    data["link"] = network.get("link", [])
    for link in data["link"]:
        link.pop("via", None)  # how a broker is reached matters to processes only
    options = network.get("network", {})
    if "policy" in options:
        data.setdefault("policy", options.pop("policy"))
    data["network"] = {**options, **data.get("network", {})}
    for section in ("padres", "relocation", "delay", "protection"):
        if section in network:
            data[section] = {**network[section], **data.get(section, {})}


def _with_clusters(scenario: Scenario, reader: _Reader) -> Scenario:
    part = scenario.clusters
    if part is None:
        return scenario
    if scenario.broker or scenario.link:
        raise reader.error("clusters.count", "give either clusters, or brokers and links")
    brokers = [
        BrokerPart(name=each.name, at_s=each.at_s, **msgspec.structs.asdict(each.machine)) for each in brokers_of(part)
    ]
    last_s = brokers[-1].at_s
    return msgspec.structs.replace(
        scenario, broker=brokers, link=[LinkPart(between=between, at_s=last_s) for between in links_of(part)]
    )


class _Reader:
    """Finds the line of a key."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self._lines = text.splitlines()

    def error(self, key: str, reason: str) -> ScenarioError:
        line = self._line_of(key)
        return ScenarioError(f"{self.source}{f':{line}' if line else ''}: {key + ': ' if key else ''}{reason}")

    def _line_of(self, key: str) -> int | None:
        parts = key.split(".") if key else []
        if not parts:
            return None
        section, wanted = "", parts[-1]
        place = 0
        if len(parts) > 1:
            section = parts[0]
            place = int(parts[1]) if parts[1].isdigit() else 0
            wanted = parts[2] if len(parts) > 2 and parts[1].isdigit() else parts[1]
        header_line: int | None = None
        seen_count, inside = -1, section == ""
        for number, line in enumerate(self._lines, 1):
            header = re.match(r"\s*\[\[?\s*([\w-]+)\s*\]\]?", line)
            if header and line.lstrip().startswith("["):
                seen_count += header.group(1) == section
                inside = header.group(1) == section and seen_count == place
                header_line = number if inside else header_line
            elif inside and re.match(rf"\s*{re.escape(wanted)}\s*=", line):
                return number
        return header_line


def value_of(text: str) -> Any:
    """What a text on the command line means: a value of TOML, otherwise the text itself.

    >>> value_of("10"), value_of("gsh")
    (10, 'gsh')
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def replace_value(data: dict[str, Any], key: str, value: Any) -> None:
    """Put a value where a key with dots says (`broker.0.cpu_mhz`)."""
    place: Any = data
    *path, last = key.split(".")
    for part in path:
        if isinstance(place, list):
            if not part.isdigit() or int(part) >= len(place):
                raise ScenarioError(f"{key}: there is no number {part}")
            place = place[int(part)]
        elif isinstance(place, dict):
            place = place.setdefault(part, {})
        else:
            raise ScenarioError(f"{key}: {part} is inside something that has no parts")
    if not isinstance(place, dict):
        raise ScenarioError(f"{key}: the last part must be the name of a value")
    place[last] = value


_MAX_COUNT: Final = 1_000_000


def _check(scenario: Scenario, reader: _Reader) -> None:
    """What the types cannot say: names that must exist, filters that must parse, a network without cycles."""
    try:
        check_policy(scenario.policy)
    except ValueError as error:
        raise reader.error("policy", str(error).removeprefix("policy: ")) from None
    names: dict[str, str] = {}
    singles: list[tuple[str, Sequence[BrokerPart | PublisherPart | SubscriberPart]]] = [
        ("broker", scenario.broker),
        ("publisher", scenario.publisher),
        ("subscriber", scenario.subscriber),
    ]
    for kind, parts in singles:
        for number, part in enumerate(parts):
            key = f"{kind}.{number}.name"
            if not part.name:
                raise reader.error(key, "a name is needed")
            if part.name in names:
                raise reader.error(key, f"the name {part.name} is used twice")
            names[part.name] = kind
    if not scenario.broker:
        raise reader.error("broker", "at least one broker is needed")
    _check_positive(scenario, reader)
    _check_links(scenario, reader, names)

    def needs(key: str, name: str, kind: str) -> None:
        if names.get(name) != kind:
            raise reader.error(key, f"no {kind} is called {name}")

    groups: list[tuple[str, Sequence[PublishersPart | SubscribersPart]]] = [
        ("publishers", scenario.publishers),
        ("subscribers", scenario.subscribers),
    ]
    for kind, many in groups:
        for number, group in enumerate(many):
            for broker in [group.broker] if isinstance(group.broker, str) else group.broker:
                needs(f"{kind}.{number}.broker", broker, "broker")
            if not 0 <= group.count <= _MAX_COUNT:
                raise reader.error(f"{kind}.{number}.count", f"{group.count} is not between 0 and {_MAX_COUNT:,}")
    if scenario.crisis is not None:
        for key in ("publishers_broker", "allocated_broker", "subscribers_broker"):
            needs(f"crisis.{key}", getattr(scenario.crisis, key), "broker")
        for name in scenario.crisis.placement:
            needs("crisis.placement", name, "broker")
    elif scenario.topic:
        raise reader.error("topic.0.id", "[crisis] must say where the clients of topics join")
    if scenario.attack is not None:
        _check_attack(scenario, scenario.attack, reader)
        needs("attack.broker", scenario.attack.broker, "broker")
    for number, publisher in enumerate(scenario.publisher):
        needs(f"publisher.{number}.broker", publisher.broker, "broker")
        if (publisher.symbol is None) == (publisher.advertise is None):
            raise reader.error(f"publisher.{number}.name", "give either a symbol or an advertisement (advertise)")
        if publisher.advertise is not None:
            _parse_filter(reader, f"publisher.{number}.advertise", publisher.advertise)
    for number, subscriber in enumerate(scenario.subscriber):
        needs(f"subscriber.{number}.broker", subscriber.broker, "broker")
        for text in subscriber.filters:
            _parse_filter(reader, f"subscriber.{number}.filters", text)
    for number, change in enumerate(scenario.rate):
        if (change.rate_per_min is None) == (change.factor is None):
            raise reader.error(f"rate.{number}.at_s", "give either rate_per_min or factor")
        if change.publisher is not None:
            needs(f"rate.{number}.publisher", change.publisher, "publisher")
    for number, publish in enumerate(scenario.publish):
        needs(f"publish.{number}.publisher", publish.publisher, "publisher")
        for text in publish.publications:
            try:
                Publication.parse(text)
            except LanguageError as error:
                raise reader.error(f"publish.{number}.publications", f"{text}: {error}") from None
    for number, move in enumerate(scenario.move):
        needs(f"move.{number}.subscriber", move.subscriber, "subscriber")
        needs(f"move.{number}.broker", move.broker, "broker")
    for number, fault in enumerate(scenario.fault):
        _check_fault(reader, number, fault, names)


def _check_attack(scenario: Scenario, attack: AttackPart, reader: _Reader) -> None:
    known = [topic.id for topic in scenario.topic] if scenario.crisis is not None else []
    unknown = [topic for topic in attack.topics if topic not in known]
    if unknown or not attack.topics:
        raise reader.error("attack.topics", f"there is no topic {unknown[0]}" if unknown else "one at least is needed")
    if not 0 <= attack.begin_s < scenario.duration_s:
        raise reader.error("attack.begin_s", "an attack begins before the scenario ends")
    for key, value in (("rate_per_s", attack.rate_per_s), ("message_bytes", attack.message_bytes)):
        if not 0 < value < float("inf"):
            raise reader.error(f"attack.{key}", "expected a number above 0")
    if not 0 <= attack.count <= _MAX_COUNT:
        raise reader.error("attack.count", f"{attack.count} is not between 0 and {_MAX_COUNT:,}")


def _check_fault(reader: _Reader, number: int, fault: Fault, names: Mapping[str, str]) -> None:
    mentioned: tuple[str, ...]
    match fault:
        case FrameFault(between=between) | Cut(between=between):
            mentioned, key = between or (), "between"
        case Partition(brokers=brokers):
            mentioned, key = brokers, "brokers"
        case Pause(broker=broker):
            mentioned, key = (broker,), "broker"
    for name in mentioned:
        if name not in names:
            raise reader.error(f"fault.{number}.{key}", f"nobody is called {name}")


def _check_positive(scenario: Scenario, reader: _Reader) -> None:
    if not 0 < scenario.duration_s < float("inf"):
        raise reader.error("duration_s", "the duration must be positive")
    if not 0 < scenario.record_every_s < float("inf"):
        raise reader.error("record_every_s", "the time between records must be positive")
    for number, broker in enumerate(scenario.broker):
        for key in ("cpu_mhz", "memory_mb", "bandwidth_mbps"):
            value = getattr(broker, key)
            if value is not None and not 0 < value < float("inf"):
                raise reader.error(f"broker.{number}.{key}", "a capacity must be positive")


def _check_links(scenario: Scenario, reader: _Reader, names: Mapping[str, str]) -> None:
    side = {part.name: part.name for part in scenario.broker}

    def root(name: str) -> str:
        while side[name] != name:
            name = side[name]
        return name

    for number, link in enumerate(scenario.link):
        for name in link.between:
            if names.get(name) != "broker":
                raise reader.error(f"link.{number}.between", f"no broker is called {name}")
        first, second = (root(name) for name in link.between)
        if first == second:
            raise reader.error(f"link.{number}.between", f"the link {' - '.join(link.between)} closes a cycle")
        side[first] = second


def _parse_filter(reader: _Reader, key: str, text: str) -> Filter:
    try:
        return Filter.parse(text)
    except LanguageError as error:
        raise reader.error(key, f"{text}: {error}") from None
