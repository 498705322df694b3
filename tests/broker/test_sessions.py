"""Whom a broker lets in: versions, incarnations and names."""

from __future__ import annotations

import pytest

from tests.broker.told_broker import ToldBroker
from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.protocol.frames import Hello
from trimtab.protocol.messages import VERSION, VERSION_MIN, Leaving


def broker(level: str = "received") -> ToldBroker:
    told = ToldBroker()
    told.happens(f"a {level} broker B1 with neighbours B2")
    return told


def greeting(session: str, epoch: int, granted: int = 0, resumes: str = "") -> Hello:
    return Hello(VERSION, "broker", "B2", session, 1, resumes, epoch=epoch, granted=granted)


def greeted(told: ToldBroker, hello: Hello) -> list[str]:
    """The effects of a greeting."""
    told.connect(hello.name, hello)
    effects, told.lines = told.lines, []
    return effects


# ---- versions ----


def test_version_1_is_refused() -> None:
    told = broker()
    assert greeted(told, Hello(1, "client", "c", "1", 1)) == [
        "effect: Close c, reason protocol version 1 is not spoken here, but 2 to 4 is"
    ]
    assert "c" not in told.broker.peers


def test_whoever_speaks_more_versions_is_let_in() -> None:
    told = broker()
    assert greeted(told, Hello(VERSION + 5, "client", "c", "1", 1, version_min=VERSION_MIN)) == []
    assert "c" in told.broker.peers


def test_whoever_speaks_only_later_ones_is_not() -> None:
    told = broker()
    (effect,) = greeted(told, Hello(VERSION + 5, "client", "c", "1", 1, version_min=VERSION + 1))
    assert f"version {VERSION + 5} is not spoken here" in effect


# ---- incarnations ----


def test_another_process_with_the_same_epoch_is_refused() -> None:
    told = broker()
    assert greeted(told, greeting("another", 1)) == [
        "effect: Close B2, reason B2 has had its incarnation 1 already, and must greet as a later one"
    ]
    assert (told.broker.peers["B2"].session, told.broker.peers["B2"].epoch) == ("1", 1)


def test_an_earlier_incarnation_is_refused() -> None:
    told = broker()
    assert greeted(told, greeting("second", 5)) == []
    assert greeted(told, greeting("first", 4)) == [
        "effect: Close B2, reason this incarnation of B2 was replaced by another"
    ]
    assert told.broker.peers["B2"].session == "second"


def test_the_one_before_is_refused_when_it_comes_back() -> None:
    told = broker()
    greeted(told, greeting("another", 2))
    assert greeted(told, greeting("1", 1, resumes="1")) == [
        "effect: Close B2, reason this incarnation of B2 was replaced by another"
    ]


def test_a_later_incarnation_takes_over_in_a_new_epoch_of_the_link() -> None:
    told = broker()
    told.happens("from B2: Subscribe r/s1, number 1")
    assert greeted(told, greeting("another", 3)) == []
    peer = told.broker.peers["B2"]
    assert (peer.session, peer.incarnation, peer.epoch) == ("another", 3, 2)
    assert list(told.broker.tables.subscriptions) == ["r/s1"], "until it has told all"


def test_the_same_incarnation_goes_on_where_it_was() -> None:
    told = broker()
    told.happens("the connection to B2 breaks")
    assert told.happens("B2 greets") == []
    assert told.broker.peers["B2"].epoch == 1


def test_greetings_say_which_incarnation_of_the_other_end_is_known() -> None:
    told = broker()
    greeted(told, greeting("another", 3))
    assert told.broker.greeting("B2").granted == 3
    assert told.broker.greeting("B9").granted == 0


def test_who_is_known_as_another_incarnation_with_its_number_greets_again_as_a_later_one() -> None:
    """This process has number 1, like the one before it, which B2 remembers."""
    told = ToldBroker()
    told.happens("a new received broker B1 with neighbours B2")
    assert told.broker.greeting("B2").epoch == 2
    assert greeted(told, greeting("1", 1, granted=4, resumes="the one before")) == [
        "effect: Close B2, reason B1 greets again, as its incarnation 5"
    ]
    assert told.broker.greeting("B2").epoch == 5
    assert "B2" not in told.broker.peers
    assert greeted(told, greeting("1", 1, granted=4, resumes="the one before")) == []
    assert "B2" in told.broker.peers


@pytest.mark.parametrize(("granted", "resumes"), [(1, "the one before"), (2, "2"), (2, "")])
def test_it_does_not_where_the_neighbour_knows_a_lower_one_or_this_one(granted: int, resumes: str) -> None:
    told = ToldBroker()
    told.happens("a new received broker B1 with neighbours B2")
    assert greeted(told, greeting("1", 1, granted, resumes)) == []
    assert told.broker.greeting("B2").epoch == 2


def client_that_knows(granted: int, resumes: str = "the one before") -> Hello:
    return Hello(VERSION, "client", "c", "1", 1, resumes, granted=granted)


