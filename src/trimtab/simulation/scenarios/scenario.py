"""Reads scenarios with messages, and checks what their types cannot say.

The `[[broker]]`, `[[link]]`, `[network]` and `[policy]` parts of a network file are understood as they are, without
`listen`; `network_file = "network.toml"` takes them from there.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from trimtab.language import Filter, LanguageError, Publication
from trimtab.simulation.faults.attacks import AttackPart
from trimtab.simulation.faults.faults import Cut, Fault, FrameFault, Partition, Pause
from trimtab.simulation.scenarios.clusters import brokers_of, links_of
from trimtab.simulation.scenarios.documents import (
    Document,
    ScenarioError,
    find_document,
    parse_document,
    value_of,
    with_values,
)
from trimtab.simulation.scenarios.messages import (
    BrokerPart,
    LinkPart,
    PublisherPart,
    PublishersPart,
    Scenario,
    SubscriberPart,
    SubscribersPart,
)


def read_scenario(name_or_file: str, overrides: Mapping[str, str] | None = None) -> Scenario:
    """A bundled scenario by name, or a file; overrides replace values by key (`duration_s`, `broker.0.cpu_mhz`)."""
    return _read(find_document(name_or_file), overrides or {})


def parse_scenario(text: str, source: str = "scenario", overrides: Mapping[str, str] | None = None) -> Scenario:
    """Read a scenario's text; overrides, which are texts, replace what it says.

    >>> parse_scenario('[[broker]]\\nname = "B1"\\ncpu_mhz = "fast"', "my.toml")
    Traceback (most recent call last):
    ...
    trimtab.simulation.scenarios.documents.ScenarioError: my.toml:3: broker.0.cpu_mhz: expected a number, not a text
    """
    return _read(parse_document(text, source), overrides or {})


def _read(document: Document, overrides: Mapping[str, str]) -> Scenario:
    if document.kind != "messages":
        raise ScenarioError(f"{document.source}: a scenario of the kind messages is wanted, not {document.kind}")
    return read_messages(document, with_values(document.data, {key: value_of(text) for key, text in overrides.items()}))


def read_messages(document: Document, data: dict[str, Any]) -> Scenario:
    """The scenario in a document's tables."""
    if "network_file" in data:
        data = _with_network_file(data, document)
    scenario = _with_clusters(document.read({key: data[key] for key in data if key != "base"}, Scenario), document)
    _check(scenario, document)
    return scenario


def _with_network_file(data: dict[str, Any], document: Document) -> dict[str, Any]:
    """Put the brokers, links and options of a network file where the scenario's own would stand."""
    name = data["network_file"]
    if not isinstance(name, str):
        raise document.error("network_file", "the name of a file is wanted")
    own = [key for key in ("broker", "link") if key in data]
    if own:
        raise document.error(own[0], "brokers and links stand in the network file, or here, but not in both")
    path = document.folder / name
    try:
        network = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise document.error("network_file", f"{path}: {error}") from None
    for link in network.get("link", []):
        link.pop("via", None)  # how a broker is reached matters to processes only
    merged = {key: value for key, value in data.items() if key != "network_file"}
    merged.update(broker=network.get("broker", []), link=network.get("link", []))
    for section in ("network", "policy", "protection"):
        if section in network:
            merged[section] = {**network[section], **data.get(section, {})}
    return merged


def _with_clusters(scenario: Scenario, document: Document) -> Scenario:
    part = scenario.clusters
    if part is None:
        return scenario
    if scenario.broker or scenario.link:
        raise document.error("clusters.count", "give either clusters, or brokers and links")
    brokers = [
        BrokerPart(name=each.name, at_s=each.at_s, **msgspec.structs.asdict(each.machine)) for each in brokers_of(part)
    ]
    last_s = brokers[-1].at_s
    return msgspec.structs.replace(
        scenario, broker=brokers, link=[LinkPart(between=between, at_s=last_s) for between in links_of(part)]
    )


_MAX_COUNT: Final = 1_000_000


