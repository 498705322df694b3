"""Exact reasoning about sets of strings: can several conditions hold together?

Every string predicate (pattern, order, equality) and its negation describes a regular set of strings. A conjunction is
satisfiable if and only if the product of their automata reaches a state that all accept. The automata are stepped,
never built. In each state only the characters that some automaton waits for are told apart; of all the others, one
stands for those between two of them.

Most questions never get that far: a witness put together from the conditions' own texts settles "yes", a pair of
conditions that exclude each other settles "no".

The alphabet is all of Unicode (surrogates aside), ordered by code point, which is also the order of UTF-8 bytes.
When the `SearchBudget` is spent the answer is "perhaps", which every caller treats on the safe side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum, auto
from itertools import combinations
from typing import Final, Protocol, TypeGuard

import msgspec

from trimtab.language import limits
from trimtab.language.patterns import Pattern, Shape, Wild

_CODE_POINT_MAX: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_LESS: Final = -1
_GREATER: Final = -2
_PAIRED_CONDITIONS_MAX_COUNT: Final = 12
_PAIR_MAX_STEPS: Final = 2_000


class SearchBudget:
    """The steps that are left for one question, however many searches it takes.

    Where many questions belong to one piece of work, they share another budget besides (`shared_budget`).
    """

    def __init__(self, max_steps: int = limits.STRING_SEARCH_MAX_STEPS) -> None:
        self._max_steps = self._steps_left = max_steps
        self._shared = _shared.get()

    @property
    def is_spent(self) -> bool:
        """Whether there is nothing left."""
        return self._steps_left <= 0 or (self._shared is not None and self._shared.is_spent)

    @property
    def spent_steps(self) -> int:
        """What was taken so far."""
        return self._max_steps - self._steps_left

    def spend(self, steps: int) -> bool:
        """Take steps from the budget; False if it does not hold them."""
        self._steps_left -= steps
        if self._shared is not None and not self._shared.spend(steps):
            return False
        return self._steps_left >= 0


_shared: ContextVar[SearchBudget | None] = ContextVar("shared search budget", default=None)


@contextmanager
def shared_budget(max_steps: int) -> Iterator[SearchBudget]:
    """Let all questions until the end share so many steps; those that come too late get the safe answer at once.

    >>> with shared_budget(10) as budget:
    ...     satisfiable([Like(Pattern.parse("%a%")), Like(Pattern.parse("%a%"), wanted=False)]) is None
    True
    """
    budget = SearchBudget(max_steps)
    token = _shared.set(budget)
    try:
        yield budget
    finally:
        _shared.reset(token)


class Like(msgspec.Struct, frozen=True):
    """The text fits the pattern, or does not (`wanted` false)."""

    pattern: Pattern
    wanted: bool = True

    def holds(self, text: str) -> bool:
        """Whether the condition holds for one text."""
        return self.pattern.matches(text) is self.wanted

    def negated(self) -> Like:
        """The opposite condition."""
        return Like(self.pattern, not self.wanted)

    def letters(self) -> str:
        """Characters that the condition tells apart from others."""
        return "".join(token for token in self.pattern.tokens if not isinstance(token, Wild))

    def automaton(self) -> _Automaton:
        """A machine that accepts just the texts for which the condition holds."""
        return _LikeAutomaton(self.pattern, self.wanted)


class Bound(msgspec.Struct, frozen=True):
    """The text lies below the limit (`below`) or above it; with `inclusive` the limit itself belongs to it."""

    limit: str
    below: bool
    inclusive: bool

    def holds(self, text: str) -> bool:
        """Whether the condition holds for one text."""
        if text == self.limit:
            return self.inclusive
        return (text < self.limit) is self.below

    def negated(self) -> Bound:
        """The opposite condition."""
        return Bound(self.limit, not self.below, not self.inclusive)

    def letters(self) -> str:
        """Characters that the condition tells apart from others."""
        return self.limit

    def automaton(self) -> _Automaton:
        """A machine that accepts just the texts for which the condition holds."""
        return _BoundAutomaton(self)


Condition = Like | Bound


def equals(text: str) -> Like:
    """The condition that only this text satisfies."""
    return Like(Pattern.of(Shape.EXACT, text))


def is_equality(condition: Condition) -> TypeGuard[Like]:
    """Whether only one text satisfies the condition, its pattern's literal."""
    return isinstance(condition, Like) and condition.wanted and condition.pattern.shape is Shape.EXACT


