"""Clients that misbehave, against real processes: the others hardly notice, in the same run as without the attack."""

from __future__ import annotations

import pytest

from trimtab.lab.bench.attacks import KINDS, AttackFigures, measure_attack
from trimtab.simulation.faults.attacks import AttackKind

TOLD: dict[AttackKind, str] = {
    "flood": "more than 50 publications per second; what is beyond waits",
    "huge": "a publication of 1,000,056 bytes; at most 65,536 are allowed here",
    "advertisements": "more than 20 subscriptions and advertisements per second; what is beyond waits",
    "stalled": "too slow: 101 publications waited; read faster or ask for less",
    "filters": "more than 20 subscriptions and advertisements per second; what is beyond waits",
}
TRIES_COUNT = 3
NOISE_RATIO = 1.1
"""A machine that is busy with something else spoils measurements: then calm phases differ by themselves."""


def measured(kind: AttackKind) -> AttackFigures:
    for _ in range(TRIES_COUNT):
        figures = measure_attack(kind, phase_s=5.0, rounds_count=1)
        if figures.is_contained or figures.noise_ratio < NOISE_RATIO:
            return figures
    return figures


@pytest.mark.parametrize("kind", KINDS)
def test_an_attack_is_contained_and_the_attacker_is_told_why(kind: AttackKind) -> None:
    figures = measured(kind)
    assert figures.p99_ratio <= 1.2 or figures.noise_ratio >= NOISE_RATIO, "where calm phases are alike"
    assert figures.missing_count == 0
    assert TOLD[kind] in figures.told
