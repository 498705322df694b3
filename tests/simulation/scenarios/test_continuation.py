"""A network that is continued in the simulator: everybody is there, rates and contents are those that were measured."""

from __future__ import annotations

from collections import Counter

import pytest

from trimtab.language import Filter
from trimtab.protocol.effects import Deliver
from trimtab.protocol.messages import Publish
from trimtab.simulation.scenarios.continuation import Continuation, ContinuedClient, Wanted, begin_after_s
from trimtab.simulation.scenarios.messages import BrokerPart, LinkPart, Scenario

ADVERTISED = Filter.parse("[class,eq,'STOCK'],[symbol,isPresent,''],[volume,isPresent,0]")
BEGIN_S = 2.0
LENGTH_S = 50.0


def scenario(duration_s: float = BEGIN_S + LENGTH_S) -> Scenario:
    return Scenario(
        duration_s=duration_s,
        broker=[BrokerPart(name="B1", cpu_mhz=500, bandwidth_mbps=2), BrokerPart(name="B2")],
        link=[LinkPart(between=("B1", "B2"))],
    )


def publisher(name: str, rate_per_s: float, *volumes: int, size_bytes: int = 400) -> ContinuedClient:
    return ContinuedClient(
        name=name,
        broker="B2",
        advertisements=(ADVERTISED,),
        rate_per_s=rate_per_s,
        size_bytes=size_bytes,
        publications=tuple({"class": "STOCK", "symbol": name, "volume": volume} for volume in volumes),
    )


def subscriber(name: str, text: str, within_s: float | None = None) -> ContinuedClient:
    return ContinuedClient(name=name, broker="B1", subscriptions=(Wanted(Filter.parse(text), within_s),))


def run(*clients: ContinuedClient) -> tuple[Counter[str], Continuation]:
    continuation = Continuation(scenario(), clients, BEGIN_S)
    found: Counter[str] = Counter()

    def note(client: str, deliver: Deliver, at_s: float) -> None:
        found[client] += 1

    continuation.world.on_delivery = note
    summary = continuation.run()
    assert summary.violations == []
    return found, continuation


def test_each_subscriber_gets_its_share_of_what_was_sampled_at_the_measured_rate() -> None:
    found, _ = run(
        publisher("A", 4.0, 1, 2, 3, 4),
        publisher("B", 0.5, 10),
        subscriber("all", "class = 'STOCK'"),
        subscriber("half", "symbol = 'A' AND volume > 2"),
        subscriber("large", "volume >= 10"),
        subscriber("nothing", "volume > 99"),
    )
    assert found["all"] == pytest.approx(LENGTH_S * 4.5, abs=2)
    assert found["half"] == pytest.approx(LENGTH_S * 2, abs=2)  # all samples come before any comes again
    assert found["large"] == pytest.approx(LENGTH_S * 0.5, abs=1)
    assert found["nothing"] == 0


def test_brokers_know_the_sizes_of_publications() -> None:
    _, continuation = run(publisher("A", 10.0, 1, size_bytes=1000), subscriber("s", "class = 'STOCK'"))
    meters = continuation.world.brokers["B2"].broker.meters
    published = Publish(publisher="A", sequence=1, values={}, origin_s=0.0)
    assert (meters.publication_bytes, meters.size_of_bytes(published)) == (1000, 1000)


def test_requirements_are_kept_with_their_subscriptions() -> None:
    _, continuation = run(publisher("A", 1.0, 1), subscriber("s", "class = 'STOCK'", 0.5))
    assert continuation.world.brokers["B1"].broker.peers["s"].strictest_within_s() == 0.5


def test_a_client_without_a_rate_or_without_samples_is_silent() -> None:
    found, _ = run(publisher("A", 0.0, 1), publisher("B", 5.0), subscriber("s", "class = 'STOCK'"))
    assert found["s"] == 0


def test_the_same_seed_gives_the_same_history() -> None:
    hashes = set()
    for _ in range(2):
        clients = [publisher("A", 3.0, 1, 2, 3), subscriber("s", "volume > 1")]
        hashes.add(Continuation(scenario(), clients, BEGIN_S).run().trace_hash)
    assert len(hashes) == 1


def test_publications_wait_until_slow_links_have_carried_all_filters() -> None:
    many = [subscriber(f"s{number}", "class = 'STOCK'") for number in range(1000)]
    assert begin_after_s(many, [None]) == 1.0
    assert begin_after_s(many, [10.0, 0.1]) == pytest.approx(1.0 + 1000 * 300 * 8 / 0.1e6)
