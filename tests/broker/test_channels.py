"""The channel desk: many front-end subscriptions, one back-end subscription, each result once and in order."""

from __future__ import annotations

from trimtab.broker.channels import AHEAD_MAX_COUNT, FETCH_MAX_COUNT
from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.protocol.channels import ChannelResult, stream_name
from trimtab.protocol.effects import CloseStream, Effect, FetchResults, OpenStream
from trimtab.protocol.events import (
    BackEndReached,
    Connected,
    LinkRemoved,
    Received,
    ResultsExist,
    ResultsFetched,
    Step,
    StreamOpened,
    StreamRefused,
    Wake,
)
from trimtab.protocol.frames import Ack, Hello, Payload
from trimtab.protocol.messages import (
    VERSION,
    AnyMessage,
    ChannelConfirmed,
    Publish,
    Refused,
    SubscribeChannel,
    Unsubscribe,
)

FLOODS = stream_name("OfType", {"event": "flood"})


class Desk:
    """A broker with clients whose links are driven by hand."""

    def __init__(self, cache_max_count: int = 100, linger_s: float = 30.0) -> None:
        config = BrokerConfig(
            "B1", has_back_end=True, results_cached_max_count=cache_max_count, stream_linger_s=linger_s
        )
        self.broker = Broker(config)
        self._numbers: dict[str, int] = {}

    def join(self, *clients: str) -> None:
        for name in clients:
            self.broker.handle(Connected(name, Hello(VERSION, "client", name, "1", 1)), 0.0)
            self._numbers[name] = 1

    def say(self, client: str, message: AnyMessage, now_s: float = 0.0) -> list[Effect]:
        number = self._numbers[client]
        self._numbers[client] = number + 1
        self.broker.handle(Received(client, Payload(number, 0, [message])), now_s)
        return self.broker.handle(Step(), now_s)

    def want(self, client: str, after: int = -1, id: str = "c1", event: str = "flood") -> list[Effect]:
        return self.say(
            client, SubscribeChannel(id=f"{client}/{id}", channel="OfType", arguments={"event": event}, after=after)
        )

    def told(self, client: str) -> list[object]:
        """What is sent to a client: confirmations and refusals as they are, of results the positions."""
        said: list[object] = []
        while (frame := self.broker.take_frame(client, 0.0)) is not None:
            if isinstance(frame, Payload):
                said += [each.sequence if isinstance(each, Publish) else each for each in frame.messages]
        return said

    def exist(self, position: int) -> list[Effect]:
        return self.broker.handle(ResultsExist(FLOODS, position), 1.0)

    def fetched(self, after: int, *positions: int) -> list[Effect]:
        return self.broker.handle(ResultsFetched(FLOODS, after, results(*positions)), 1.0)


def results(*positions: int) -> tuple[ChannelResult, ...]:
    return tuple(ChannelResult(position, {"place": position}, 0.5) for position in positions)


def test_clients_with_the_same_arguments_share_one_stream_and_one_fetch() -> None:
    desk = Desk()
    desk.join("a", "b")
    assert desk.want("a") == [OpenStream(FLOODS, "OfType", {"event": "flood"})]
    assert desk.want("b") == []
    desk.broker.handle(StreamOpened(FLOODS, 7), 0.0)
    assert desk.told("a") == [ChannelConfirmed(id="a/c1", position=7)]
    assert desk.exist(9) == [FetchResults(FLOODS, 7, FETCH_MAX_COUNT)]
    assert desk.fetched(7, 8, 9) == []
    assert desk.told("a") == [8, 9]
    assert desk.told("b") == [ChannelConfirmed(id="b/c1", position=7), 8, 9]


def test_other_arguments_are_another_stream() -> None:
    desk = Desk()
    desk.join("a")
    desk.want("a")
    fires = stream_name("OfType", {"event": "fire"})
    assert desk.want("a", id="c2", event="fire") == [OpenStream(fires, "OfType", {"event": "fire"})]


def test_a_client_goes_on_after_the_position_it_names_from_the_cache_or_the_back_end() -> None:
    desk = Desk(cache_max_count=2)
    desk.join("a", "b", "c")
    desk.want("a")
    desk.broker.handle(StreamOpened(FLOODS, 0), 0.0)
    desk.exist(4)
    desk.fetched(0, 1, 2, 3, 4)
    assert desk.want("b", after=2) == []
    assert desk.told("b") == [ChannelConfirmed(id="b/c1", position=2), 3, 4]
    assert desk.want("c", after=0) == [FetchResults(FLOODS, 0, FETCH_MAX_COUNT)]
    desk.fetched(0, 1, 2)
    assert desk.told("c") == [ChannelConfirmed(id="c/c1", position=0), 1, 2, 3, 4]


