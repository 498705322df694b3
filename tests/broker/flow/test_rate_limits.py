"""What a client sends beyond its limits waits, in order, and the client is told why; limits are learnt or given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.broker.flow.rate_limits import Allowance, RateLimitConfig, RateLimits
from trimtab.language import Filter
from trimtab.protocol.messages import AnyMessage, KnownSubscription, MoveIn, Publish, Subscribe, Unadvertise

ANY = Filter.parse("a > 0")


def publication(number: int) -> Publish:
    return Publish(publisher="p", sequence=number, values={}, origin_s=0.0)


def subscription(number: int) -> Subscribe:
    return Subscribe(id=f"s{number}", filter=ANY)


def protection(size_bytes: int = 100, **settings: object) -> RateLimits:
    return RateLimits(RateLimitConfig(**{"burst_s": 1.0, **settings}), lambda message: size_bytes)  # type: ignore[arg-type]


def run(guard: RateLimits, until_s: float, begin_s: float = 0.0) -> list[tuple[float, AnyMessage]]:
    """What is released until then, with times."""
    released: list[tuple[float, AnyMessage]] = []
    now_s = begin_s
    while (at_s := guard.look_at_s()) is not None and at_s <= until_s:
        assert at_s > now_s, "nothing waits for no time"
        now_s = at_s
        for _, messages in guard.release(now_s):
            released += [(now_s, message) for message in messages]
    return released


def test_a_newcomer_may_send_a_burst_and_then_at_its_rate() -> None:
    guard = protection(newcomer_rate_per_s=10)
    messages: list[AnyMessage] = [publication(number) for number in range(1, 31)]
    passed, why = guard.admit("p", messages, 0.0)
    assert [message.sequence for message in passed if isinstance(message, Publish)] == list(range(1, 12))
    assert why == "more than 10 publications per second; what is beyond waits"
    released = run(guard, 10.0)
    assert [message for _, message in released] == messages[11:]
    assert released[-1][0] == pytest.approx(1.9, abs=0.02)
    assert guard.look_at_s() is None


def test_large_publications_wait_for_their_bytes() -> None:
    guard = protection(size_bytes=50_000, newcomer_bytes_per_s=100_000)
    passed, why = guard.admit("p", [publication(number) for number in range(6)], 0.0)
    assert (len(passed), why) == (3, "more than 100,000 bytes per second; what is beyond waits")
    assert [time_s for time_s, _ in run(guard, 5.0)] == pytest.approx([0.5, 1.0, 1.5])


def test_who_is_held_back_is_told_once_in_a_while() -> None:
    guard = protection(newcomer_rate_per_s=1, tell_every_s=10.0)
    told = [guard.admit("p", [publication(number)], number * 0.1)[1] for number in range(150)]
    assert [number for number, why in enumerate(told) if why] == [2, 102]


def test_what_is_usual_may_be_exceeded_by_a_factor() -> None:
    guard = protection(newcomer_rate_per_s=20, growth_factor=3.0, learning_s=10.0)
    for number in range(1_000):
        assert guard.admit("p", [publication(number)], number / 18)[1] == ""
    assert guard.limits()["p"][0] == pytest.approx(3 * 18, rel=0.05)
    assert [guard.admit("p", [publication(number)], 56 + number / 36)[1] for number in range(360)] == [""] * 360


def test_a_flood_does_not_raise_its_own_limit() -> None:
    guard = protection(newcomer_rate_per_s=20, learning_s=10.0)
    for tick in range(600):
        guard.admit("p", [publication(tick * 10 + number) for number in range(10)], tick * 0.1)
        list(guard.release(tick * 0.1))
    assert guard.limits()["p"][0] <= 30


def test_a_limit_that_is_learnt_ends_somewhere() -> None:
    guard = protection(newcomer_rate_per_s=10, rate_max_per_s=25, learning_s=1.0)
    now_s, rate_per_s = 0.0, 9.0
    for number in range(2_000):
        guard.admit("p", [publication(number)], now_s)
        rate_per_s = min(24.0, rate_per_s * 1.001)
        now_s += 1 / rate_per_s
    assert guard.limits()["p"][0] == 25


def test_the_operator_may_know_better() -> None:
    guard = protection(newcomer_rate_per_s=1, known={"buoy-*": Allowance(rate_per_s=50, bytes_per_s=1e6)})
    assert len(guard.admit("buoy-3", [publication(number) for number in range(60)], 0.0)[0]) == 51
    assert len(guard.admit("visitor", [publication(number) for number in range(60)], 0.0)[0]) == 2


def test_requests_wait_in_their_order_and_publications_do_not_wait_for_them() -> None:
    guard = protection(requests_per_s=10, requests_burst_count=2)
    requests: list[AnyMessage] = [subscription(number) for number in range(6)]
    passed, why = guard.admit("p", [*requests, publication(1)], 0.0)
    assert passed == [*requests[:3], publication(1)]
    assert why == "more than 10 subscriptions and advertisements per second; what is beyond waits"
    assert [message for _, message in run(guard, 5.0)] == requests[3:]


def test_a_client_that_moves_in_counts_for_all_its_filters() -> None:
    guard = protection(requests_per_s=10, requests_burst_count=2)
    moved = tuple(KnownSubscription(f"s{number}", ANY) for number in range(12))
    move = MoveIn(stay=2, old_broker="B1", subscriptions=moved)
    assert guard.admit("p", [move, subscription(1)], 0.0)[0] == [move]
    assert [time_s for time_s, _ in run(guard, 5.0)] == pytest.approx([1.0])


def test_the_end_of_an_advertisement_stays_behind_the_publications_before_it() -> None:
    guard = protection(newcomer_rate_per_s=1)
    messages: list[AnyMessage] = [publication(1), publication(2), publication(3), Unadvertise(id="a")]
    passed, _ = guard.admit("p", messages, 0.0)
    assert passed + [message for _, message in run(guard, 10.0)] == messages


def test_one_clients_flood_holds_nobody_else_back() -> None:
    guard = protection(newcomer_rate_per_s=1)
    guard.admit("flood", [publication(number) for number in range(1_000)], 0.0)
    assert guard.admit("p", [publication(1)], 0.0) == ([publication(1)], "")


def test_the_world_is_told_when_too_much_waits() -> None:
    guard = protection(size_bytes=60_000, waiting_max_bytes=100_000, requests_waiting_max_count=10)
    guard.admit("p", [publication(number) for number in range(3)], 0.0)
    assert not guard.is_full("p")
    guard.admit("p", [publication(number) for number in range(2)], 0.0)
    assert guard.is_full("p")
    run(guard, 5.0)
    assert not guard.is_full("p")
    guard.admit("p", [subscription(number) for number in range(60)], 5.0)
    assert not guard.is_full("p")
    guard.admit("p", [subscription(60)], 5.0)
    assert guard.is_full("p")
    guard.forget("p")
    assert not guard.is_full("p")
    assert guard.look_at_s() is None


def test_a_publication_that_is_too_large_is_refused_with_its_size() -> None:
    guard = protection(size_bytes=70_000)
    expected = "a publication of 70,000 bytes; at most 65,536 are allowed here"
    assert guard.objection_to_size(publication(1)) == expected
    assert protection(size_bytes=65_536).objection_to_size(publication(1)) == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("newcomer_rate_per_s", 0.0),
        ("newcomer_bytes_per_s", -1.0),
        ("growth_factor", 0.5),
        ("burst_s", 0.0),
        ("requests_per_s", float("nan")),
        ("requests_burst_count", 0),
        ("publication_max_bytes", 0),
        ("rate_max_per_s", 10.0),
        ("learning_s", float("inf")),
    ],
)
def test_limits_that_mean_nothing_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=r"must be|no newcomer may"):
        RateLimitConfig(**{name: value})  # type: ignore[arg-type]


def test_allowances_must_be_positive() -> None:
    with pytest.raises(ValueError, match="rate_per_s must be above 0"):
        Allowance(rate_per_s=0, bytes_per_s=1)


@given(
    st.lists(st.tuples(st.floats(0, 0.3), st.integers(0, 30), st.booleans()), max_size=40),
    st.floats(1, 50),
)
def test_nothing_is_lost_or_reordered_and_no_more_passes_than_the_limit(
    arrivals: list[tuple[float, int, bool]], rate_per_s: float
) -> None:
    guard = protection(newcomer_rate_per_s=rate_per_s, growth_factor=1.0, requests_per_s=rate_per_s)
    now_s, number = 0.0, 0
    sent: list[AnyMessage] = []
    got: list[AnyMessage] = []
    for pause_s, count, is_request in arrivals:
        now_s += pause_s
        for _, messages in guard.release(now_s):
            got += messages
        fresh: list[AnyMessage] = [
            subscription(number + n) if is_request else publication(number + n) for n in range(count)
        ]
        number += count
        sent += fresh
        got += guard.admit("p", fresh, now_s)[0]
        passed_count = sum(isinstance(message, Publish) for message in got)
        assert passed_count <= rate_per_s * (1.0 + now_s) + 1 + 1e-6
    got += [message for _, message in run(guard, now_s + 10_000, now_s)]
    for kind in (Publish, Subscribe):
        assert [m for m in got if isinstance(m, kind)] == [m for m in sent if isinstance(m, kind)]
    assert guard.waiting_count == 0
