"""Loads of brokers and clusters to write tests with."""

from __future__ import annotations

from typing import Any

import msgspec

from trimtab.policies.padres.decisions import Status
from trimtab.policies.padres.snapshot import BrokerLoad, ClusterLoad, KnownBroker, KnownCluster


def broker(name: str, input_ratio: float = 0.5, output_ratio: float = 0.5, **more: Any) -> BrokerLoad:
    """A broker of cluster C1 with a matching delay of 20 ms."""
    load = BrokerLoad(
        broker=name,
        cluster="C1",
        status=Status.OK,
        input_utilization_ratio=input_ratio,
        output_utilization_ratio=output_ratio,
        matching_delay_s=0.02,
    )
    return msgspec.structs.replace(load, **more)


def cluster(name: str, input_ratio: float = 0.5, **more: Any) -> ClusterLoad:
    """A cluster with a matching delay of 20 ms."""
    load = ClusterLoad(
        cluster=name,
        head=name,
        status=Status.OK,
        input_utilization_ratio=input_ratio,
        output_utilization_ratio=0.5,
        matching_delay_s=0.02,
        sent_by=name,
    )
    return msgspec.structs.replace(load, **more)


def known(*loads: BrokerLoad, heard_s: float = 0.0) -> dict[str, KnownBroker]:
    return {load.broker: KnownBroker(load, heard_s, heard_s) for load in loads}


def known_clusters(*loads: ClusterLoad) -> dict[str, KnownCluster]:
    return {load.cluster: KnownCluster(load, 0.0) for load in loads}
