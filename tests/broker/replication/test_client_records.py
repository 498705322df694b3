"""What is known of clients is kept elsewhere before it can be seen, and is all that a next incarnation needs."""

from __future__ import annotations

import pytest

from tests.broker.told_broker import ToldBroker
from tests.transcripts import ANY, read
from trimtab.broker.replication.client_records import RetainedRecords
from trimtab.protocol.messages import ClientRecord, ClientRecords, Guard, KnownAdvertisement, KnownSubscription


def safe_broker(*neighbours: str) -> ToldBroker:
    told = ToldBroker()
    told.happens(f"a safe broker B with neighbours {' '.join(neighbours)}")
    return told


def record(client: str, *filters: str, session: str = "1", stay: int = 1) -> ClientRecord:
    return ClientRecord(
        client,
        session,
        stay,
        subscriptions=tuple(KnownSubscription(id, ANY) for id in filters if "/s" in id),
        advertisements=tuple(KnownAdvertisement(id, ANY) for id in filters if "/a" in id),
    )


# ---- what waits for a guardian ----


def test_a_confirmation_waits_until_the_guardian_has_the_record() -> None:
    told = safe_broker("B1", "B2")
    assert told.happens("s greets with stay 1") == ["to B1: Guard version 2, record (s, stay 1)"]
    assert told.happens("from s: Subscribe s/s1, number 1") == [
        "to B1: Guard version 3, record (s, stay 1, subscriptions s/s1)"
    ]
    assert told.happens("from B1: Guarded version 2") == []
    assert told.happens("from B2: Guarded version 3") == [], "it is not the guardian"
    assert told.happens("from B1: Guarded version 3") == ["to s: Confirmed s/s1, number 1"]


def test_what_is_kept_before_does_not_wait_for_what_comes_after() -> None:
    told = safe_broker("B1")
    told.happens("s greets with stay 1")
    told.happens("from s: Subscribe s/s1, number 1")
    told.happens("from s: Subscribe s/s2, number 2")
    assert told.happens("from B1: Guarded version 3") == ["to s: Confirmed s/s1, number 1"]
    assert told.happens("from B1: Guarded version 4") == ["to s: Confirmed s/s2, number 2"]


def test_what_is_said_to_neighbours_about_filters_waits_for_nobody() -> None:
    """A route too many costs a copy; the client hears that it is in force when it is."""
    told = safe_broker("B1")
    told.happens("from B1: Advertise q/a1, number 1")
    told.happens("s greets with stay 1")
    assert "to B1: Subscribe s/s1, number 1" in told.happens("from s: Subscribe s/s1, number 1")


def test_the_end_of_a_filter_is_kept_as_well() -> None:
    told = safe_broker("B1")
    told.happens("a subscriber s")
    assert told.happens("from s: Unsubscribe s/s1") == ["to B1: Guard version 4, record (s, stay 1), ended s/s1"]


def test_a_client_that_leaves_for_good_has_no_record_any_more() -> None:
    told = safe_broker("B1")
    told.happens("a subscriber s")
    assert told.happens("the link to s is removed") == ["to B1: Guard version 4, record (s, stay 0), over"]


def test_a_client_that_has_moved_on_keeps_its_record_until_it_has_heard_so() -> None:
    told = safe_broker("B1")
    told.happens("a subscriber s")
    told.happens("from B1: Handover s, stay 2, old broker B, new broker B1")
    assert told.happens("B1 guards everything") == ["to B1: Complete s, stay 2, new broker B1", "to s: End stay 2"]
    assert told.happens("the link to s is removed") == ["to B1: Guard version 5, record (s, stay 0), over"]


def test_without_replication_what_is_received_needs_no_record() -> None:
    told = ToldBroker()
    told.happens("a received broker B with neighbours B1")
    assert told.happens("s greets with stay 1") == []
    assert told.happens("from s: Subscribe s/s1, number 1") == ["to s: Confirmed s/s1, number 1"]


def test_who_has_no_neighbour_waits_for_nobody() -> None:
    told = ToldBroker()
    told.happens("a safe broker B with neighbours")
    told.happens("s greets with stay 1")
    assert told.happens("from s: Subscribe s/s1, number 1") == ["to s: Confirmed s/s1, number 1"]


def test_what_waited_for_the_last_neighbour_goes_on_without_it() -> None:
    told = safe_broker("B1")
    told.happens("s greets with stay 1")
    told.happens("from s: Subscribe s/s1, number 1")
    assert told.happens("the link to B1 is removed") == ["to s: Confirmed s/s1, number 1"]


