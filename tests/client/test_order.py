"""What a subscriber takes that comes after a later publication of the same publisher."""

from __future__ import annotations

import pytest

from trimtab.client.config import ClientConfig
from trimtab.client.session import ClientSession
from trimtab.language import Filter
from trimtab.protocol.effects import Deliver
from trimtab.protocol.events import Connected, Received
from trimtab.protocol.frames import Hello, Order, Payload
from trimtab.protocol.messages import VERSION, Publish


class Subscriber:
    """A session with one subscription, and a broker that sends it numbers of one publisher."""

    def __init__(self, order: Order, config_order: Order = "publisher") -> None:
        self.session = ClientSession(ClientConfig("s", order=config_order))
        self._sent_count = 0
        self.greeted(order)
        self.session.subscribe(Filter.parse("a > 0"), 0.0)

    def greeted(self, order: Order) -> None:
        resumes = "1" if self._sent_count else ""
        self.session.handle(Connected("B1", Hello(VERSION, "broker", "B1", "life", 1, resumes, order=order)), 0.0)

    def gets(self, *numbers: int, session: str = "1") -> list[int]:
        """What is delivered of these numbers."""
        delivered: list[int] = []
        for number in numbers:
            self._sent_count += 1
            message = Publish(publisher="p", sequence=number, values={"a": 1}, origin_s=0.0, session=session)
            effects = self.session.handle(Received("B1", Payload(self._sent_count, 0, [message])), 0.0)
            delivered += [effect.sequence for effect in effects if isinstance(effect, Deliver)]
        return delivered


def test_where_order_is_promised_what_is_not_above_the_last_one_is_dropped() -> None:
    assert Subscriber("publisher").gets(1, 3, 2, 3, 4) == [1, 3, 4]


def test_where_none_is_promised_each_is_delivered_once_in_the_order_of_arrival() -> None:
    assert Subscriber("any").gets(1, 3, 2, 3, 1, 4) == [1, 3, 2, 4]


def test_another_session_of_the_publisher_counts_anew() -> None:
    subscriber = Subscriber("any")
    assert subscriber.gets(1, 2) == [1, 2]
    assert subscriber.gets(2, 1, session="2") == [2, 1]


def test_a_promise_that_ends_repeats_nothing_that_was_delivered_before() -> None:
    subscriber = Subscriber("publisher")
    assert subscriber.gets(1, 5) == [1, 5]
    subscriber.greeted("any")
    assert subscriber.gets(5, 4, 8, 7, 8) == [8, 7]


def test_a_promise_that_has_ended_stays_so() -> None:
    subscriber = Subscriber("any")
    assert subscriber.gets(2) == [2]
    subscriber.greeted("publisher")
    assert subscriber.gets(1, 2) == [1]


def test_a_client_may_take_any_order_whatever_is_promised() -> None:
    assert Subscriber("publisher", config_order="any").gets(2, 1, 2) == [2, 1]


def test_only_the_latest_numbers_of_a_publisher_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.client.deliveries.REMEMBERED_MAX_COUNT", 2)
    assert Subscriber("any").gets(1, 2, 3, 3, 2, 1) == [1, 2, 3, 1]
