"""Plans: the present is complete, changes mean what they say, and what would happen is told with its risks."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pytest

from trimtab.language import Filter, Publication
from trimtab.network.network_file import NetworkPlan, parse_network
from trimtab.operations.plan.changes import ChangeError, changed, gone_brokers
from trimtab.operations.plan.comparison import compared
from trimtab.operations.plan.plan import (
    PlanError,
    continued,
    make_plan,
    read_plan,
    read_present,
    scenario_of,
    write_plan,
)
from trimtab.operations.plan.present import Present, present_of
from trimtab.policies.padres.config import PadresConfig
from trimtab.protocol.frames import BrokerStatus, PeerStatus
from trimtab.protocol.snapshots import (
    AdvertisementTold,
    PublicationTold,
    PublisherTold,
    Snapshot,
    SubscriptionTold,
)
from trimtab.simulation.workloads.quotes import generate_quotes
from trimtab.simulation.workloads.stock import StockWorkload, publication_of

NETWORK = """
[network]
enforce_capacities = true
meter_window_s = 5

[policy.padres]
local_pie_period_s = 2
local_detection_min_interval_s = 2
local_detection_max_interval_s = 4
stabilize_duration_s = 4
press_timeout_s = 4

[[broker]]
name = "B0"
listen = "127.0.0.1:7300"
cpu_mhz = 2000
bandwidth_mbps = 10

[[broker]]
name = "B1"
listen = "127.0.0.1:7301"
cpu_mhz = 20
bandwidth_mbps = 0.3

[[broker]]
name = "B2"
listen = "127.0.0.1:7302"
cpu_mhz = 40
bandwidth_mbps = 0.6

[[link]]
between = ["B0", "B1"]