# ---- guardians change ----


def test_a_guardian_that_is_away_is_followed_by_another_that_is_told_all() -> None:
    told = safe_broker("B1", "B2")
    told.happens("a subscriber s")
    told.happens("from s: Subscribe s/s2, number 2")
    assert told.happens("the connection to B1 breaks") == [
        "to B2: GuardAll version 5, count 1",
        "to B2: Guard version 6, record (s, stay 1, subscriptions s/s1 s/s2)",
    ]
    assert told.happens("from B2: Guarded version 5") == [], "the records count only together"
    assert told.happens("from B2: Guarded version 6") == ["to s: Confirmed s/s2, number 2"]


def test_a_guardian_that_comes_back_is_none_any_more() -> None:
    told = safe_broker("B1", "B2")
    told.happens("a subscriber s")
    told.happens("the connection to B1 breaks")
    told.happens("B2 guards everything")
    told.happens("B1 greets")
    assert told.happens("from s: Subscribe s/s2, number 2") == [
        "to B2: Guard version 6, record (s, stay 1, subscriptions s/s2)"
    ]


@pytest.mark.parametrize(("neighbours", "guardian"), [(["B1"], "B1"), (["B1", "B2"], "B2")])
def test_when_a_guardian_has_lost_its_memory_another_is_told_all_or_it_is_told_again(
    neighbours: list[str], guardian: str
) -> None:
    told = safe_broker(*neighbours)
    told.happens("a subscriber s")
    said = told.happens("B1 greets, started again")
    assert not [line for line in said if "to B1: Guard" in line], "it learns routes first"
    said += told.happens("from B1: Swept")
    assert [line for line in said if "Guard" in line] == [
        f"to {guardian}: GuardAll version 4, count 1",
        f"to {guardian}: Guard version 5, record (s, stay 1, subscriptions s/s1)",
    ]


def test_the_only_neighbour_guards_what_it_has_not_heard_when_it_comes_back() -> None:
    told = safe_broker("B1")
    told.happens("a subscriber s")
    told.happens("the connection to B1 breaks")
    assert told.happens("from s: Subscribe s/s2, number 2") == []
    assert told.happens("B1 greets") == ["to B1: Guard version 4, record (s, stay 1, subscriptions s/s2)"]
    assert told.happens("B1 guards everything") == ["to s: Confirmed s/s2, number 2"]


def test_a_guardian_that_is_taken_away_for_good_is_followed_by_another() -> None:
    told = safe_broker("B1", "B2")
    told.happens("a subscriber s")
    said = told.happens("the link to B1 is removed")
    assert [line for line in said if "Guard" in line] == [
        "to B2: GuardAll version 4, count 1",
        "to B2: Guard version 5, record (s, stay 1, subscriptions s/s1)",
    ]


# ---- what a guardian keeps ----


def test_a_guardian_tells_a_next_incarnation_what_it_keeps() -> None:
    told = safe_broker("B1")
    told.handle_message("B1", Guard(version=7, record=record("c", "c/s1", "c/a2", stay=3)))
    told.handle_message("B1", Guard(version=8, record=record("d")))
    assert told.said() == ["to B1: Guarded version 7", "to B1: Guarded version 8"]
    said = told.happens("B1 greets, started again")
    records = "(c, stay 3, subscriptions c/s1, advertisements c/a2) (d, stay 1)"
    assert f"to B1: ClientRecords version 8, records {records}" in said


def test_records_that_are_told_anew_count_when_all_have_come() -> None:
    kept = RetainedRecords()
    kept.keep(Guard(version=1, record=record("ann", "ann/s1")))
    kept.begin_anew(5, 2)
    kept.keep(Guard(version=6, record=record("bob")))
    assert (kept.version, [each.client for each in kept.all()]) == (1, ["ann"])
    kept.keep(Guard(version=7, record=record("cid")))
    assert (kept.version, [each.client for each in kept.all()]) == (7, ["bob", "cid"])
    kept.begin_anew(8, 0)
    assert (kept.version, kept.all()) == (8, ())


def test_another_session_of_a_client_has_nothing_of_the_one_before() -> None:
    kept = RetainedRecords()
    kept.keep(Guard(version=1, record=record("ann", "ann/s1")))
    kept.keep(Guard(version=2, record=record("ann", "ann/s7", session="2")))
    assert kept.all() == (record("ann", "ann/s7", session="2"),)


# ---- clients of an earlier incarnation ----