def _check(scenario: Scenario, document: Document) -> None:
    """What the types cannot say: names that must exist, filters that must parse, a network without cycles."""
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
                raise document.error(key, "a name is needed")
            if part.name in names:
                raise document.error(key, f"the name {part.name} is used twice")
            names[part.name] = kind
    if not scenario.broker:
        raise document.error("broker", "at least one broker is needed")
    _check_positive(scenario, document)
    _check_links(scenario, document, names)

    def needs(key: str, name: str, kind: str) -> None:
        if names.get(name) != kind:
            raise document.error(key, f"no {kind} is called {name}")

    groups: list[tuple[str, Sequence[PublishersPart | SubscribersPart]]] = [
        ("publishers", scenario.publishers),
        ("subscribers", scenario.subscribers),
    ]
    for kind, many in groups:
        for number, group in enumerate(many):
            for broker in [group.broker] if isinstance(group.broker, str) else group.broker:
                needs(f"{kind}.{number}.broker", broker, "broker")
            if not 0 <= group.count <= _MAX_COUNT:
                raise document.error(f"{kind}.{number}.count", f"{group.count} is not between 0 and {_MAX_COUNT:,}")
    if scenario.crisis is not None:
        for key in ("publishers_broker", "allocated_broker", "subscribers_broker"):
            needs(f"crisis.{key}", getattr(scenario.crisis, key), "broker")
        for name in scenario.crisis.placement:
            needs("crisis.placement", name, "broker")
    elif scenario.topic:
        raise document.error("topic.0.id", "[crisis] must say where the clients of topics join")
    if scenario.attack is not None:
        _check_attack(scenario, scenario.attack, document)
        needs("attack.broker", scenario.attack.broker, "broker")
    for number, publisher in enumerate(scenario.publisher):
        needs(f"publisher.{number}.broker", publisher.broker, "broker")
        if (publisher.symbol is None) == (publisher.advertise is None):
            raise document.error(f"publisher.{number}.name", "give either a symbol or an advertisement (advertise)")
        if publisher.advertise is not None:
            _parse_filter(document, f"publisher.{number}.advertise", publisher.advertise)
    for number, subscriber in enumerate(scenario.subscriber):
        needs(f"subscriber.{number}.broker", subscriber.broker, "broker")
        for text in subscriber.filters:
            _parse_filter(document, f"subscriber.{number}.filters", text)
    for number, change in enumerate(scenario.rate):
        if (change.rate_per_min is None) == (change.factor is None):
            raise document.error(f"rate.{number}.at_s", "give either rate_per_min or factor")
        if change.publisher is not None:
            needs(f"rate.{number}.publisher", change.publisher, "publisher")
    for number, publish in enumerate(scenario.publish):
        needs(f"publish.{number}.publisher", publish.publisher, "publisher")
        for text in publish.publications:
            try:
                Publication.parse(text)
            except LanguageError as error:
                raise document.error(f"publish.{number}.publications", f"{text}: {error}") from None
    for number, move in enumerate(scenario.move):
        needs(f"move.{number}.subscriber", move.subscriber, "subscriber")
        needs(f"move.{number}.broker", move.broker, "broker")
    for number, drain in enumerate(scenario.drain):
        needs(f"drain.{number}.broker", drain.broker, "broker")
    for number, fault in enumerate(scenario.fault):
        _check_fault(document, number, fault, names)


def _check_attack(scenario: Scenario, attack: AttackPart, document: Document) -> None:
    known = [topic.id for topic in scenario.topic] if scenario.crisis is not None else []
    unknown = [topic for topic in attack.topics if topic not in known]
    if unknown or not attack.topics:
        raise document.error(
            "attack.topics", f"there is no topic {unknown[0]}" if unknown else "one at least is needed"
        )
    if not 0 <= attack.begin_s < scenario.duration_s:
        raise document.error("attack.begin_s", "an attack begins before the scenario ends")
    for key, value in (("rate_per_s", attack.rate_per_s), ("message_bytes", attack.message_bytes)):
        if not 0 < value < float("inf"):
            raise document.error(f"attack.{key}", "expected a number above 0")
    if not 0 <= attack.count <= _MAX_COUNT:
        raise document.error("attack.count", f"{attack.count} is not between 0 and {_MAX_COUNT:,}")


def _check_fault(document: Document, number: int, fault: Fault, names: Mapping[str, str]) -> None:
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
            raise document.error(f"fault.{number}.{key}", f"nobody is called {name}")


def _check_positive(scenario: Scenario, document: Document) -> None:
    if not 0 < scenario.duration_s < float("inf"):
        raise document.error("duration_s", "the duration must be positive")
    if not 0 < scenario.record_every_s < float("inf"):
        raise document.error("record_every_s", "the time between records must be positive")
    for number, broker in enumerate(scenario.broker):
        for key in ("cpu_mhz", "memory_mb", "bandwidth_mbps"):
            value = getattr(broker, key)
            if value is not None and not 0 < value < float("inf"):
                raise document.error(f"broker.{number}.{key}", "a capacity must be positive")


def _check_links(scenario: Scenario, document: Document, names: Mapping[str, str]) -> None:
    side = {part.name: part.name for part in scenario.broker}

    def root(name: str) -> str:
        while side[name] != name:
            name = side[name]
        return name

    for number, link in enumerate(scenario.link):
        for name in link.between:
            if names.get(name) != "broker":
                raise document.error(f"link.{number}.between", f"no broker is called {name}")
        first, second = (root(name) for name in link.between)
        if first == second:
            raise document.error(f"link.{number}.between", f"the link {' - '.join(link.between)} closes a cycle")
        side[first] = second


def _parse_filter(document: Document, key: str, text: str) -> Filter:
    try:
        return Filter.parse(text)
    except LanguageError as error:
        raise document.error(key, f"{text}: {error}") from None