[[link]]
between = ["B2", "B0"]
"""


def status(name: str, *peers: PeerStatus, **values: object) -> BrokerStatus:
    zeros = {field.name: 0 for field in msgspec.structs.fields(BrokerStatus) if field.required}
    load = dict.fromkeys(
        (
            "input_utilization_ratio",
            "output_utilization_ratio",
            "matching_delay_s",
            "input_queue_count",
            "output_queue_count",
        ),
        0.0,
    )
    found = {**zeros, "name": name, "load": load, "links_missing": (), "peers": peers, "session": f"{name}-1"}
    return BrokerStatus(**{**found, **values})  # type: ignore[arg-type]


def neighbour(name: str) -> PeerStatus:
    return PeerStatus(name, "broker", True, 0, 0, 0, 0)


def told(seed: int, subscribers_count: int = 40) -> dict[str, tuple[BrokerStatus, Snapshot]]:
    """Publishers at B0, all subscribers at B1, as brokers would tell them."""
    rng = Random(seed)
    quotes = generate_quotes(rng, symbols_count=4, days_count=50)
    workload = StockWorkload(quotes, rng, symbols_count=4)
    by_symbol = {symbol: [q for q in quotes if q.symbol == symbol][:30] for symbol in workload.symbols}
    head = Snapshot(
        is_last=True,
        sampled_s=4.0,
        advertisements=tuple(AdvertisementTold(f"P-{each}", workload.advertisement(each)) for each in by_symbol),
        publishers=tuple(PublisherTold(f"P-{each}", 20, 300.0) for each in by_symbol),
        publications=tuple(
            PublicationTold(f"P-{each}", dict(publication_of(quote)))
            for each, own in by_symbol.items()
            for quote in own
        ),
    )
    edge = Snapshot(
        is_last=True,
        sampled_s=4.0,
        subscriptions=tuple(
            SubscriptionTold(f"S{number}", filter, 0.5 if number % 2 else None)
            for number, filter in enumerate(workload.subscriptions(subscribers_count))
        ),
    )
    return {
        "B0": (status("B0", neighbour("B1"), neighbour("B2")), head),
        "B1": (status("B1", neighbour("B0")), edge),
        "B2": (status("B2", neighbour("B0")), Snapshot(is_last=True, sampled_s=4.0)),
    }


def network() -> NetworkPlan:
    return parse_network(NETWORK)


def present(seed: int = 1) -> Present:
    return present_of(network(), told(seed), 1_700_000_000.0, 4.0)


# ---- the present ----


@pytest.mark.parametrize("seed", range(5))
def test_every_client_filter_and_publication_is_in_the_present(seed: int) -> None:
    answers = told(seed, 10 + seed)
    found = present_of(network(), answers, 0.0, 4.0)
    filters = [(each.client, each.filter, each.within_s) for _, part in answers.values() for each in part.subscriptions]
    assert [(c.name, one.filter, one.within_s) for c in found.clients for one in c.subscriptions] == filters
    assert {c.name: len(c.publications) for c in found.clients if c.advertisements} == {
        each.client: 30 for each in answers["B0"][1].publishers
    }
    assert sum(client.rate_per_s for client in found.clients) == pytest.approx(4 * 20 / 4.0)
    assert {client.broker for client in found.clients if client.subscriptions} == {"B1"}
    assert found.links == (("B0", "B1"), ("B0", "B2"))
    assert found.edges == ["B1", "B2"]


def test_the_scenario_has_the_brokers_links_and_settings_of_the_network() -> None:
    scenario = scenario_of(present(), "padres", 100.0, 7)
    assert [(each.name, each.cpu_mhz, each.bandwidth_mbps) for each in scenario.broker] == [
        ("B0", 2000, 10),
        ("B1", 20, 0.3),
        ("B2", 40, 0.6),
    ]
    assert [link.between for link in scenario.link] == [("B0", "B1"), ("B0", "B2")]
    assert (scenario.policy.name, scenario.seed, scenario.policy.config(PadresConfig).local_pie_period_s) == (
        "padres",
        7,
        2,
    )
    assert scenario.network.meter_window_s == 5


def test_what_cannot_be_known_is_said() -> None:
    answers = told(1)
    head, snapshot = answers["B0"]
    silent = msgspec.structs.replace(snapshot, publishers=snapshot.publishers[:3], left_out_count=5)
    answers["B0"] = (head, silent)
    answers["B1"] = (status("B1", neighbour("B0"), neighbour("B9")), answers["B1"][1])
    unknown = "\n".join(present_of(network(), answers, 0.0, 4.0).unknown)
    assert "1 publishers published nothing during the sample of 4 s" in unknown
    assert "5 publications were counted but not kept" in unknown
    assert "broker B9, a neighbour of B1, is not in the network file" in unknown


def test_a_publication_that_nobody_announced_is_left_out() -> None:
    answers = told(1)
    head, snapshot = answers["B0"]
    strange = PublicationTold(snapshot.publishers[0].client, {"class": "OTHER"})
    answers["B0"] = (head, msgspec.structs.replace(snapshot, publications=(*snapshot.publications, strange)))
    found = present_of(network(), answers, 0.0, 4.0)
    assert any("1 sampled publications that no advertisement announces" in each for each in found.unknown)
    for client in found.clients:
        assert all(any(ad.announces(Publication(each)) for ad in client.advertisements) for each in client.publications)


def test_a_processor_that_is_not_enforced_is_found_from_the_matching_delay() -> None:
    plan = parse_network(NETWORK.replace("enforce_capacities = true", "enforce_capacities = false"))
    answers = told(1)
    load = {**answers["B1"][0].load, "matching_delay_s": 0.001}
    answers["B1"] = (status("B1", neighbour("B0"), load=load, subscriptions_count=40), answers["B1"][1])
    found = present_of(plan, answers, 0.0, 4.0)
    assert found.broker("B1").cpu_mhz == pytest.approx(660.0)
    assert found.broker("B1").cpu_source == "measured"
    assert (found.broker("B2").cpu_mhz, found.broker("B2").cpu_source) == (None, "unknown")


def test_a_present_survives_its_file(tmp_path: Path) -> None:
    plan = make_plan(present(), minutes=0.5)
    write_plan(tmp_path / "new", plan, present())
    assert read_present(tmp_path / "new") == present()
    assert read_plan(tmp_path / "new") == plan
    with pytest.raises(PlanError, match="cannot be read"):
        read_plan(tmp_path / "nowhere")
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(PlanError, match="not a plan"):
        read_plan(tmp_path)


# ---- changes ----


def test_a_broker_less_leaves_its_clients_and_neighbours_to_the_strongest_neighbour() -> None:
    after, words = changed(present(), ["broker.B0=gone"])
    assert [each.name for each in after.brokers] == ["B1", "B2"]
    assert after.links == (("B2", "B1"),)
    assert {client.broker for client in after.clients if client.advertisements} == {"B2"}
    assert words == ["B0 is gone; its 4 clients join B2, and B1 is linked to B2"]


def test_traffic_is_multiplied_for_all_or_for_one() -> None:
    before = {client.name: client.rate_per_s for client in present().clients}
    name = next(client.name for client in present().clients if client.advertisements)
    after, _ = changed(present(), ["traffic=2", f"traffic.{name}=3"])
    assert {client.name: client.rate_per_s for client in after.clients} == {
        each: rate * (6 if each == name else 2) for each, rate in before.items()
    }


def test_machines_clients_and_settings_can_be_changed() -> None:
    changes = [
        "cpu.B1=100",
        "bandwidth.B1=2",
        "client.S3=B2",
        "policy.padres.local_ratio_threshold=0.2",
        "policy.padres.global_ratio_threshold=0.3",
    ]
    after, words = changed(present(), changes)
    assert (after.broker("B1").cpu_mhz, after.broker("B1").bandwidth_mbps) == (100, 2)
    assert next(client.broker for client in after.clients if client.name == "S3") == "B2"
    assert after.policy.config(PadresConfig).local_ratio_threshold == 0.2
    assert words[0] == "B1 has 100 MHz instead of 20"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("broker.B9=gone", "no broker is named B9; there are B0, B1, B2"),
        ("broker.B1=slow", "a broker can only be gone"),
        ("traffic=0", "expected a factor above 0"),
        ("traffic.P-NOBODY=2", "no publisher is named P-NOBODY"),
        ("bandwidth.B1=fast", "expected a bandwidth in Mbps above 0"),
        ("cpu=5", "expected broker.NAME=gone"),
        ("weather=bad", "expected broker.NAME=gone"),
        ("traffic", "expected broker.NAME=gone"),
        (
            "policy.padres.speed=1",
            "--set policy.padres.speed=1: unknown key speed in policy.padres; expected pie_ratio",
        ),
        ("policy.magic.speed=1", "no policy has a table magic; expected one of padres, naive"),
        ("padres.speed=1", "expected broker.NAME=gone"),
        ("policy.padres.local_ratio_threshold=-1", "--set policy.padres.local_ratio_threshold=-1: "),
        ("client.S1=B9", "no broker is named B9"),
        ("client.S99=B1", "no client is named S99; of 44 the nearest are"),
    ],
)
def test_a_wrong_change_is_refused_with_what_was_expected(change: str, reason: str) -> None:
    with pytest.raises(ChangeError, match=reason):
        changed(present(), [change])


def test_brokers_that_are_gone_are_known_before_anybody_is_asked() -> None:
    assert gone_brokers(["traffic=2", "broker.B2=gone"]) == ["B2"]


# ---- plans ----


def test_an_overloaded_broker_is_levelled_by_the_plan_and_stays_overloaded_without() -> None:
    plan = make_plan(present(), policy="padres", minutes=2.5)
    assert plan.as_it_is is not None
    assert plan.as_it_is.brokers["B1"].end.output_utilization_ratio > 1
    assert plan.as_it_is.moves_count == 0
    planned = plan.planned
    assert planned.moves_count > 0 and planned.sessions
    assert planned.brokers["B1"].end.output_utilization_ratio < 0.9
    assert planned.brokers["B2"].end.clients_count > 0
    assert sum(each.end.clients_count for each in planned.brokers.values()) == 44
    assert planned.end_delay_p99_s < plan.as_it_is.end_delay_p99_s
    assert planned.deliveries_count > plan.as_it_is.deliveries_count
    assert planned.violations == plan.as_it_is.violations == ()


def test_queues_are_filled_before_the_policy_begins_as_far_as_traffic_fills_them() -> None:
    answers = told(1)
    answers["B1"] = (status("B1", neighbour("B0"), input_count=400), answers["B1"][1])
    answers["B2"] = (status("B2", neighbour("B0"), input_count=300), answers["B2"][1])
    plan = make_plan(present_of(network(), answers, 0.0, 4.0), minutes=0.5)
    begin = plan.planned.brokers["B1"].begin
    assert 400 <= begin.input_queue_count + begin.output_queue_count < 1000
    assert any(each.startswith("what waits in queues (300 at B2): traffic as measured") for each in plan.unknown)


def test_without_another_policy_and_without_changes_there_is_one_future() -> None:
    plan = make_plan(present(), minutes=1)
    assert plan.as_it_is is None
    assert plan.policy == plan.planned.policy == "none"
    assert any(each.startswith("B1 has ") and "bandwidth" in each for each in plan.risks)
    assert any("of 20 clients with a latency requirement" in each for each in plan.risks)


def test_the_same_snapshot_and_seed_give_the_same_plan() -> None:
    first, second = (make_plan(present(), policy="padres", minutes=0.5, seed=3) for _ in range(2))
    assert first == second


def test_several_seeds_tell_what_is_chance() -> None:
    plan = make_plan(present(), policy="padres", minutes=0.5, runs_count=3)
    spread = plan.spread
    assert (spread.runs_count, len(spread.level_after_s)) == (3, 3)
    end, own = plan.planned.brokers["B2"].end, spread.brokers["B2"]
    for name in end.__struct_fields__:
        low, mean, high = (getattr(each, name) for each in (own.low, own.mean, own.high))
        assert low <= getattr(end, name) <= high and low - 1e-9 <= mean <= high + 1e-9
    assert spread.moves_count[0] <= plan.planned.moves_count <= spread.moves_count[1]


def test_more_traffic_is_more_load() -> None:
    outcome = continued(present(), "none", 1, 1)
    doubled = continued(changed(present(), ["traffic=2"])[0], "none", 1, 1)
    ratio = doubled.brokers["B1"].end.input_utilization_ratio / outcome.brokers["B1"].end.input_utilization_ratio
    assert ratio == pytest.approx(2, rel=0.05)


def test_progress_is_told_for_both_futures() -> None:
    seen: list[tuple[str, float]] = []
    make_plan(present(), policy="naive", minutes=1, on_progress=lambda which, share: seen.append((which, share)))
    assert [share for which, share in seen if which == "as it is"][-1] == 1.0
    assert [share for which, share in seen if which == "as planned"][-1] == 1.0


def test_a_network_without_traffic_cannot_be_continued() -> None:
    quiet = tuple(msgspec.structs.replace(each, rate_per_s=0.0) for each in present().clients)
    with pytest.raises(PlanError, match="there is no traffic to continue"):
        make_plan(msgspec.structs.replace(present(), clients=quiet))


def test_a_former_plan_is_compared_with_what_brokers_tell() -> None:
    plan = make_plan(present(), minutes=1)
    end = plan.planned.brokers["B1"].end
    load = {name: getattr(end, name) + 0.1 for name in end.__struct_fields__}
    seen = [{"B1": status("B1", load=load, moved_in_count=3, policy="padres")}]
    found = compared(plan, seen, 1.0)
    assert list(found.brokers) == ["B1"]
    assert found.mean_error["input_utilization_ratio"] == pytest.approx(0.1)
    assert found.largest_error["clients_count"] == pytest.approx(end.clients_count)
    assert (found.moves_observed_count, found.running_policies) == (3, ("padres",))
    with pytest.raises(PlanError, match="no broker in common"):
        compared(plan, [{"X": status("X")}], 1.0)


def test_filters_are_kept_as_they_are() -> None:
    texts = [str(one.filter) for client in present().clients for one in client.subscriptions]
    assert all(Filter.parse(text) for text in texts) and len(texts) == 40