class NoText(Enum):
    """Why there is no text to show: there is none, or the budget did not suffice to find out."""

    NONE = auto()
    PERHAPS = auto()


def find_text(conditions: Sequence[Condition], budget: SearchBudget | None = None) -> str | NoText:
    """A text that satisfies all conditions, or why there is none to show.

    >>> find_text([Like(Pattern.parse("_")), Bound("a", below=False, inclusive=True), Bound("b", True, False)])
    'a'
    """
    exact = next((c.pattern.literal for c in conditions if is_equality(c)), None)
    if exact is not None:
        return exact if all(condition.holds(exact) for condition in conditions) else NoText.NONE
    budget = budget or SearchBudget()
    if budget.is_spent:
        return NoText.PERHAPS
    for text in _likely_witnesses(conditions):
        if not budget.spend(len(conditions)):
            return NoText.PERHAPS
        if all(condition.holds(text) for condition in conditions):
            return text
    if 2 < len(conditions) <= _PAIRED_CONDITIONS_MAX_COUNT:
        if any(_search(pair, budget, _PAIR_MAX_STEPS) is NoText.NONE for pair in combinations(conditions, 2)):
            return NoText.NONE
    return _search(conditions, budget)


def satisfiable(conditions: Sequence[Condition], budget: SearchBudget | None = None) -> bool | None:
    """Whether some text satisfies all conditions; None if that could not be decided within the budget.

    >>> satisfiable([Like(Pattern.parse("ab%")), Bound("b", below=False, inclusive=True)])
    False
    """
    found = find_text(conditions, budget)
    return True if isinstance(found, str) else None if found is NoText.PERHAPS else False


def implies(conditions: Sequence[Condition], wanted: Condition, budget: SearchBudget | None = None) -> bool | None:
    """Whether every text that satisfies all conditions satisfies the wanted one too.

    >>> implies([Like(Pattern.parse("YH%"))], Bound("Y", below=False, inclusive=True))
    True
    """
    answer = satisfiable([*conditions, wanted.negated()], budget)
    return None if answer is None else not answer


def _likely_witnesses(conditions: Sequence[Condition]) -> Iterable[str]:
    """Texts worth trying: a start that the bounds and prefixes allow, then all required parts, held apart.

    The character that holds the parts apart occurs in no condition, so it can only help to avoid what is unwanted.
    """
    fresh = _fresh_letter(conditions)
    wanted = [c.pattern for c in conditions if isinstance(c, Like) and c.wanted]
    prefixes = [pattern.literal for pattern in wanted if pattern.shape is Shape.PREFIX]
    prefix = max(prefixes, key=len, default="")
    inside = [pattern.literal for pattern in wanted if pattern.shape is Shape.CONTAINS]
    inside += [_sample(pattern, fresh) for pattern in wanted if pattern.shape is Shape.GENERAL]
    suffix = max((p.literal for p in wanted if p.shape is Shape.SUFFIX), key=len, default="")
    tail = fresh + "".join(part + fresh for part in inside) + suffix
    yield prefix + tail
    yield prefix + suffix
    yield prefix
    for pattern in wanted:
        if pattern.shape is Shape.GENERAL:
            yield _sample(pattern, fresh)
    for bound in conditions:
        if isinstance(bound, Bound):
            yield bound.limit
            yield bound.limit + tail
            yield bound.limit[:-1] + tail
            if bound.limit and bound.below and ord(bound.limit[-1]) - 1 not in (-1, _SURROGATES[-1]):
                yield bound.limit[:-1] + chr(ord(bound.limit[-1]) - 1) + tail


def _sample(pattern: Pattern, fresh: str) -> str:
    return "".join(fresh if isinstance(token, Wild) else token for token in pattern.tokens)


def _fresh_letter(conditions: Sequence[Condition]) -> str:
    used = {letter for condition in conditions for letter in condition.letters()}
    candidates = (chr(code) for code in range(0x7E, _CODE_POINT_MAX) if code not in _SURROGATES)
    return next(letter for letter in candidates if letter not in used)


class _Automaton(Protocol):
    """A machine over characters whose states are integers."""

    start: int

    def step(self, state: int, letter: str) -> int: ...

    def accepts(self, state: int) -> bool: ...

    def awaited(self, state: int) -> str:
        """The characters that lead elsewhere than their neighbours do."""
        ...

    def hopeless(self, state: int) -> bool:
        """No continuation is accepted from here."""
        ...


