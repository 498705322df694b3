"""PIE: what brokers tell each other about their load, when they tell it, and how long it is believed.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 3.3.1.

Each edge-broker publishes its load to its cluster (class LOCAL_PIE), each cluster-head the mean of its cluster to the
neighbouring clusters (class GLOBAL_PIE), as ordinary publications with flat attributes. A broker speaks when it has
something new to say, and often enough not to be forgotten.

Deviations:
- The utilisation of processor and memory, the rates and the number of subscriptions are told as well, so that others
  see why a broker is overloaded and how large it is.
- A change of status, of the balanced set or of cluster is always worth a message. By the letter of the thesis a load
  index must have changed too, but then a broker that becomes available might not be noticed.
- A broker that has nothing new to say repeats itself after two periods, whatever its status, so that it is not
  forgotten after three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from trimtab.language import Value
from trimtab.load.estimation import BrokerResources
from trimtab.load.indices import LoadIndices
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import Status

LOCAL_PIE: Final = "LOCAL_PIE"
GLOBAL_PIE: Final = "GLOBAL_PIE"
_REFRESH_PERIODS: Final = 2


class BrokerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """An edge-broker's load, as it tells it to its cluster (local PIE)."""

    broker: str
    cluster: str
    status: Status
    input_utilization_ratio: float
    output_utilization_ratio: float
    matching_delay_s: float
    cpu_utilization_ratio: float = 0.0
    memory_utilization_ratio: float = 0.0
    input_rate_per_s: float = 0.0
    output_rate_per_s: float = 0.0
    """Publications that it sends, all receivers together."""
    subscription_count: int = 0
    client_count: int = 0
    balanced_with: tuple[str, ...] = ()
    """Brokers from which this one differs too little to balance, in the order of their names."""


class ClusterLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster's load, as its head tells it to neighbouring clusters (global PIE); the indices are means."""

    cluster: str
    head: str
    status: Status
    input_utilization_ratio: float
    output_utilization_ratio: float
    matching_delay_s: float
    edge_broker_count: int = 0
    sent_by: str = ""
    """The head that passed the message on; the cluster's own head at first."""


class KnownBroker(msgspec.Struct, frozen=True):
    """What was last heard of a broker, and when."""

    load: BrokerLoad
    heard_s: float
    status_since_s: float
    """When it was first heard to have this status."""


class KnownCluster(msgspec.Struct, frozen=True):
    """What was last heard of a cluster, and when."""

    load: ClusterLoad
    heard_s: float


Load = TypeVar("Load", BrokerLoad, ClusterLoad)
Known = TypeVar("Known", KnownBroker, KnownCluster)


def broker_load(
    broker: str,
    cluster: str,
    status: Status,
    resources: BrokerResources,
    indices: LoadIndices | None = None,
    *,
    client_count: int = 0,
    balanced_with: Sequence[str] = (),
) -> BrokerLoad:
    """The load to tell, from what the broker measured of itself.

    Where there are indices they are told as they were smoothed (equation 3.4): the product of a smoothed rate and a
    smoothed delay is not the smoothed ratio.
    """
    load = resources if indices is None else indices
    return BrokerLoad(
        broker=broker,
        cluster=cluster,
        status=status,
        input_utilization_ratio=load.input_utilization_ratio,
        output_utilization_ratio=load.output_utilization_ratio,
        matching_delay_s=load.matching_delay_s,
        cpu_utilization_ratio=resources.cpu_utilization_ratio,
        memory_utilization_ratio=resources.memory_utilization_ratio,
        input_rate_per_s=resources.input_rate_per_s,
        output_rate_per_s=_publications_per_s(resources),
        subscription_count=resources.subscription_count,
        client_count=client_count,
        balanced_with=tuple(sorted(balanced_with)),
    )


def _publications_per_s(resources: BrokerResources) -> float:
    """What is sent, in publications of the size of those that come in."""
    if resources.input_rate_bytes_per_s <= 0:
        return 0.0
    return resources.output_rate_bytes_per_s * resources.input_rate_per_s / resources.input_rate_bytes_per_s


_BROKER_NAMES: Final = {
    "broker": "brokerID",
    "cluster": "clusterID",
    "status": "status",
    "input_utilization_ratio": "inputRatio",
    "output_utilization_ratio": "outputRatio",
    "matching_delay_s": "matchingDelay",
    "cpu_utilization_ratio": "cpuRatio",
    "memory_utilization_ratio": "memoryRatio",
    "input_rate_per_s": "inputRate",
    "output_rate_per_s": "outputRate",
    "subscription_count": "subscriptions",
    "client_count": "clients",
    "balanced_with": "balancedSet",
}
_CLUSTER_NAMES: Final = {
    "cluster": "clusterID",
    "head": "brokerID",
    "status": "status",
    "input_utilization_ratio": "inputRatio",
    "output_utilization_ratio": "outputRatio",
    "matching_delay_s": "matchingDelay",
    "edge_broker_count": "edgeBrokers",
    "sent_by": "sentBy",
}


def broker_load_to_values(load: BrokerLoad) -> dict[str, Value]:
    """A broker's load as the attributes of a publication.

    >>> load = BrokerLoad(broker="B1", cluster="C1", status=Status.OK, input_utilization_ratio=0.5,
    ...     output_utilization_ratio=0.25, matching_delay_s=0.02, balanced_with=("B2",))
    >>> values = broker_load_to_values(load)
    >>> values["class"], values["clusterID"], values["status"], values["balancedSet"]
    ('LOCAL_PIE', 'C1', 'OK', '["B2"]')
    >>> broker_load_from_values(values) == load
    True
    """
    return _to_values(LOCAL_PIE, load, _BROKER_NAMES)