def test_a_slow_client_is_given_no_more_than_fits_and_the_rest_when_there_is_room() -> None:
    desk = Desk(cache_max_count=10_000)
    desk.join("slow", "quick")
    desk.want("slow")
    desk.want("quick")
    desk.broker.handle(StreamOpened(FLOODS, 0), 0.0)
    desk.exist(600)
    desk.fetched(0, *range(1, 601))
    assert desk.broker.peers["slow"].link.queued_data_count == AHEAD_MAX_COUNT
    assert desk.told("quick")[1:] == list(range(1, AHEAD_MAX_COUNT + 1))
    assert desk.broker.wake_at_s() == 0.0
    desk.broker.handle(Wake(), 0.5)
    assert desk.told("quick") == list(range(AHEAD_MAX_COUNT + 1, 2 * AHEAD_MAX_COUNT + 1))
    assert desk.broker.peers["slow"].link.queued_data_count == AHEAD_MAX_COUNT


def test_a_stream_stays_open_for_a_while_after_its_last_client() -> None:
    desk = Desk(linger_s=30.0)
    desk.join("a", "b")
    desk.want("a")
    desk.say("a", Unsubscribe(id="a/c1"), now_s=5.0)
    assert desk.broker.wake_at_s() == 35.0
    assert desk.want("b") == []
    desk.broker.handle(LinkRemoved("b"), 6.0)
    assert desk.broker.handle(Wake(), 36.0) == [CloseStream(FLOODS)]


def test_what_was_asked_is_asked_again_when_the_back_end_comes_back() -> None:
    desk = Desk()
    desk.join("a")
    desk.want("a")
    desk.broker.handle(StreamOpened(FLOODS, 0), 0.0)
    desk.exist(1)
    again = [OpenStream(FLOODS, "OfType", {"event": "flood"}), FetchResults(FLOODS, 0, FETCH_MAX_COUNT)]
    assert desk.broker.handle(BackEndReached(), 2.0) == again
    desk.fetched(0, 1)
    assert desk.fetched(0, 1) == []  # the answer to the first question comes late
    assert desk.told("a")[1:] == [1]


def test_what_the_back_end_no_longer_keeps_holds_nobody_up() -> None:
    desk = Desk()
    desk.join("a")
    desk.want("a", after=3)
    desk.broker.handle(StreamOpened(FLOODS, 9), 0.0)
    desk.fetched(3)
    assert desk.exist(10) == [FetchResults(FLOODS, 9, FETCH_MAX_COUNT)]
    desk.fetched(9, 10)
    assert desk.told("a")[1:] == [10]


def test_an_unknown_channel_is_refused_to_all_who_wanted_it() -> None:
    desk = Desk()
    desk.join("a")
    desk.want("a")
    desk.broker.handle(StreamRefused(FLOODS, "there is no channel OfType"), 0.0)
    assert desk.told("a") == [Refused(about="a/c1", reason="there is no channel OfType")]


def test_the_same_stream_under_another_id_is_refused() -> None:
    desk = Desk()
    desk.join("a")
    desk.want("a")
    desk.want("a", id="c2")
    assert desk.told("a") == [
        Refused(about="a/c2", reason='the client has OfType(event="flood") already, as a/c1'),
    ]


def test_a_broker_without_a_back_end_says_so() -> None:
    broker = Broker(BrokerConfig("B1"))
    broker.handle(Connected("a", Hello(VERSION, "client", "a", "1", 1)), 0.0)
    broker.handle(Received("a", Payload(1, 0, [SubscribeChannel(id="a/c1", channel="OfType", arguments={})])), 0.0)
    broker.handle(Step(), 0.0)
    frame = broker.take_frame("a", 0.0)
    assert isinstance(frame, Payload)
    assert frame.messages == [Refused(about="a/c1", reason="this broker has no back end")]
    assert not isinstance(frame, Ack)


def test_no_client_is_named_like_a_stream() -> None:
    broker = Broker(BrokerConfig("B1"))
    (effect,) = broker.handle(Connected("#x()", Hello(VERSION, "client", "#x()", "1", 1)), 0.0)
    assert "is a name for the results of a channel" in str(effect)