class _LikeAutomaton:
    """All places in the pattern where the text read so far may stand, as a set of bits."""

    def __init__(self, pattern: Pattern, wanted: bool) -> None:
        tokens = pattern.tokens
        self._tokens = tokens
        self._wanted = wanted
        self._end = 1 << len(tokens)
        self._open_end = 1 << (len(tokens) - 1) if tokens and tokens[-1] is Wild.MANY else 0
        self._many = sum(1 << place for place, token in enumerate(tokens) if token is Wild.MANY)
        self._one = sum(1 << place for place, token in enumerate(tokens) if token is Wild.ONE)
        self._by_letter: dict[str, int] = {}
        for place, token in enumerate(tokens):
            if isinstance(token, str):
                self._by_letter[token] = self._by_letter.get(token, 0) | 1 << place
        self.start = self._skip_many(1)

    def _skip_many(self, places: int) -> int:
        return places | (places & self._many) << 1

    def step(self, state: int, letter: str) -> int:
        stays = state & self._many
        advances = (state & (self._one | self._by_letter.get(letter, 0))) << 1
        return self._skip_many(stays | advances)

    def accepts(self, state: int) -> bool:
        return bool(state & self._end) is self._wanted

    def awaited(self, state: int) -> str:
        if state.bit_count() > len(self._by_letter):
            return "".join(letter for letter, places in self._by_letter.items() if state & places)
        letters: list[str] = []
        while state:
            place = state.bit_length() - 1
            state ^= 1 << place
            if place < len(self._tokens) and isinstance(token := self._tokens[place], str):
                letters.append(token)
        return "".join(letters)

    def hopeless(self, state: int) -> bool:
        return state == 0 if self._wanted else bool(state & self._open_end)


class _BoundAutomaton:
    """How the text read so far compares: a count of characters equal to the limit's, or less, or greater."""

    start = 0

    def __init__(self, bound: Bound) -> None:
        self._bound = bound

    def step(self, state: int, letter: str) -> int:
        if state < 0:
            return state
        limit = self._bound.limit
        if state == len(limit) or letter > limit[state]:
            return _GREATER
        return state + 1 if letter == limit[state] else _LESS

    def accepts(self, state: int) -> bool:
        if state == len(self._bound.limit):
            return self._bound.inclusive
        return (state != _GREATER) is self._bound.below

    def awaited(self, state: int) -> str:
        return self._bound.limit[state : state + 1] if state >= 0 else ""

    def hopeless(self, state: int) -> bool:
        return state == (_GREATER if self._bound.below else _LESS)


def _search(conditions: Sequence[Condition], budget: SearchBudget, max_steps: int | None = None) -> str | NoText:
    """Breadth first through the product of the automata; the text found is one of the shortest."""
    if budget.is_spent:
        return NoText.PERHAPS
    automata = [condition.automaton() for condition in conditions]
    start = tuple(automaton.start for automaton in automata)
    seen = {start}
    waiting = deque([(start, "")])
    left_steps = max_steps or limits.STRING_SEARCH_MAX_STEPS
    while waiting:
        state, text = waiting.popleft()
        parts = list(zip(automata, state, strict=True))
        if all(automaton.accepts(part) for automaton, part in parts):
            return text
        awaited = "".join(automaton.awaited(part) for automaton, part in parts)
        alphabet = _representatives(awaited)
        steps = len(awaited) + len(alphabet) * len(automata)
        left_steps -= steps
        if not budget.spend(steps) or left_steps < 0:
            return NoText.PERHAPS
        for letter in alphabet:
            following = tuple(automaton.step(part, letter) for automaton, part in parts)
            if following in seen:
                continue
            if any(automaton.hopeless(part) for automaton, part in zip(automata, following, strict=True)):
                continue
            seen.add(following)
            waiting.append((following, text + letter))
    return NoText.NONE


def _representatives(awaited: str) -> list[str]:
    """Every awaited character, and one that stands for all between two neighbouring awaited ones."""
    codes: list[int] = []
    before = -1
    for code in [*sorted(map(ord, set(awaited))), _CODE_POINT_MAX + 1]:
        between = _scalar_between(before, code)
        if between is not None:
            codes.append(between)
        if code <= _CODE_POINT_MAX:
            codes.append(code)
        before = code
    return [chr(code) for code in codes]


def _scalar_between(low: int, high: int) -> int | None:
    """A code point strictly between two others that is not a surrogate."""
    code = low + 1
    if code in _SURROGATES:
        code = _SURROGATES.stop
    return code if code < high else None