def restored(records: str, *others: str) -> ToldBroker:
    """A broker that has taken over, with what its neighbours keep."""
    told = ToldBroker()
    told.happens("a new safe broker B with neighbours B1 B2")
    for neighbour, kept in zip(("B1", "B2"), (records, *others, "ClientRecords"), strict=False):
        told.happens(f"{neighbour} greets")
        for said in (f"Members {neighbour}", "Synced", kept, "SubscriptionsTold", f"Swept {neighbour}"):
            told.happens(f"from {neighbour}: {said}")
    assert not told.broker.takeover.is_learning
    told.happens("B1 guards everything")
    return told


RECORDS = "ClientRecords version 9, records (s, stay 1, subscriptions s/s1)"


def test_a_restored_client_has_a_lease() -> None:
    told = restored(RECORDS)
    assert list(told.broker.peers["s"].subscriptions) == ["s/s1"]
    told.happens("59 s pass")
    assert "s" in told.broker.peers
    told.happens("1 s pass")
    assert "s" not in told.broker.peers
    assert told.broker.tables.subscriptions == {}


def test_the_records_of_the_highest_version_count() -> None:
    told = restored("ClientRecords version 3, records (old, stay 1)", RECORDS)
    assert [name for name, peer in told.broker.peers.items() if peer.role == "client"] == ["s"]
    assert told.happens("t greets with stay 1") == ["to B1: Guard version 12, record (t, stay 1)"], "10: all, 11: s"


def test_what_a_restored_client_wants_waits_for_it_and_is_not_done() -> None:
    told = restored(RECORDS)
    told.happens("from B1: Advertise q/a1, number 1")
    assert told.happens("from B1: Publish q, sequence 1") == []
    assert told.reported_done["B1"] == 0
    assert "to s: Publish q, sequence 1" in told.happens("s greets with stay 1")
    told.happens("from B1: Publish q, sequence 2")
    assert told.reported_done["B1"] > 0


def test_a_client_that_comes_back_tells_again_and_the_rest_ends() -> None:
    told = restored("ClientRecords version 9, records (s, stay 1, subscriptions s/s1 s/s2)")
    told.happens("s greets with stay 1")
    told.happens("from s: Subscribe s/s1, number 1")
    assert list(told.broker.tables.subscriptions) == ["s/s1", "s/s2"]
    told.happens("from s: Swept")
    assert list(told.broker.tables.subscriptions) == ["s/s1"]


def test_a_client_that_has_told_all_before_the_records_come_is_not_restored() -> None:
    told = ToldBroker()
    told.happens("a new safe broker B with neighbours B1")
    told.happens("s greets with stay 1")
    told.happens("from s: Subscribe s/s7, number 1")
    told.happens("from s: Swept")
    told.happens("B1 greets")
    told.happens(f"from B1: {RECORDS}")
    assert list(told.broker.tables.subscriptions) == ["s/s7"]


def test_a_client_that_has_not_told_all_yet_has_both() -> None:
    told = ToldBroker()
    told.happens("a new safe broker B with neighbours B1")
    told.happens("s greets with stay 1")
    told.happens("from s: Subscribe s/s7, number 1")
    told.happens("B1 greets")
    told.happens(f"from B1: {RECORDS}")
    assert list(told.broker.tables.subscriptions) == ["s/s7", "s/s1"]
    assert told.broker.peers["s"].lease_ends_s is None, "it is there"


def test_a_restored_client_that_was_on_its_way_here_is_asked_for_again() -> None:
    told = ToldBroker()
    told.happens("a new safe broker B with neighbours B1")
    told.happens("B1 greets")
    told.happens("from B1: Members B1")
    told.happens("from B1: Synced")
    told.happens("from B1: ClientRecords version 9, records (s, stay 2, old broker B1, subscriptions s/s1)")
    told.happens("from B1: SubscriptionsTold")
    assert told.happens("B1 guards everything") == ["to B1: Handover s, stay 2, old broker B1, new broker B"]


def test_another_session_of_a_restored_client_ends_it() -> None:
    told = restored(RECORDS)
    told.happens("s greets with stay 1")
    told.happens("the connection to s breaks")
    told.happens("s greets, started again with stay 1")
    assert told.broker.peers["s"].subscriptions == {}
    assert told.broker.tables.subscriptions == {}


def test_what_is_read_here_is_what_travels() -> None:
    assert read(RECORDS) == ClientRecords(version=9, records=(record("s", "s/s1"),))
