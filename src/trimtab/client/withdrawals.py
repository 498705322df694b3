"""Advertisements that have ended while publications before their end are not accepted.

If the broker forgets the client then, those publications must be said again, and for that the advertisement must be in
force once more.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.language import Filter
from trimtab.protocol.messages import Publish, Unadvertise


class Withdrawals:
    """The ended ones, each with the last publication before its end.

    >>> ended = Withdrawals()
    >>> sent = [Publish(publisher="p", sequence=number, values={}, origin_s=0.0) for number in (1, 2)]
    >>> ended.add("p/a1", Filter.parse("a > 1"), sent[:1])
    >>> revived, said = ended.begin_again(sent)
    >>> list(revived), [getattr(each, "sequence", "end") for each in said]
    (['p/a1'], [1, 'end', 2])
    """

    def __init__(self) -> None:
        self._ended: list[tuple[int, str, Filter]] = []

    def add(self, id: str, filter: Filter, unaccepted: Sequence[Publish]) -> None:
        """An advertisement ends behind what is not accepted."""
        if unaccepted:
            self._ended.append((unaccepted[-1].sequence, id, filter))

    def accepted(self, sequence: int) -> None:
        """All publications up to a number are accepted."""
        if self._ended:
            self._ended = [each for each in self._ended if each[0] > sequence]

    def begin_again(self, unaccepted: Sequence[Publish]) -> tuple[dict[str, Filter], list[Publish | Unadvertise]]:
        """What must be advertised again, and all to be said behind that."""
        revived = {id: filter for _, id, filter in self._ended}
        said: list[Publish | Unadvertise] = []
        for message in unaccepted:
            said.append(message)
            said.extend(Unadvertise(id=id) for last, id, _ in self._ended if last == message.sequence)
        self._ended.clear()
        return revived, said
