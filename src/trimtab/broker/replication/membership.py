"""Who may replace whom, and who must stop: a majority decides, and no two incarnations of a broker ever have one.

Where a broker on a host that cannot be reached may be replaced (`unreachable = "replace"`), both sides of a network
that is cut in two could replace each other. So the brokers of the network file and its stand-bys are **voters**.

- Each broker asks all voters for their **voice**, several times within `fence_after_s`. A voice counts for
  `fence_after_s` from when it was asked for. A voter gives its voice for a place to one incarnation at a time, never to
  an earlier one again, and to a later one only when the voice that it gave before has run out.
- A broker that counts a majority, itself included, **holds its place**. One that does not is **fenced**: it
  acknowledges and confirms nothing until it counts one again. An incarnation begins fenced and needs a majority of
  voices of others once, for there may be an earlier one that counts itself.
- A broker that nobody can prove to be over is replaced if a majority of all voters, it not included, have given it no
  voice for so long and cannot reach it.

Of two majorities of others, or of one and of one that counts itself, some voter is in both, and its voice runs out
before it is given to the later incarnation. So at no moment do two incarnations of one broker hold its place. The times
are durations; nobody compares clocks. The idea is that of leases: C. Gray, D. Cheriton, *Leases: an efficient
fault-tolerant mechanism for distributed file cache consistency*, SOSP 1989.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

RUN_OUT_RATIO: Final = 1.2
"""A voter takes a voice for given so many times longer than its owner counts it: no two clocks are that far apart."""

ASKS_PER_VOICE_COUNT: Final = 3
"""A voice is asked for so many times before it runs out: one lost question or pause does no harm."""


def majority_of(voters_count: int) -> int:
    """How many are more than half.

    >>> [majority_of(count) for count in (1, 2, 3, 4, 7)]
    [1, 2, 2, 3, 4]
    """
    return voters_count // 2 + 1


def may_decide(voters_count: int) -> bool:
    """Whether the others are a majority without the one that they decide about; of two or less they never are.

    >>> [may_decide(count) for count in (1, 2, 3, 4)]
    [False, False, True, True]
    """
    return voters_count - 1 >= majority_of(voters_count)


class Claim(msgspec.Struct, frozen=True, order=True):
    """An incarnation of a broker; of two with the same epoch the higher nonce is the later one.

    >>> Claim(1, "b") < Claim(2, "a") < Claim(2, "b")
    True
    """

    epoch: int
    nonce: str


class Voice(msgspec.Struct, frozen=True):
    """A voter's answer to an incarnation that asks for its voice."""

    is_given: bool
    epoch: int = 0
    """The voter's own, 0 if it is no broker."""
    known: Mapping[str, int] = {}
    """The highest epoch by broker of which the voter knows."""


class _Given:
    """What a voter has promised about one place."""

    __slots__ = ("claim", "given_s", "latest")

    def __init__(self, claim: Claim) -> None:
        self.latest = claim
        """The latest incarnation that has asked; no earlier one gets a voice any more."""
        self.claim: Claim | None = None
        """The one that has the voice."""
        self.given_s = 0.0


class Voter:
    """One broker or stand-by as a voter.

    One that was started, perhaps in the place of another, does not know what was promised before. So it only listens
    until the voices that it may have given have run out, and until it has heard from so many others what they know.

    >>> voter = Voter("B1", 1.0, now_s=0.0, hears_count=1)
    >>> voter.learn("B3", Voice(False, 1, {"B2": 1}))
    >>> voter.ask("B2", Claim(1, "a"), 0.5)
    False
    >>> voter.ask("B2", Claim(1, "a"), 2.0), voter.ask("B2", Claim(2, "b"), 2.5)
    (True, False)
    >>> voter.ask("B2", Claim(1, "a"), 2.6), voter.ask("B2", Claim(2, "b"), 3.5)
    (False, True)
    """

    def __init__(self, name: str, fence_after_s: float, now_s: float, hears_count: int) -> None:
        self._name = name
        self._runs_out_s = fence_after_s * RUN_OUT_RATIO
        self._began_s = now_s
        self._hears_count = hears_count
        self._heard: dict[str, int] = {}
        """By voter that has told what it knows: its own epoch then."""
        self._given: dict[str, _Given] = {}
        self.known: dict[str, int] = {}
        """The highest epoch by broker that has asked, or of which others have told."""

    def learn(self, voter: str, voice: Voice) -> None:
        """Another voter has answered, and told which epochs it knows."""
        known = voice.known
        if voter != self._name:
            self._heard[voter] = max(voice.epoch, self._heard.get(voter, 0))
        for broker, epoch in known.items():
            self.known[broker] = max(epoch, self.known.get(broker, 0))

    def ask(self, broker: str, claim: Claim, now_s: float) -> bool:
        """An incarnation of a broker asks for a voice; whether it is given until it runs out."""
        if claim.epoch < self.known.get(broker, 0):
            return False
        self.known[broker] = claim.epoch
        given = self._given.get(broker)
        if given is None:
            given = self._given[broker] = _Given(claim)
        if claim < given.latest:
            return False
        given.latest = claim
        if self._heard_count() < self._hears_count:
            return False
        if given.claim is None or given.claim.nonce != claim.nonce:
            if not self._has_run_out(given, now_s):
                return False
        given.claim = claim
        given.given_s = now_s
        return True

    def _heard_count(self) -> int:
        """How many voters have told what they know, without those of which only an earlier incarnation has."""
        return sum(1 for name, epoch in self._heard.items() if not 0 < epoch < self.known.get(name, 0))

    def has_let_go(self, broker: str, now_s: float) -> bool:
        """Whether no voice of this voter counts for any incarnation of a broker any more."""
        given = self._given.get(broker)
        return now_s - self._began_s >= self._runs_out_s if given is None else self._has_run_out(given, now_s)

    def _has_run_out(self, given: _Given, now_s: float) -> bool:
        since_s = self._began_s if given.claim is None else given.given_s
        return now_s - since_s >= self._runs_out_s


