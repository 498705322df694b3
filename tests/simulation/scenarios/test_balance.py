"""The summary of balance, on loads that are made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from trimtab.broker.meters import MeterConfig
from trimtab.load.indices import LoadIndices
from trimtab.protocol.records import MoveRecord, SessionRecord
from trimtab.simulation.scenarios.balance import BalancePart, BalanceSummary, BalanceWatch


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
        meters = SimpleNamespace(config=MeterConfig(bandwidth_bytes_per_s=1_000.0, matching_s_per_subscription=0.001))
        broker = SimpleNamespace(counters=counters, peers=peers, meters=meters)
        return SimpleNamespace(broker=broker, load=lambda: load(ratio))


def converged_s(ratios: dict[str, tuple[float, float]], *, clusters: bool) -> tuple[float | None, float | None]:
    part = BalancePart(joined_s=100.0, change_s=1_000.0, ratio_threshold=0.15, clusters=clusters)
    watch = BalanceWatch(part, 0.9, 0.95)
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
    watch = BalanceWatch(BalancePart(joined_s=100.0, change_s=1_000.0), 0.9, 0.95)
    for each in (session(90.0, 0.1, 0.9), session(500.0, 0.4, 0.5), session(1_010.0, 0.4, 0.8)):
        watch.record(each)
    summary = watch.summary()
    name = "own input_utilization_ratio"
    assert (summary.estimation_error[name].count, summary.estimation_error[name].mean_points) == (2, 25.0)
    steady = summary.estimation_error_at_steady_rates[name]
    assert (steady.count, steady.mean_points) == (1, 10.0), "0.5 where 0.4 was expected: ten points of utilisation"


def made_up(steps: list[tuple[float, float, float]], moved_s: list[float]) -> BalanceSummary:
    """A cluster pair; at each time the difference of two brokers, and how long the output queue of one takes."""
    watch = BalanceWatch(BalancePart(joined_s=0.0, change_s=2_000.0), 0.9, 0.95)
    for now_s, difference, queue_s in steps:
        world: Any = World(now_s, {"B10": (0.5, 0.5 - difference)})
        busy = msgspec.structs.replace(load(0.5), output_queue_delay_s=queue_s)
        world.brokers["B11"].load = lambda busy=busy: busy
        watch.read(world)
    for number, end_s in enumerate(moved_s):
        watch.record(MoveRecord(end_s - 1, end_s, f"c{number}", "B11", "B12", "s", "moved", ""))
    return watch.summary()


def test_rest_begins_when_loads_are_level_nobody_moves_and_the_backlog_is_gone() -> None:
    """Section 5.2.1: level at 100 s, the last client moves at 500 s, what waited at B11 is gone at 700 s."""
    steps = [(10.0 * n, 0.3 if n < 10 else 0.05, 30.0 if n < 70 else 0.1) for n in range(150)]
    summary = made_up(steps, [50.0, 500.0])
    assert (summary.converged_at_s, summary.rest_from_s) == (100.0, 700.0)
    assert made_up(steps, [50.0, 900.0]).rest_from_s == 900.0
    assert round(summary.above_optimum["output ratio"], 4) == round(0.5 / 0.475 - 1, 4), "0.5 and 0.45 could be 0.475"
    assert summary.input_difference is not None
    assert round(summary.input_difference.most, 6) == 0.05


def test_what_was_not_reached_is_told_with_how_near_it_came() -> None:
    steps = [(10.0 * n, 0.12 if 40 <= n <= 75 else 0.3, 0.0) for n in range(100)]
    summary = made_up(steps, [])
    assert summary.converged_at_s is None and summary.rest_from_s is None
    assert summary.nearest is not None
    assert (round(summary.nearest.ratio, 3), summary.nearest.from_s) == (1.2, 400.0)
    assert summary.nearest_after is None
