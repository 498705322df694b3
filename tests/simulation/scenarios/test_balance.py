"""The summary of balance, on loads that are made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from trimtab.load.indices import LoadIndices
from trimtab.protocol.records import SessionRecord
from trimtab.simulation.scenarios.balance import BalancePart, BalanceWatch


def load(ratio: float) -> LoadIndices:
    return LoadIndices(10.0, 0.01, 100.0, ratio, ratio, ratio, 0, 0.0, 0, 0.0, 0)


class World:
    """A chain of three clusters with two edge-brokers each, as far as the summary looks at it."""

    def __init__(self, now_s: float, ratios: dict[str, tuple[float, float]]) -> None:
        heads = list(ratios)
        links = [(heads[number], heads[number + 1]) for number in range(len(heads) - 1)]
        links += [(head, head[:-1] + str(number)) for head in heads for number in (1, 2)]
        loads = {head[:-1] + str(number): pair[number - 1] for head, pair in ratios.items() for number in (1, 2)}
        self.now_s = now_s
        self.checker = SimpleNamespace(delays=SimpleNamespace(count=0, total_s=0.0))
        self.brokers = {name: self.host(name, links, loads.get(name, 0.0)) for name in [*heads, *loads]}

    @staticmethod
    def host(name: str, links: list[tuple[str, str]], ratio: float) -> Any:
        others = [second if first == name else first for first, second in links if name in (first, second)]
        peers = {other: SimpleNamespace(name=other, role="broker", subscriptions={}) for other in others}
        counters = SimpleNamespace(control_out_count=0, publications_out_count=0)
        return SimpleNamespace(broker=SimpleNamespace(counters=counters, peers=peers), load=lambda: load(ratio))


def converged_s(ratios: dict[str, tuple[float, float]], *, clusters: bool) -> tuple[float | None, float | None]:
    part = BalancePart(joined_s=100.0, change_s=1_000.0, ratio_threshold=0.15, clusters=clusters)
    watch = BalanceWatch(part, "padres", 0.9, 0.95)
    for now_s in range(0, 900, 10):
        world: Any = World(float(now_s), ratios)
        watch.read(world)
    summary = watch.summary()
    return summary.converged_at_s, summary.largest_input_difference_at_rest


def test_clusters_are_compared_with_their_neighbours_and_by_their_means() -> None:
    falling = {"B10": (0.6, 0.4), "B20": (0.4, 0.4), "B30": (0.3, 0.3)}
    at_s, largest = converged_s(falling, clusters=True)
    assert at_s == 100.0
    assert largest is not None and round(largest, 3) == 0.2, "the largest difference is that of any two clusters"
    assert converged_s(falling, clusters=False) == (None, None)
    steep = {"B10": (0.6, 0.4), "B20": (0.3, 0.3), "B30": (0.3, 0.3)}
    assert converged_s(steep, clusters=True) == (None, None)


def session(begin_s: float, estimated: float, observed: float) -> SessionRecord:
    given: dict[str, object] = dict.fromkeys(SessionRecord.__struct_fields__, 0.5)
    words = dict.fromkeys(("session", "initiator", "acceptor", "reason", "outcome"), "B1")
    given |= {**words, "kind": "local", "index": "input", "candidates_json": "[]", "offload_json": "{}"}
    given["subscribers_moved_count"] = 1
    ratios = {
        "initiator_estimated_input_utilization_ratio": estimated,
        "initiator_observed_input_utilization_ratio": observed,
    }
    return msgspec.convert({**given, "begin_s": begin_s, **ratios}, SessionRecord)


def test_estimates_are_judged_without_joining_subscribers_and_also_without_the_change_of_rates() -> None:
    watch = BalanceWatch(BalancePart(joined_s=100.0, change_s=1_000.0), "padres", 0.9, 0.95)
    for each in (session(90.0, 0.1, 0.9), session(500.0, 0.4, 0.5), session(1_010.0, 0.4, 0.8)):
        watch.record(each)
    summary = watch.summary()
    name = "own input_utilization_ratio"
    assert (summary.estimation_error[name].count, round(summary.estimation_error[name].mean_percent, 6)) == (2, 62.5)
    steady = summary.estimation_error_at_steady_rates[name]
    assert (steady.count, round(steady.mean_percent, 6)) == (1, 25.0)
