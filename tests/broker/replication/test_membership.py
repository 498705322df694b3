"""Who holds a place: voters, voices and votes under every partition that is drawn."""

from __future__ import annotations

from random import Random

import pytest

from trimtab.broker.replication.membership import (
    RUN_OUT_RATIO,
    Candidacy,
    Claim,
    Voice,
    Voter,
    majority_of,
    may_decide,
    vote_problem,
)

FENCE_AFTER_S = 1.0
STEP_S = 0.1


def test_a_voice_is_given_to_one_incarnation_at_a_time() -> None:
    voter = Voter("B1", FENCE_AFTER_S, 0.0, hears_count=0)
    assert voter.ask("B2", Claim(1, "a"), 5.0)
    assert not voter.ask("B2", Claim(2, "b"), 5.0 + FENCE_AFTER_S)
    assert voter.ask("B2", Claim(2, "b"), 5.0 + RUN_OUT_RATIO * FENCE_AFTER_S)


def test_an_earlier_incarnation_gets_no_voice_as_soon_as_a_later_one_has_asked() -> None:
    voter = Voter("B1", FENCE_AFTER_S, 0.0, hears_count=0)
    assert voter.ask("B2", Claim(1, "a"), 5.0)
    assert not voter.ask("B2", Claim(2, "b"), 5.1)
    assert not voter.ask("B2", Claim(1, "a"), 5.2)


def test_of_two_candidates_with_one_epoch_the_higher_nonce_gets_the_voice() -> None:
    voter = Voter("B1", FENCE_AFTER_S, 0.0, hears_count=0)
    assert voter.ask("B2", Claim(2, "a"), 5.0)
    assert not voter.ask("B2", Claim(2, "b"), 5.1)
    assert not voter.ask("B2", Claim(2, "a"), 7.0)
    assert voter.ask("B2", Claim(2, "b"), 7.0)


def test_an_incarnation_that_raises_its_own_epoch_keeps_the_voice() -> None:
    voter = Voter("B1", FENCE_AFTER_S, 0.0, hears_count=0)
    assert voter.ask("B2", Claim(1, "a"), 5.0)
    assert voter.ask("B2", Claim(4, "a"), 5.1)
    assert not voter.ask("B2", Claim(1, "a"), 5.2)


def test_a_voter_that_has_just_begun_only_listens() -> None:
    voter = Voter("B1", FENCE_AFTER_S, 5.0, hears_count=2)
    assert not voter.ask("B2", Claim(1, "a"), 5.5)
    assert not voter.ask("B2", Claim(1, "a"), 7.0)  # it has heard nobody
    voter.learn("B3", Voice(False, 1, {"B2": 2}))
    voter.learn("B4", Voice(False, 1))
    assert not voter.ask("B2", Claim(1, "a"), 7.1)  # there is a later one
    assert voter.ask("B2", Claim(2, "b"), 7.1)


def test_a_voter_has_let_go_when_its_voice_has_run_out() -> None:
    voter = Voter("B1", FENCE_AFTER_S, 0.0, hears_count=0)
    assert not voter.has_let_go("B2", 0.5)
    assert voter.has_let_go("B2", 2.0)
    assert voter.ask("B2", Claim(1, "a"), 2.0)
    assert not voter.has_let_go("B2", 2.0 + FENCE_AFTER_S)
    assert voter.has_let_go("B2", 2.0 + RUN_OUT_RATIO * FENCE_AFTER_S)


def test_a_broker_is_fenced_when_it_has_heard_no_majority_for_so_long_and_goes_on_when_it_does() -> None:
    place = Candidacy("B1", ["B1", "B2", "B3", "B4", "B5"], FENCE_AFTER_S)
    for voter in ("B2", "B3", "B4"):
        place.told(voter, Voice(True), 0.0)
    assert place.problem(0.9) == ""
    assert place.problem(1.0) == "it hears 1 of 5 brokers and stand-bys (itself), and needs 3"
    place.told("B5", Voice(True), 4.0)
    assert place.problem(4.1) == "it hears 2 of 5 brokers and stand-bys (itself, B5), and needs 3"
    place.told("B2", Voice(True), 4.2)
    assert place.problem(4.3) == ""


