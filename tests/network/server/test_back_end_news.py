"""News of the back end and answers to requests come by different connections, in any order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.network.server.back_end import BackEndConnection, BroughtResults
from trimtab.protocol.channels import ChannelResult
from trimtab.protocol.effects import FetchResults, OpenStream
from trimtab.protocol.events import BackEndEvent, ResultsExist, StreamOpened, StreamRefused


def test_news_that_overtake_the_answer_to_a_subscription_are_told_behind_it() -> None:
    told: list[BackEndEvent] = []
    line = BackEndConnection("http://127.0.0.1:1", "B1", told.append)
    line._heard(7, 5)
    assert told == []
    line._opened(OpenStream("~c", "c", {}), {"id": 7, "position": 3})
    assert told == [StreamOpened("~c", 3), ResultsExist("~c", 5)]
    line._heard(7, 9)
    assert told[-1] == ResultsExist("~c", 9) and len(told) == 3


def test_results_are_counted_since_they_were_told_of_last_and_not_by_their_positions() -> None:
    """Positions are those of all subscriptions together; counts begin again with another back end."""
    told: list[BackEndEvent] = []
    line = BackEndConnection("http://127.0.0.1:1", "B1", told.append)
    line._opened(OpenStream("~c", "c", {}), {"id": 7, "position": 300, "counts": [20, 2_000]})
    line._heard(7, 900, counts=(23, 2_450))
    line._heard(7, 1_900, counts=(24, 2_500))
    line._heard(7, 2_000, counts=(2, 90))
    assert told[1:] == [
        ResultsExist("~c", 900, 3, 450),
        ResultsExist("~c", 1_900, 1, 50),
        ResultsExist("~c", 2_000, 2, 90),
    ]


def test_a_suspended_subscription_is_refused_with_the_reason() -> None:
    told: list[BackEndEvent] = []
    line = BackEndConnection("http://127.0.0.1:1", "B1", told.append)
    line._opened(OpenStream("~c", "c", {}), {"id": 7, "position": 3})
    line._suspended(7, "division by zero")
    line._suspended(7, "division by zero")
    assert told[1:] == [StreamRefused("~c", "division by zero")]


ACTS = st.sampled_from(["result", "elsewhere", "news", "news again", "large news", "fetch", "other"])


@settings(max_examples=500)
@given(st.lists(st.tuples(ACTS, st.integers(1, 3)), max_size=30))
def test_what_came_with_news_is_all_that_a_fetch_would_have_found(acts: list[tuple[str, int]]) -> None:
    brought = BroughtResults()
    position = after = asked_after = told_until = 0
    stream: list[ChannelResult] = []
    brought.opened("s", 0)
    for what, count in acts:
        match what:
            case "result" | "elsewhere":
                position += count
                if what == "result":
                    stream.append(ChannelResult(position, {}, 0.0))
            case "news" | "large news" | "news again":
                new = [result for result in stream if result.position > asked_after]
                if new:
                    told_until = new[-1].position
                    brought.told("s", told_until, [] if what == "large news" else new)
                if what != "news again":  # the same is told once more with the next news
                    asked_after = position
            case _:
                asked = after if what == "fetch" else after // 2
                taken = brought.take(FetchResults("s", asked, count))
                left = [result for result in stream if result.position > asked]
                if taken is not None:
                    assert taken and list(taken) == left[: len(taken)]
                    assert len(taken) == count or taken[-1] == [r for r in stream if r.position <= told_until][-1]
                if what == "fetch" and left:
                    after = left[: len(taken) if taken else count][-1].position