class Candidacy:
    """One incarnation of a broker that wants to hold its place: the voices that it counts.

    >>> place = Candidacy("B1", ["B1", "B2", "B3"], 1.0)
    >>> place.told("B2", Voice(True, 1), asked_s=0.0)
    >>> place.problem(0.1)
    'it has the voices of 1 of 2 others (B2), and needs 2 of them once'
    >>> place.told("B3", Voice(True, 1), asked_s=0.0)
    >>> place.problem(0.2), place.problem(1.0)
    ('', 'it hears 1 of 3 brokers and stand-bys (itself), and needs 2')
    >>> place.told("B2", Voice(True, 1), asked_s=1.0)
    >>> place.problem(1.1)
    ''
    """

    def __init__(self, broker: str, voters: Iterable[str], fence_after_s: float) -> None:
        self._others = tuple(name for name in voters if name != broker)
        self._fence_after_s = fence_after_s
        self._asked_s: dict[str, float] = {}
        """By voter that has given its voice: when it was asked for."""
        self._epochs: dict[str, int] = {}
        """By voter: its own epoch when it gave its voice."""
        self._known: dict[str, int] = {}
        self._broker = broker
        self._said: dict[str, int] = {}
        """By voter: the highest epoch of this broker that it knows."""
        self._has_won = False

    def begin_again(self) -> None:
        """The incarnation has another number from now on, and must win its place with that."""
        self._asked_s.clear()
        self._has_won = False

    @property
    def majority_count(self) -> int:
        """How many voters are a majority."""
        return majority_of(len(self._others) + 1)

    def told(self, voter: str, voice: Voice, asked_s: float) -> None:
        """A voter has answered a question that was asked then."""
        for broker, epoch in voice.known.items():
            self._known[broker] = max(epoch, self._known.get(broker, 0))
        if voter not in self._others or 0 < voice.epoch < self._known.get(voter, 0):
            return
        self._said[voter] = voice.known.get(self._broker, 0)
        if not voice.is_given:
            self._asked_s.pop(voter, None)
            return
        self._asked_s[voter] = max(asked_s, self._asked_s.get(voter, asked_s))
        self._epochs[voter] = voice.epoch

    def voices(self, now_s: float) -> list[str]:
        """The other voters whose voices count; not those of an earlier incarnation of a voter."""
        return [
            name
            for name, asked_s in self._asked_s.items()
            if now_s - asked_s < self._fence_after_s and not 0 < self._epochs[name] < self._known.get(name, 0)
        ]

    def is_taken(self, epoch: int, granted: int = 0) -> bool:
        """Whether this incarnation has held its place, and a later one has it by now.

        A majority says so, or one neighbour that has granted a later epoch.
        """
        is_later = granted > epoch or sum(said > epoch for said in self._said.values()) >= self.majority_count
        return self._has_won and is_later

    def problem(self, now_s: float) -> str:
        """Why this incarnation does not hold its place, empty if it does."""
        voices = self.voices(now_s)
        others = sorted(voices)
        if not self._has_won:
            if len(voices) < self.majority_count:
                named = f" ({', '.join(others)})" if others else ""
                return (
                    f"it has the voices of {len(voices)} of {len(self._others)} others{named}, and needs "
                    f"{self.majority_count} of them once"
                )
            self._has_won = True
        if len(voices) + 1 < self.majority_count:
            named = ", ".join(["itself", *others])
            return (
                f"it hears {len(voices) + 1} of {len(self._others) + 1} brokers and stand-bys ({named}), and needs "
                f"{self.majority_count}"
            )
        return ""


def vote_problem(broker: str, voters: Iterable[str], gone_for: Iterable[str]) -> str:
    """Why a broker may not be replaced of which nobody can prove that it is over, empty if a majority finds it gone.

    >>> vote_problem("B2", ["B1", "B2", "B3"], ["B1", "B3"])
    ''
    >>> vote_problem("B2", ["B1", "B2", "B3"], ["B1", "B2"])
    'of 3 brokers and stand-bys 1 finds it gone (B1), and 2 must'
    """
    all_voters = tuple(dict.fromkeys(voters))
    found = sorted({name for name in gone_for if name in all_voters and name != broker})
    needed_count = majority_of(len(all_voters))
    if len(found) >= needed_count:
        return ""
    if not may_decide(len(all_voters)):
        return (
            f"{len(all_voters)} brokers and stand-bys are too few to decide without {broker}; add a [[standby]], or "
            "use trimtab replace if it is off for good"
        )
    named = f" ({', '.join(found)})" if found else ""
    verb = "finds" if len(found) == 1 else "find"
    return f"of {len(all_voters)} brokers and stand-bys {len(found)} {verb} it gone{named}, and {needed_count} must"