def test_a_voice_counts_from_when_it_was_asked_for() -> None:
    place = Candidacy("B1", ["B1", "B2", "B3"], FENCE_AFTER_S)
    place.told("B2", Voice(True), 0.0)
    place.told("B3", Voice(True), 0.0)
    assert place.problem(0.9) == ""
    assert place.problem(1.1) != ""


def test_a_voice_that_is_refused_does_not_count() -> None:
    place = Candidacy("B1", ["B1", "B2", "B3"], FENCE_AFTER_S)
    place.told("B2", Voice(True), 0.0)
    place.told("B3", Voice(True), 0.0)
    place.told("B2", Voice(True), 0.1)
    assert place.problem(0.2) == ""
    place.told("B2", Voice(False), 0.2)
    place.told("B3", Voice(False), 0.2)
    assert place.problem(0.3) != ""


def test_the_voice_of_a_voter_that_was_replaced_does_not_count() -> None:
    place = Candidacy("B1", ["B1", "B2", "B3"], FENCE_AFTER_S)
    place.told("B2", Voice(True, epoch=1), 0.0)
    place.told("B3", Voice(True, epoch=1, known={"B2": 2}), 0.0)
    assert place.voices(0.1) == ["B3"]
    place.told("B2", Voice(True, epoch=2), 0.1)
    assert place.voices(0.1) == ["B2", "B3"]


def test_a_place_is_taken_when_a_majority_knows_a_later_incarnation() -> None:
    place = Candidacy("B1", ["B1", "B2", "B3"], FENCE_AFTER_S)
    later = Voice(False, known={"B1": 2})
    place.told("B2", later, 0.0)
    place.told("B3", later, 0.0)
    assert not place.is_taken(1)  # it has not begun: a neighbour tells it to greet with a higher epoch
    place.told("B2", Voice(True, known={"B1": 1}), 1.0)
    place.told("B3", Voice(True, known={"B1": 1}), 1.0)
    assert place.problem(1.1) == ""
    place.told("B2", later, 2.0)
    assert not place.is_taken(1)
    place.told("B3", later, 2.0)
    assert place.is_taken(1)
    assert not place.is_taken(2)


@pytest.mark.parametrize("count", range(3, 9))
def test_two_majorities_that_decide_meet_in_a_voter(count: int) -> None:
    assert may_decide(count)
    others = count - 1
    keeps, wins = majority_of(count) - 1, majority_of(count)  # one counts itself, the other not
    assert keeps + wins > others


def test_the_broker_itself_and_strangers_do_not_vote() -> None:
    assert vote_problem("B2", ["B1", "B2", "B3"], ["B2", "X9", "B1"]) != ""
    assert "too few to decide without B2" in vote_problem("B2", ["B1", "B2"], ["B1"])


class _Member:
    """One process: an incarnation of a broker, and a voter."""

    def __init__(self, name: str, claim: Claim, voters: list[str], now_s: float) -> None:
        self.name, self.claim = name, claim
        self.voter = Voter(name, FENCE_AFTER_S, now_s, hears_count=majority_of(len(voters)))
        self.voter.learn(name, Voice(False, known={name: claim.epoch}))
        self.place = Candidacy(name, voters, FENCE_AFTER_S)

    def holds(self, now_s: float) -> bool:
        return not self.place.problem(now_s)


