"""The three offload algorithms on small brokers (thesis, sections 4.2.1 to 4.2.3)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trimtab import Filter
from trimtab.load.estimation import BrokerResources
from trimtab.load.profiles import ClientProfile, Sample
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction, Reason
from trimtab.policies.padres.offload import OffloadPlan
from trimtab.policies.padres.planning import plan_offload, without_leaving

CONFIG = PadresConfig()
ALL, YAHOO, IBM, BIG = (
    "[class,eq,'STOCK']",
    "[class,eq,'STOCK'],[symbol,eq,'YHOO']",
    "[class,eq,'STOCK'],[symbol,eq,'IBM']",
    "[class,eq,'STOCK'],[symbol,eq,'IBM'],[volume,>,100]",
)


def broker(input_ratio: float, output_ratio: float, subscription_count: int = 100, **more: Any) -> BrokerResources:
    """A broker that receives ten publications a second, of 100 bytes each."""
    return msgspec.structs.replace(
        BrokerResources(
            input_rate_per_s=10.0,
            input_rate_bytes_per_s=1_000.0,
            matching_delay_s=input_ratio / 10,
            subscription_count=subscription_count,
            output_rate_bytes_per_s=output_ratio * 10_000,
            bandwidth_bytes_per_s=10_000.0,
            cpu_utilization_ratio=input_ratio,
        ),
        **more,
    )


def sample(*clients: tuple[str, str, str], accepted: str = "0") -> Sample:
    """Ten publications a second; each client has a name, a filter and its bits as text."""
    width = max(len(bits) for _, _, bits in clients) if clients else 1
    return Sample(
        publications=tuple(("p", number) for number in range(width)),
        sizes_bytes=(100,) * width,
        duration_s=width / 10,
        input_rate_per_s=10.0,
        clients=tuple(ClientProfile(name, (Filter.parse(text),), int(bits, 2)) for name, text, bits in clients),
        accepted_bits=int(accepted, 2),
    )


def plan(
    action: LoadIndex, ours: BrokerResources, theirs: BrokerResources, profile: Sample, *their_filters: str
) -> OffloadPlan | NoAction:
    return plan_offload(action, ours, theirs, profile, [Filter.parse(text) for text in their_filters], config=CONFIG)


def steps(found: OffloadPlan | NoAction) -> list[tuple[str, str]]:
    assert isinstance(found, OffloadPlan), found
    return [(move.client, move.step) for move in found.moves]


def names(found: OffloadPlan | NoAction) -> list[str]:
    return [client for client, _ in steps(found)]


# Input


def test_only_filters_that_nothing_covers_bring_input_and_are_candidates() -> None:
    """The example of section 4.2.1: all stocks covers the others."""
    found = plan(
        LoadIndex.INPUT,
        broker(0.8, 0.2, matching_delay_slope_s=0.0),
        broker(0.1, 0.2, matching_delay_slope_s=0.0),
        sample(("all", ALL, "11111"), ("yahoo", YAHOO, "11000"), ("ibm", IBM, "00110")),
    )
    assert isinstance(found, OffloadPlan)
    assert found.cards[0].clients == ("all",)
    assert found.cards[0].reduced_rate_per_s == 2.0, "the others still bring four of five publications"


def test_when_a_filter_has_left_what_it_covered_is_considered() -> None:
    found = plan(
        LoadIndex.INPUT,
        broker(0.85, 0.2, matching_delay_slope_s=0.0),
        broker(0.01, 0.2, matching_delay_slope_s=0.0),
        sample(("all", ALL, "11111"), ("yahoo", YAHOO, "11000"), ("ibm", IBM, "00110")),
    )
    assert names(found)[0] == "all"
    assert set(names(found)[1:]) == {"yahoo", "ibm"}


def test_no_more_clients_of_a_filter_move_than_balance_needs() -> None:
    ten = tuple((f"c{number}", YAHOO, "11111") for number in range(10))
    found = plan(LoadIndex.INPUT, broker(0.5, 0.2, 10), broker(0.3, 0.2, 10), sample(*ten, accepted="11111"), YAHOO)
    # Each client that moves takes 0.05 from us and gives 0.03: 0.2 is gone after two and a half.
    assert len(names(found)) == 3


def test_a_single_heavy_client_is_not_swung_to_the_other_side() -> None:
    found = plan(
        LoadIndex.INPUT,
        broker(0.5, 0.2, matching_delay_slope_s=0.0),
        broker(0.3, 0.2, matching_delay_slope_s=0.0),
        sample(("all", ALL, "11111")),
    )
    assert isinstance(found, NoAction)
    assert found.reason == Reason.NOTHING_HELPS


def test_the_accepting_broker_is_not_filled_beyond_the_lower_threshold() -> None:
    four = tuple((f"c{number}", YAHOO, "11111") for number in range(4))
    # Each client is sent 1,000 bytes a second, a tenth of the bandwidth; one more fits below 0.9, two do not.
    found = plan(LoadIndex.INPUT, broker(0.8, 0.4, 10), broker(0.1, 0.75, 10), sample(*four, accepted="11111"), YAHOO)
    assert len(names(found)) == 1


def test_an_overloaded_broker_that_cannot_spare_input_matches_less() -> None:
    clients = [("all1", ALL, "11111"), *((f"zero{number}", YAHOO, "00000") for number in range(9))]
    ours = broker(1.05, 0.2, 10)
    found = plan(LoadIndex.INPUT, ours, broker(0.5, 0.85, 100), sample(*clients, accepted="00000"))
    assert isinstance(found, OffloadPlan)
    assert {move.step for move in found.moves} == {"match, overloaded"}
    assert found.ours_after.input_utilization_ratio < CONFIG.lower_overload_ratio


def test_without_a_sample_there_is_no_input_or_output_plan() -> None:
    empty = Sample((), (), 30.0, 0.0, ())
    for action in (LoadIndex.INPUT, LoadIndex.OUTPUT):
        assert plan(action, broker(0.8, 0.8), broker(0.1, 0.1), empty) == NoAction(Reason.NO_SAMPLE)
    found = plan(LoadIndex.MATCH, broker(0.8, 0.8), broker(0.1, 0.1), empty)
    assert isinstance(found, NoAction)
    assert found.reason == Reason.NO_CLIENTS


# Match


def test_clients_that_receive_least_move_first() -> None:
    found = plan(
        LoadIndex.MATCH,
        broker(0.9, 0.2, 10),
        broker(0.6, 0.2, 10),
        sample(("busy", ALL, "11111"), ("some", YAHOO, "11000"), ("none", IBM, "00000"), accepted="11111"),
        ALL,
    )
    assert names(found) == ["none", "some"]
    assert isinstance(found, OffloadPlan)
    assert abs(found.difference_after) < 0.02


def test_of_two_that_receive_the_same_the_one_that_is_no_news_to_the_other_broker_moves_first() -> None:
    found = plan(
        LoadIndex.MATCH,
        broker(0.7, 0.2, 10),
        broker(0.6, 0.2, 10),
        sample(("news", YAHOO, "11000"), ("old", IBM, "00110"), accepted="00111"),
        IBM,
    )
    assert names(found) == ["old"]


def test_an_overloaded_broker_matches_less_until_it_is_below_the_lower_threshold() -> None:
    clients = [(f"c{number}", YAHOO, "00000") for number in range(10)]
    found = plan(
        LoadIndex.MATCH, broker(0.5, 0.2, 10, cpu_utilization_ratio=1.0), broker(0.4, 0.2, 10), sample(*clients)
    )
    assert isinstance(found, OffloadPlan)
    assert found.stopped == "the overload ends"
    assert found.ours_after.cpu_utilization_ratio == pytest.approx(0.85), "each client takes 0.05"


# Output


def test_what_the_accepting_broker_receives_anyway_moves_first_and_sparing_input_comes_before_all() -> None:
    found = plan(
        LoadIndex.OUTPUT,
        broker(0.5, 0.8),
        broker(0.1, 0.5),
        sample(("news", YAHOO, "11000"), ("below", BIG, "00100"), ("top", IBM, "00110"), accepted="00111"),
        IBM,
    )
    # When the top one has left, the one below it is at the top.
    assert steps(found)[0] == ("top", "output, phase I, type I")
    assert steps(found)[1] == ("below", "output, phase I, type I")
    assert steps(found)[2] == ("news", "output, phase II")


def test_if_not_all_clients_move_nothing_is_spared_yet_the_type_comes_before_the_third() -> None:
    many = [(f"c{number}", IBM, "1100000000") for number in range(20)]
    found = plan(
        LoadIndex.OUTPUT,
        broker(0.5, 0.55),
        broker(0.5, 0.45),
        sample(*many, ("below", BIG, "0100000000"), accepted="1111111111"),
        IBM,
    )
    # Two and a half clients of 200 bytes a second each make up the difference.
    assert steps(found) == [(f"c{number}", "output, phase I, type II") for number in range(3)]


def test_what_a_moved_filter_covers_goes_back_to_phase_one() -> None:
    found = plan(
        LoadIndex.OUTPUT,
        broker(0.5, 0.8),
        broker(0.1, 0.67),
        sample(("ibm", IBM, "11000"), ("big1", BIG, "01000")),
    )
    assert steps(found) == [("ibm", "output, phase II"), ("big1", "output, phase I, type I")]


def test_every_candidate_has_a_reason() -> None:
    found = plan(
        LoadIndex.OUTPUT,
        broker(0.5, 0.8),
        broker(0.5, 0.77),
        sample(("ibm", IBM, "10000"), ("yahoo", YAHOO, "01111"), accepted="10000"),
        IBM,
    )
    assert isinstance(found, OffloadPlan)
    assert (found.cards[0].clients, found.cards[0].taken) == (("ibm",), True)
    assert all(card.why for card in found.cards)


def test_a_session_moves_no_more_clients_than_configured() -> None:
    config = PadresConfig(session_clients_max_count=2)
    many = sample(*((f"c{number}", YAHOO, "00000") for number in range(10)))
    found = plan_offload(LoadIndex.MATCH, broker(0.9, 0.2, 10), broker(0.1, 0.2, 10), many, [], config=config)
    assert len(names(found)) == 2


def test_a_client_with_several_subscriptions_moves_as_a_whole() -> None:
    both = ClientProfile("both", (Filter.parse(YAHOO), Filter.parse(IBM)), 0b11)
    other = ClientProfile("other", (Filter.parse(YAHOO),), 0b01)
    profile = msgspec.structs.replace(sample(("x", ALL, "11")), clients=(both, other))
    found = plan(LoadIndex.MATCH, broker(0.9, 0.2, 6), broker(0.2, 0.2, 6), profile)
    assert isinstance(found, OffloadPlan)
    assert sorted(names(found)) == ["both", "other"]
    assert found.ours_after.subscription_count == 6 - 3


def test_clients_that_received_nothing_yet_still_count_in_what_the_accepting_broker_bears() -> None:
    """Ten publications were sampled; a third of one per second and client would be 33 bytes of 10,000."""
    quiet = [(f"c{number}", f"[class,eq,'X'],[n,eq,{number}]", "0000000000") for number in range(60)]
    found = plan(LoadIndex.MATCH, broker(0.8, 0.2), broker(0.1, 0.825), sample(*quiet))
    assert len(names(found)) == 14
    assert isinstance(found, OffloadPlan)
    assert found.theirs_after.output_utilization_ratio == 0.825, "the estimate itself is the thesis's"


def test_clients_that_are_leaving_are_not_given_away_once_more() -> None:
    staying = sample(("stays", YAHOO, "1100000000"))
    leaving = sample(("goes", IBM, "0011100000"), ("too", YAHOO, "1100000000"))
    after = without_leaving(broker(0.8, 0.9), staying, leaving)
    assert after.subscription_count == 98
    assert after.input_rate_per_s == pytest.approx(7.0), "what only they want comes no more"
    assert after.output_rate_bytes_per_s == pytest.approx(9_000 - 500)
    nobody = msgspec.structs.replace(leaving, clients=())
    assert without_leaving(broker(0.8, 0.9), staying, nobody) == broker(0.8, 0.9)


def test_a_margin_is_kept_from_the_lower_threshold() -> None:
    many = [(f"c{number}", YAHOO, "1000000000") for number in range(20)]
    found = plan(LoadIndex.OUTPUT, broker(0.5, 0.99), broker(0.1, 0.79), sample(*many), ALL)
    assert isinstance(found, OffloadPlan)
    assert len(found.moves) == 8, "each is 0.01"


def test_a_broker_full_of_output_gives_what_is_covered_even_to_one_with_more_input() -> None:
    """Neither could do anything otherwise: input cannot come to us while our output is full."""
    covered = [(f"c{number}", YAHOO, "1000000000") for number in range(20)]
    found = plan(LoadIndex.OUTPUT, broker(0.1, 0.89), broker(0.5, 0.4), sample(*covered, ("all", ALL, "1" * 10)), YAHOO)
    assert {step for _, step in steps(found)} == {"output, phase I, type III"}
    assert isinstance(found, OffloadPlan)
    assert found.difference_after < 0.3


def test_but_not_so_far_that_it_causes_the_difference() -> None:
    covered = [(f"c{number}", YAHOO, "1000000000") for number in range(20)]
    theirs = broker(0.1, 0.4, subscription_count=10)
    found = plan(LoadIndex.OUTPUT, broker(0.1, 0.89), theirs, sample(*covered, ("all", ALL, "1" * 10)), YAHOO)
    assert isinstance(found, OffloadPlan)
    assert found.theirs_after.input_utilization_ratio <= found.ours_before.input_utilization_ratio + 0.1
    assert len(found.moves) < 20
