"""Algorithms 1, 2 and 4: who tells whom what, and when a replica has the state."""

from trimtab.protocol.messages import AdvertisementsTold, SubscriptionsTold, SubscriptionsWanted
from trimtab.replication.conversation import Conversation, Reply


def test_a_broker_that_replaces_nobody_answers_at_once() -> None:
    neighbour = Conversation([])
    assert neighbour.is_complete
    assert neighbour.asked_by("F") == [("F", AdvertisementsTold())]
    assert neighbour.subscriptions_wanted_by("F") == [("F", SubscriptionsTold())]


def test_a_replica_wants_subscriptions_when_all_advertisements_are_told() -> None:
    replica = Conversation(["N1", "N2"])
    assert replica.advertisements_told("N2") == []
    assert replica.advertisements_told("N1") == [("N1", SubscriptionsWanted()), ("N2", SubscriptionsWanted())]
    assert replica.subscriptions_told("N1") == []
    assert not replica.is_complete
    assert replica.subscriptions_told("N2") == []
    assert replica.is_complete


def test_repeated_and_late_answers_change_nothing() -> None:
    replica = Conversation(["N1"])
    assert replica.advertisements_told("N1") == [("N1", SubscriptionsWanted())]
    assert replica.advertisements_told("N1") == []
    assert replica.subscriptions_told("N1") == []
    assert replica.subscriptions_told("stranger") == []
    assert replica.is_complete


def test_a_neighbour_that_is_replaced_half_way_is_asked_again() -> None:
    replica = Conversation(["N1", "N2"])
    replica.advertisements_told("N1")
    replica.advertisements_told("N2")
    replica.subscriptions_told("N1")
    assert replica.asked_by("N1") == [("N1", AdvertisementsTold())]
    replica.subscriptions_told("N2")
    assert not replica.is_complete
    assert replica.advertisements_told("N1") == [("N1", SubscriptionsWanted())]
    replica.subscriptions_told("N1")
    assert replica.is_complete


def test_a_neighbour_that_is_gone_for_good_owes_nothing() -> None:
    replica = Conversation(["N1", "N2"])
    replica.advertisements_told("N1")
    assert replica.gone("N2") == [("N1", SubscriptionsWanted())]


def test_two_adjacent_replicas_do_not_wait_for_each_other() -> None:
    """F and G have failed, with neighbours N1 and N2: N1 - F - G - N2."""
    talks = {
        "N1": Conversation([]),
        "F": Conversation(["N1", "G"]),
        "G": Conversation(["F", "N2"]),
        "N2": Conversation([]),
    }
    under_way: list[tuple[str, Reply]] = []

    def say(sender: str, replies: list[Reply]) -> None:
        under_way.extend((sender, reply) for reply in replies)

    for asked, by in (("N1", "F"), ("G", "F"), ("F", "G"), ("N2", "G")):
        say(asked, talks[asked].asked_by(by))
    while under_way:
        sender, (receiver, message) = under_way.pop(0)
        talk = talks[receiver]
        match message:
            case AdvertisementsTold():
                say(receiver, talk.advertisements_told(sender))
            case SubscriptionsWanted():
                say(receiver, talk.subscriptions_wanted_by(sender))
            case SubscriptionsTold():
                say(receiver, talk.subscriptions_told(sender))
    assert all(talk.is_complete for talk in talks.values())