@pytest.mark.parametrize(("granted", "epoch"), [(1, 2), (2, 3), (7, 8)])
def test_a_broker_that_has_lost_its_memory_takes_a_higher_number_than_its_clients_know(
    granted: int, epoch: int
) -> None:
    told = ToldBroker()
    told.happens("a new received broker B1 with neighbours B2")
    assert greeted(told, client_that_knows(granted)) == []
    assert "c" in told.broker.peers
    assert told.broker.greeting("B2").epoch == epoch


def test_a_broker_that_serves_keeps_its_number_whatever_clients_know() -> None:
    told = broker()
    assert greeted(told, client_that_knows(7)) == []
    assert told.broker.greeting("B2").epoch == 1


@pytest.mark.parametrize(("role", "epoch", "granted"), [("client", 1, 2**60), ("broker", 2**60, 0)])
def test_a_number_that_no_incarnation_has_is_refused(role: str, epoch: int, granted: int) -> None:
    told = broker()
    hello = Hello(VERSION, role, "X", "1", 1, epoch=epoch, granted=granted)  # type: ignore[arg-type]
    (effect,) = greeted(told, hello)
    assert "no incarnation has the number 1152921504606846976" in effect
    assert "X" not in told.broker.peers


def test_a_neighbour_that_greets_again_with_a_higher_number_is_known_by_that() -> None:
    told = broker()
    assert greeted(told, greeting("1", 6)) == []
    assert told.broker.greeting("B2").granted == 6


# ---- names ----


def test_a_clients_name_is_not_a_brokers() -> None:
    told = broker()
    assert greeted(told, Hello(VERSION, "client", "B2", "1", 1)) == [
        "effect: Close B2, reason the name B2 belongs to a broker already"
    ]


# ---- clients ----


def test_a_client_whose_link_is_not_known_here_keeps_its_stay_and_is_sent_what_it_has_not_had() -> None:
    told = broker("safe")
    told.happens("a subscriber s")
    told.happens("from B2: Advertise q/a1, number 1")
    told.happens("the connection to s breaks")
    told.happens("from B2: Publish q, sequence 1")
    told.peers["s"].sent_count = told.peers["s"].seen_count = 0
    assert told.happens("s greets with stay 1") == ["to s: Publish q, sequence 1"]


def test_a_client_that_has_been_elsewhere_since_begins_anew() -> None:
    told = broker()
    told.happens("a subscriber s")
    told.happens("the connection to s breaks")
    told.peers["s"].sent_count = told.peers["s"].seen_count = 0
    told.happens("s greets with stay 3")
    assert told.broker.peers["s"].stay == 3
    assert told.broker.tables.subscriptions == {}


def test_another_session_of_a_client_begins_anew() -> None:
    told = broker()
    told.happens("a subscriber s")
    told.happens("the connection to s breaks")
    told.happens("s greets, started again with stay 1")
    assert told.broker.tables.subscriptions == {}


def test_what_a_client_has_burned_only_grows() -> None:
    told = broker()
    told.happens("s greets with stay 1, burned 3")
    told.happens("the connection to s breaks")
    told.happens("s greets with stay 1, burned 2")
    assert told.broker.peers["s"].burned == 3


def leaving_neighbour(version: int) -> ToldBroker:
    told = ToldBroker()
    told.happens("a received broker B1 with neighbours B2 B3")
    expects = told.peers["B2"].seen_count + 1
    told.connect("B2", Hello(version, "broker", "B2", "1", expects, told.broker.config.session, version_min=2))
    told.said()
    return told


@pytest.mark.parametrize(("version", "said"), [(2, []), (3, ["to B2: Leaving"])])
def test_a_peer_of_an_earlier_version_is_not_sent_what_it_does_not_know(version: int, said: list[str]) -> None:
    told = leaving_neighbour(version)
    told.broker.send("B2", Leaving(), 0.0)
    assert [line for line in told.said() if "Leaving" in line] == said


def test_a_neighbour_that_has_said_that_it_leaves_is_gone_when_its_connection_ends() -> None:
    told = leaving_neighbour(3)
    told.happens("from B2: Leaving")
    assert "B2" in told.broker.peers
    assert told.happens("the connection to B2 breaks") == ["to B3: Gone B2"]
    assert "B2" not in told.broker.peers


def test_a_client_cannot_say_that_it_leaves_as_a_broker() -> None:
    told = broker()
    told.happens("c greets with stay 1")
    assert told.happens("from c: Leaving") == ["to c: Refused , reason only brokers say this"]


@pytest.mark.parametrize("version", [VERSION_MIN - 1, VERSION + 1])
def test_only_versions_that_are_spoken_can_be_configured(version: int) -> None:
    with pytest.raises(ValueError, match=f"versions {VERSION_MIN} to {VERSION} of the wire protocol are spoken"):
        BrokerConfig("B1", wire_version_max=version)


def test_a_broker_that_is_kept_at_a_lower_version_greets_and_refuses_by_it() -> None:
    told = ToldBroker()
    told.broker = Broker(BrokerConfig("B1", wire_version_max=2))
    assert (told.broker.greeting("c").version, told.broker.greeting("c").version_min) == (2, 2)
    (effect,) = greeted(told, Hello(3, "client", "c", "1", 1, version_min=3))
    assert effect == "effect: Close c, reason protocol version 3 is not spoken here, but 2 is"
