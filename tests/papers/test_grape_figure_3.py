"""Publisher relocation paper (2009), section 4.1 and Figure 3: a trace session that begins with message 212."""

from __future__ import annotations

from trimtab.policies.relocation.config import RelocationConfig
from trimtab.policies.relocation.grape_tracing import Ask, BrokerTrace, Collected, GrapeTraces, SessionTrace
from trimtab.policies.relocation.tags import first_sequence_of, session_tag

M = 212
SESSION = session_tag("B1", "P", M)


def test_the_sessions_name_ends_in_the_start_of_the_bit_vector() -> None:
    assert SESSION == "trace/grape/B1/P/212"
    assert first_sequence_of(SESSION) == M


def test_delivering_message_m_plus_delta_sets_bit_delta() -> None:
    trace = SessionTrace(SESSION, "P", upstream="B1", now_s=0.0)
    for delta in (0, 1, 4, 7):
        trace.saw(M + delta, clients_count=1, neighbours=[])
    assert [delta for delta in range(10) if trace.bits >> delta & 1] == [0, 1, 4, 7]


def test_a_message_that_nobody_here_wants_sets_no_bit() -> None:
    trace = SessionTrace(SESSION, "P", upstream="B1", now_s=0.0)
    trace.saw(M + 3, clients_count=0, neighbours=["B3"])
    assert (trace.bits, trace.deliveries_count, trace.sent_counts) == (0, 0, {"B3": 1})


def test_the_cardinality_counts_messages_and_the_other_number_deliveries() -> None:
    trace = SessionTrace(SESSION, "P", upstream="B1", now_s=0.0)
    trace.saw(M, clients_count=3, neighbours=[])
    trace.saw(M + 1, clients_count=2, neighbours=[])
    assert (trace.bits.bit_count(), trace.deliveries_count) == (2, 5)


def test_messages_outside_of_the_session_are_not_counted() -> None:
    trace = SessionTrace(SESSION, "P", upstream="B1", now_s=0.0)
    trace.saw(M - 1, clients_count=1, neighbours=[])
    trace.saw(M + 10**9, clients_count=1, neighbours=[])
    assert (trace.bits, trace.received_count) == (0, 0)


def test_a_request_runs_down_and_one_answer_comes_back_with_all_that_is_behind() -> None:
    """B1 - B2 - B3: B2 asks B3 and answers with both."""
    second = GrapeTraces(RelocationConfig())
    for sequence in (M, M + 1):
        second.saw(SESSION, ("P", sequence), "B1", 1, ["B3"], 0.0)
    assert second.asked(SESSION, "P", "B1", 2, 1.0) == [Ask("B3", SESSION, "P", 2)]
    third = BrokerTrace(broker="B3", neighbours=("B2",), bits_hex="1", deliveries_count=4)
    own = BrokerTrace(broker="", neighbours=(), bits_hex="3", deliveries_count=2)
    assert second.answered(SESSION, "B3", [third]) == [Collected("B1", SESSION, "P", (own, third), ())]
    assert second.kept_bytes == 0, "what was answered is cleared"


def test_a_request_that_overtakes_publications_waits_for_them() -> None:
    traces = GrapeTraces(RelocationConfig())
    traces.saw(SESSION, ("P", M), "B1", 1, [], 0.0)
    assert traces.asked(SESSION, "P", "B1", 2, 1.0) == []
    (collected,) = traces.saw(SESSION, ("P", M + 1), "B1", 1, [], 1.1)
    assert isinstance(collected, Collected)
    assert collected.traces[0].bits == 0b11


def test_an_answer_that_does_not_come_is_left_out_after_a_while() -> None:
    config = RelocationConfig(answer_timeout_s=30.0)
    traces = GrapeTraces(config)
    traces.saw(SESSION, ("P", M), "B1", 1, ["B3"], 0.0)
    traces.asked(SESSION, "P", "B1", 1, 1.0)
    assert traces.next_overdue_s() == 31.0
    assert traces.overdue(30.9) == []
    (collected,) = traces.overdue(31.0)
    assert isinstance(collected, Collected)
    assert collected.missing == ("B3",)