class _Network:
    """Processes that ask each other over ways that are cut and healed, in two sides or in no sensible pattern."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now_s = 0.0
        self.names = [f"B{number}" for number in range(1, rng.randint(3, 7) + 1)]
        self.members = [_Member(name, Claim(1, f"{name}-1"), self.names, 0.0) for name in self.names]
        self.cut: set[tuple[int, int]] = set()
        """Pairs of processes of which the first does not reach the second."""
        self.under_way: list[tuple[float, _Member, str, Voice, float]] = []
        self.replaced_count = 0
        self._replaced_s = 0.0

    def _reach(self, one: _Member, other: _Member) -> bool:
        ends = id(one), id(other)
        return one is other or not ({ends, ends[::-1]} & self.cut)

    def draw_ways(self) -> None:
        """Two sides, or anything."""
        self.cut.clear()
        kind = self.rng.random()
        inside = {id(member) for member in self.members if self.rng.random() < 0.5}
        for one in self.members:
            for other in self.members:
                is_between = (id(one) in inside) != (id(other) in inside)
                if (kind < 0.5 and is_between) or (0.5 <= kind < 0.8 and self.rng.random() < 0.3):
                    self.cut.add((id(one), id(other)))

    def step(self) -> None:
        self.now_s += STEP_S
        for one in self.members:
            for other in self.members:
                if one is other or one.name == other.name or self.rng.random() < 0.4 or not self._reach(one, other):
                    continue
                given = other.voter.ask(one.name, one.claim, self.now_s)
                voice = Voice(given, other.claim.epoch, dict(other.voter.known))
                self.under_way.append((self.now_s + self.rng.choice((0.0, 0.3)), one, other.name, voice, self.now_s))
        for item in [item for item in self.under_way if item[0] <= self.now_s]:
            self.under_way.remove(item)
            _, one, voter, voice, asked_s = item
            one.place.told(voter, voice, asked_s)
            one.voter.learn(voter, voice)

    def latest(self, name: str) -> _Member:
        return max((member for member in self.members if member.name == name), key=lambda member: member.claim)

    def try_to_replace(self) -> None:
        """Somebody misses a broker and asks for votes; the process before goes on, for nobody can end it."""
        if self.now_s < self._replaced_s + 3.0:
            return
        name = self.rng.choice(self.names)
        asker, before = self.rng.choice(self.members), self.latest(name)
        if asker.name == name:
            return
        gone_for = [
            voter.name
            for voter in self.members
            if self._reach(asker, voter) and not self._reach(voter, before) and voter.voter.has_let_go(name, self.now_s)
        ]
        if not vote_problem(name, self.names, gone_for):
            self.replaced_count += 1
            self._replaced_s = self.now_s
            claim = Claim(before.claim.epoch + 1, f"{self.rng.random()}")
            member = _Member(name, claim, self.names, self.now_s)
            self.members.append(member)
            for other in self.members:  # it begins where the asker is
                if (id(asker), id(other)) in self.cut or (id(other), id(asker)) in self.cut:
                    self.cut.add((id(member), id(other)))

    def check(self) -> None:
        for name in self.names:
            holders = [member.claim for member in self.members if member.name == name and member.holds(self.now_s)]
            assert len(holders) <= 1, f"{name} is held by {holders} at {self.now_s:.1f} s"


@pytest.mark.parametrize("first_seed", [0, 100, 200])
def test_no_place_is_held_twice_whatever_is_cut(first_seed: int) -> None:
    replaced_count = 0
    for seed in range(first_seed, first_seed + 25):
        network = _Network(Random(f"membership {seed}"))
        for step in range(300):
            if step % 30 == 0:
                network.draw_ways()
            network.step()
            network.try_to_replace()
            network.check()
        replaced_count += network.replaced_count
        network.cut.clear()
        for _ in range(60):
            network.step()
            network.check()
        for name in network.names:
            assert network.latest(name).holds(network.now_s), f"seed {seed}: nobody holds the place of {name}"
    assert replaced_count > 20


def test_the_smaller_side_neither_replaces_nor_holds_a_place() -> None:
    for count in range(3, 8):
        names = [f"B{number}" for number in range(1, count + 1)]
        smaller = names[: (count - 1) // 2]
        for name in smaller:
            place = Candidacy(name, names, FENCE_AFTER_S)
            for voter in smaller:
                place.told(voter, Voice(True), 10.0)
            assert place.problem(10.1) != ""
        for name in set(names) - set(smaller):
            assert vote_problem(name, names, smaller) != ""