def broker_load_from_values(values: Mapping[str, Value]) -> BrokerLoad:
    """Read a broker's load; raises a ValueError that says what is wrong with the attributes."""
    return _from_values(LOCAL_PIE, values, BrokerLoad, _BROKER_NAMES)


def cluster_load_to_values(load: ClusterLoad) -> dict[str, Value]:
    """A cluster's load as the attributes of a publication."""
    return _to_values(GLOBAL_PIE, load, _CLUSTER_NAMES)


def cluster_load_from_values(values: Mapping[str, Value]) -> ClusterLoad:
    """Read a cluster's load; raises a ValueError that says what is wrong with the attributes."""
    return _from_values(GLOBAL_PIE, values, ClusterLoad, _CLUSTER_NAMES)


def _to_values(kind: str, load: BrokerLoad | ClusterLoad, names: Mapping[str, str]) -> dict[str, Value]:
    values: dict[str, Value] = {"class": kind}
    for field, name in names.items():
        value = getattr(load, field)
        if isinstance(value, tuple):
            value = msgspec.json.encode(value).decode()
        values[name] = value.value if isinstance(value, Status) else value
    return values


def _from_values(kind: str, values: Mapping[str, Value], wanted: type[Load], names: Mapping[str, str]) -> Load:
    if values.get("class") != kind:
        raise ValueError(f"not load information: the class is {values.get('class')!r}, not {kind!r}")
    fields: dict[str, object] = {field: values[name] for field, name in names.items() if name in values}
    try:
        if "balanced_with" in fields:
            fields["balanced_with"] = msgspec.json.decode(str(fields["balanced_with"]), type=tuple[str, ...])
        return msgspec.convert(fields, wanted)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ValueError(f"not load information: {error}") from None


def delay_difference(delay_s: float, other_delay_s: float, normalization_s: float) -> float:
    """The difference of two delays as a share of the normalisation factor (d_%Diff, equation 3.5).

    >>> delay_difference(0.75, 0.25, normalization_s=0.5)
    1.0
    """
    return (delay_s - other_delay_s) / normalization_s


def has_news(
    current: BrokerLoad | ClusterLoad,
    told: BrokerLoad | ClusterLoad | None,
    silent_s: float,
    period_s: float,
    config: PadresConfig,
) -> bool:
    """Whether to publish the load, given what was told last and how long ago that was.

    >>> load = BrokerLoad(broker="B1", cluster="C1", status=Status.OK, input_utilization_ratio=0.5,
    ...     output_utilization_ratio=0.25, matching_delay_s=0.02)
    >>> config = PadresConfig()
    >>> has_news(load, None, 0.0, 30.0, config), has_news(load, load, 30.0, 30.0, config)
    (True, False)
    >>> has_news(msgspec.structs.replace(load, input_utilization_ratio=0.53), load, 30.0, 30.0, config)
    True
    """
    if told is None or silent_s >= _REFRESH_PERIODS * period_s:
        return True
    if current.status != told.status or current.cluster != told.cluster:
        return True
    if isinstance(current, BrokerLoad) and isinstance(told, BrokerLoad) and current.balanced_with != told.balanced_with:
        return True
    if current.status != Status.OK:
        return False
    ratio_change = max(
        abs(current.input_utilization_ratio - told.input_utilization_ratio),
        abs(current.output_utilization_ratio - told.output_utilization_ratio),
    )
    delay_change = abs(delay_difference(current.matching_delay_s, told.matching_delay_s, config.delay_normalization_s))
    return ratio_change > config.pie_ratio_threshold or delay_change > config.pie_delay_threshold


def with_broker(known: Mapping[str, KnownBroker], load: BrokerLoad, now_s: float) -> dict[str, KnownBroker]:
    """What is known after a broker told its load."""
    before = known.get(load.broker)
    since_s = before.status_since_s if before is not None and before.load.status == load.status else now_s
    return {**known, load.broker: KnownBroker(load, now_s, since_s)}


def with_cluster(known: Mapping[str, KnownCluster], load: ClusterLoad, now_s: float) -> dict[str, KnownCluster]:
    """What is known after a cluster's head told the cluster's load."""
    return {**known, load.cluster: KnownCluster(load, now_s)}


def still_believed(known: Mapping[str, Known], now_s: float, lifetime_s: float) -> dict[str, Known]:
    """What is known, without what was heard too long ago."""
    return {name: entry for name, entry in known.items() if now_s - entry.heard_s < lifetime_s}


def without_cluster(known: Mapping[str, KnownBroker], cluster: str) -> dict[str, KnownBroker]:
    """What is known, without the brokers of a cluster: a session with it has ended."""
    return {name: entry for name, entry in known.items() if entry.load.cluster != cluster}


def may_pass_on(own_status: Status, load: ClusterLoad, own_cluster: str, *, saturated: bool = False) -> bool:
    """Whether a cluster-head hands another cluster's load on to its own neighbours (section 3.3.1.2).

    Clusters balance with neighbours only; a cluster that is not available steps aside, so that clusters on its two
    sides may find each other.
    """
    return (own_status == Status.NOT_AVAILABLE or saturated) and load.cluster != own_cluster
