"""Random trace trees, and the paper's algorithms 1 to 3 word by word, one walk for each candidate."""

from __future__ import annotations

from random import Random

from trimtab.policies.relocation.grape_tracing import BrokerTrace, Headroom


def random_traces(rng: Random, brokers_count: int, published_count: int = 100) -> list[BrokerTrace]:
    """A random tree of brokers, with some deliveries everywhere."""
    links: dict[int, list[int]] = {number: [] for number in range(brokers_count)}
    for number in range(1, brokers_count):
        other = rng.randrange(number)
        links[number].append(other)
        links[other].append(number)
    traces = []
    for number, others in links.items():
        bits = sum(1 << place for place in range(published_count) if rng.random() < 0.2) if rng.random() < 0.7 else 0
        traces.append(
            BrokerTrace(
                broker=f"B{number}",
                neighbours=tuple(f"B{other}" for other in others),
                bits_hex=f"{bits:x}",
                deliveries_count=bits.bit_count() * rng.randint(1, 4),
                input_delay_s=rng.uniform(0, 0.01),
                matching_delay_s=rng.uniform(0, 0.02),
                output_delays_s={f"B{other}": rng.uniform(0, 0.01) for other in others},
                client_output_delay_s=rng.uniform(0, 0.01),
                links_s={f"B{other}": rng.uniform(0, 0.01) for other in others if rng.random() < 0.8},
                room=roomy(),
            )
        )
    return traces


def roomy(input_rate_per_s: float = 10.0) -> Headroom:
    """A broker with a third of its input and little of its output in use."""
    return Headroom(
        input_rate_per_s=input_rate_per_s,
        matching_delay_s=0.03,
        output_rate_bytes_per_s=1_000,
        bandwidth_bytes_per_s=125_000,
        publication_bytes=320,
    )


def mean_delay_s(traces: list[BrokerTrace], candidate: str, round_trip_s: float) -> float:
    """Algorithm 1, with the way from the publisher to the candidate in front."""
    by_name = {trace.broker: trace for trace in traces}
    total_s, count = 0.0, 0

    def walk(name: str, came_from: str, so_far_s: float) -> None:
        nonlocal total_s, count
        here = by_name[name]
        total_s += here.deliveries_count * (so_far_s + here.delay_to_clients_s)
        count += here.deliveries_count
        for neighbour in here.neighbours:
            if neighbour != came_from:
                there = by_name[neighbour]
                ways_s = [here.links_s.get(neighbour, 1.0), there.links_s.get(name, 1.0)]
                link_s = min(ways_s) if min(ways_s) < 1.0 else 0.0
                walk(neighbour, name, so_far_s + here.delay_to_s(neighbour) + link_s)

    walk(candidate, "", round_trip_s / 2)
    return total_s / count if count else 0.0


def message_count(traces: list[BrokerTrace], candidate: str, published_count: int) -> int:
    """Algorithms 2 and 3, with all publications of the session at the candidate itself."""
    by_name = {trace.broker: trace for trace in traces}

    def vector(name: str, came_from: str) -> int:
        bits = by_name[name].bits
        for neighbour in by_name[name].neighbours:
            if neighbour != came_from:
                bits |= vector(neighbour, name)
        return bits

    def total(name: str, came_from: str) -> int:
        own = vector(name, came_from).bit_count() if came_from else published_count
        return own + sum(total(each, name) for each in by_name[name].neighbours if each != came_from)

    return total(candidate, "")
