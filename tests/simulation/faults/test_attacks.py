"""Attacks on a small warning system: the others' latencies hardly change, and the attacker is told why it waits."""

from __future__ import annotations

import pytest

from trimtab.cli.simulation.crisis_lines import attack_lines
from trimtab.simulation.faults.attacks import AttackKind, AttackSummary
from trimtab.simulation.scenarios.documents import ScenarioError
from trimtab.simulation.scenarios.run import ScenarioRun
from trimtab.simulation.scenarios.scenario import read_scenario

SHORT = {"duration_s": "8.0", "attack.begin_s": "3.0", "crisis.join_every_s": "0.05", "crisis.coarseness": "4"}
STALLING = {"network__window_frames_count": "1500", "network__client_queue_max_count": "100", "duration_s": "14"}
"""With fewer messages windows and queues that fill in seconds are smaller."""

UNPROTECTED = {
    "protection": "off",
    "network.slow_policy": "block",
    "network.filters_per_client_max_count": "100000",
}


def attack(kind: AttackKind, **settings: str) -> AttackSummary:
    overrides = {**SHORT, **{key.replace("__", "."): value for key, value in settings.items()}}
    summary = ScenarioRun(read_scenario(f"ews-attack-{kind}", overrides), 1).run()
    assert summary.violations == []
    assert summary.details.attack is not None
    return summary.details.attack


def unprotected(kind: AttackKind, **settings: str) -> AttackSummary:
    return attack(kind, **{key.replace(".", "__"): value for key, value in UNPROTECTED.items()}, **settings)


def is_borne(summary: AttackSummary) -> bool:
    ratio, worst = summary.p99_ratio, summary.worst_topic_ratio
    assert ratio is not None
    assert worst is not None
    return bool(summary.contained) and ratio <= 1.2 and worst <= 1.2


def test_a_flood_is_held_back_and_others_hardly_notice() -> None:
    summary = attack("flood")
    assert is_borne(summary)
    assert list(summary.told) == ["more than 100 publications per second; what is beyond waits"]
    assert 400 <= summary.taken <= 600  # a newcomer is limited, not locked out
    assert "contained" in "\n".join(attack_lines(summary))


def test_without_limits_a_flood_delays_others() -> None:
    summary = unprotected("flood", attack__rate_per_s="1000")
    assert not summary.contained
    assert "NOT CONTAINED" in "\n".join(attack_lines(summary))


def test_huge_messages_are_refused_and_paid_for() -> None:
    summary = attack("huge")
    assert is_borne(summary)
    assert "a publication of 1,000,000 bytes; at most 4,096 are allowed here" in summary.told
    assert summary.taken <= 2


def test_large_messages_that_are_allowed_wait_for_their_bytes() -> None:
    summary = attack("huge", attack__message_bytes="4000", attack__rate_per_s="200", attack__topics="[14]")
    assert is_borne(summary)
    assert list(summary.told) == ["more than 60,000 bytes per second; what is beyond waits"]
    assert 70 <= summary.taken <= 85


def test_useless_advertisements_wait_and_are_refused() -> None:
    summary = attack("advertisements")
    assert is_borne(summary)
    assert summary.taken == 8
    assert any(reason.startswith("more than 20 subscriptions and advertisements") for reason in summary.told)
    assert "a client may have at most 8 filters" in summary.told


def test_filters_wait_and_are_refused() -> None:
    summary = attack("filters")
    assert is_borne(summary)
    assert summary.taken == 8
    assert "a client may have at most 8 filters" in summary.told


def test_a_subscriber_that_stops_reading_is_sent_away() -> None:
    summary = attack("stalled", **STALLING)
    assert is_borne(summary)
    assert list(summary.told) == ["too slow: 101 publications waited; read faster or ask for less"]


def test_one_that_holds_publishers_back_instead_delays_everybody() -> None:
    summary = unprotected("stalled", **STALLING)
    assert not summary.contained


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"attack.topics": "[8, 99]"}, "attack.topics: there is no topic 99"),
        ({"attack.topics": "[]"}, "attack.topics: one at least is needed"),
        ({"attack.begin_s": "-1"}, "attack.begin_s: an attack begins before the scenario ends"),
        ({"attack.rate_per_s": "0"}, "attack.rate_per_s: expected a number above 0"),
        ({"attack.count": "-5"}, "attack.count: -5 is not between 0 and 1,000,000"),
        ({"attack.broker": "nowhere"}, "attack.broker: no broker is called nowhere"),
        ({"attack.kind": "rude"}, "attack.kind: expected one of flood"),
        ({"protection.burst_s": "0"}, "burst_s must be above 0"),
        ({"crisis.placement": "{ b9 = [1] }"}, "crisis.placement: no broker is called b9"),
    ],
)
def test_attacks_that_make_no_sense_are_refused(settings: dict[str, str], expected: str) -> None:
    with pytest.raises(ScenarioError) as error:
        read_scenario("ews-attack-flood", settings)
    assert expected in str(error.value)
