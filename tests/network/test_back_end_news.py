"""News of the back end and answers to requests come by different connections, in any order."""

from __future__ import annotations

from trimtab.network.back_end import BackEndLine
from trimtab.protocol.effects import OpenStream
from trimtab.protocol.events import BackEndEvent, ResultsExist, StreamOpened


def test_news_that_overtake_the_answer_to_a_subscription_are_told_behind_it() -> None:
    told: list[BackEndEvent] = []
    line = BackEndLine("http://127.0.0.1:1", "B1", told.append)
    line._heard(7, 5)
    assert told == []
    line._opened(OpenStream("~c", "c", {}), {"id": 7, "position": 3})
    assert told == [StreamOpened("~c", 3), ResultsExist("~c", 5)]
    line._heard(7, 9)
    assert told[-1] == ResultsExist("~c", 9) and len(told) == 3
