"""The mediation protocol between two brokers (thesis, sections 3.4.1 and 3.4.2), whole lists of actions compared."""

from __future__ import annotations

from typing import Any

from tests.policies.padres.test_messages import OFFER, RESOURCES
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction, Reason, Status
from trimtab.policies.padres.detection import BrokerAction, Trigger
from trimtab.policies.padres.mediation import Mediator, Phase
from trimtab.policies.padres.mediation_events import (
    CallHead,
    ClientMoved,
    ClientStayed,
    ControlReceived,
    Detected,
    MediationAction,
    MoveClient,
    NobodyAgreed,
    Planned,
    Refused,
    Send,
    SendOffer,
    SessionEnded,
    StartSampling,
    StatusChanged,
    StopSampling,
    Triggered,
    Wake,
)
from trimtab.policies.padres.messages import (
    AnyControl,
    OffloadCancel,
    OffloadDone,
    OffloadReply,
    OffloadRequest,
    OffloadStart,
)
from trimtab.policies.padres.offload import ClientMove, OffloadPlan

CONFIG = PadresConfig()
FIRST, SECOND = "B1/1/1", "B1/1/2"
PLAN = OffloadPlan(
    action=LoadIndex.INPUT,
    moves=(ClientMove("alice", "input"), ClientMove("bob", "input")),
    ours_before=RESOURCES,
    theirs_before=RESOURCES,
    ours_after=RESOURCES,
    theirs_after=RESOURCES,
    difference_before=0.2,
    difference_after=0.0,
    stopped="the input ratios meet",
    cards=(),
)


def trigger(*brokers: str, overloaded: bool = False) -> Triggered:
    return Triggered(Trigger(overloaded, tuple(BrokerAction(name, LoadIndex.INPUT) for name in brokers), ()))


def ours(kind: Any, session: str = FIRST, **more: Any) -> Any:
    return kind(session=session, sender="B1", **more)


def theirs(kind: Any, session: str = FIRST, sender: str = "B2", **more: Any) -> ControlReceived:
    return ControlReceived(kind(session=session, sender=sender, **more))


def ended(gave: bool, reason: str, **more: Any) -> SessionEnded:
    return SessionEnded(
        session=FIRST, partner="B2" if gave else "B1", gave=gave, action=LoadIndex.INPUT, reason=reason, **more
    )


def giving(phase: Phase, *others: str) -> Mediator:
    """B1, which has asked B2 and reached a phase; it was triggered at 0 s and everything took a second."""
    mediator = Mediator("B1", CONFIG)
    mediator.handle(trigger("B2", *others), 0.0)
    if phase != Phase.ASKING:
        mediator.handle(theirs(OffloadReply, status=Status.OK, offer=OFFER), 1.0)
    if phase == Phase.MOVING:
        mediator.handle(Planned(FIRST, PLAN), 2.0)
    assert mediator.phase == phase
    return mediator


def accepting(phase: Phase) -> Mediator:
    """B2, which B1 has asked, in a phase."""
    mediator = Mediator("B2", CONFIG)
    mediator.handle(ControlReceived(ours(OffloadRequest, action=LoadIndex.INPUT)), 0.0)
    if phase == Phase.RECEIVING:
        mediator.handle(ControlReceived(ours(OffloadStart, clients=("alice", "bob"))), 1.0)
    assert mediator.phase == phase
    return mediator


# A session from beginning to end


def test_the_broker_that_gives() -> None:
    mediator = Mediator("B1", CONFIG)
    assert mediator.handle(trigger("B2", "B3"), 0.0) == [Send("B2", ours(OffloadRequest, action=LoadIndex.INPUT))]
    assert mediator.wake_at_s() == 10.0
    assert mediator.handle(theirs(OffloadReply, status=Status.OK, offer=OFFER), 1.0) == [
        StatusChanged(Status.BUSY),
        StartSampling(FIRST, "B2", LoadIndex.INPUT, OFFER),
    ]
    assert mediator.handle(Planned(FIRST, PLAN), 20.0) == [
        Send("B2", ours(OffloadStart, clients=("alice", "bob"))),
        MoveClient("alice", "B2", FIRST),
        MoveClient("bob", "B2", FIRST),
    ]
    assert mediator.wake_at_s() == 50.0, "twice the migration timeout, and the time of an answer"
    assert mediator.handle(ClientMoved("alice", FIRST), 21.0) == []
    assert mediator.handle(ClientMoved("bob", FIRST), 22.0) == []
    assert mediator.handle(theirs(OffloadDone, arrived=("alice", "bob")), 23.0) == [
        ended(True, "done", moved=("alice", "bob")),
        StatusChanged(Status.STABILIZING),
    ]
    assert (mediator.phase, mediator.wake_at_s()) == (Phase.IDLE, None)
    assert mediator.handle(Detected(Status.OK), 90.0) == [StatusChanged(Status.OK)]


def test_the_broker_that_accepts() -> None:
    mediator = Mediator("B2", CONFIG)
    assert mediator.handle(ControlReceived(ours(OffloadRequest, action=LoadIndex.INPUT)), 0.0) == [
        StatusChanged(Status.BUSY),
        SendOffer("B1", FIRST),
    ]
    assert mediator.handle(ControlReceived(ours(OffloadStart, clients=("alice", "bob"))), 20.0) == []
    assert mediator.wake_at_s() == 40.0
    assert mediator.handle(ClientMoved("bob", FIRST), 21.0) == []
    assert mediator.handle(ClientMoved("alice", FIRST), 22.0) == [
        Send("B1", OffloadDone(session=FIRST, sender="B2", arrived=("alice", "bob"))),
        ended(False, "done", moved=("bob", "alice")),
        StatusChanged(Status.STABILIZING),
    ]


# Refusals


def test_a_refusal_leads_to_the_next_candidate() -> None:
    mediator = giving(Phase.ASKING, "B3")
    assert mediator.handle(theirs(OffloadReply, status=Status.BUSY), 1.0) == [
        Refused("B2", "its status is BUSY"),
        Send("B3", ours(OffloadRequest, SECOND, action=LoadIndex.INPUT)),
    ]
    assert mediator.handle(theirs(OffloadReply, SECOND, "B3", status=Status.NOT_AVAILABLE), 2.0) == [
        Refused("B3", "its status is N/A"),
        NobodyAgreed(),
    ]
    assert mediator.phase == Phase.IDLE


def test_an_overloaded_broker_that_everybody_refuses_calls_its_head() -> None:
    mediator = Mediator("B1", CONFIG)
    mediator.handle(trigger("B2", overloaded=True), 0.0)
    assert mediator.handle(theirs(OffloadReply, status=Status.BUSY), 1.0) == [
        Refused("B2", "its status is BUSY"),
        NobodyAgreed(),
        CallHead(),
    ]


def test_no_answer_is_a_refusal_and_a_late_ok_is_released() -> None:
    mediator = giving(Phase.ASKING, "B3")
    assert mediator.handle(Wake(), 9.0) == []
    assert mediator.handle(Wake(), 10.0) == [
        Send("B2", ours(OffloadCancel, reason=Reason.NO_ANSWER.value)),
        Refused("B2", Reason.NO_ANSWER.value),
        Send("B3", ours(OffloadRequest, SECOND, action=LoadIndex.INPUT)),
    ]
    assert mediator.handle(theirs(OffloadReply, status=Status.OK, offer=OFFER), 11.0) == [
        Send("B2", ours(OffloadCancel, reason="the answer came too late"))
    ]
    assert mediator.phase == Phase.ASKING


def test_a_broker_refuses_with_its_status() -> None:
    for status in (Status.NOT_AVAILABLE, Status.STABILIZING):
        mediator = Mediator("B2", CONFIG)
        mediator.handle(Detected(status), 0.0)
        assert mediator.handle(ControlReceived(ours(OffloadRequest, action=LoadIndex.INPUT)), 1.0) == [
            Send("B1", OffloadReply(session=FIRST, sender="B2", status=status))
        ]


def test_a_broker_in_a_session_or_waiting_for_an_answer_is_busy() -> None:
    for phase in (Phase.ASKING, Phase.PLANNING, Phase.MOVING):
        request = OffloadRequest(session="B7/1/1", sender="B7", action=LoadIndex.OUTPUT)
        assert giving(phase).handle(ControlReceived(request), 3.0) == [
            Send("B7", OffloadReply(session="B7/1/1", sender="B1", status=Status.BUSY))
        ]


def test_a_trigger_during_a_session_is_left_to_the_next_detection() -> None:
    assert giving(Phase.PLANNING).handle(trigger("B5"), 2.0) == []


# Plans that come to nothing


def test_without_a_plan_the_partner_is_released_and_the_next_asked() -> None:
    nothing = NoAction(Reason.NOTHING_HELPS)
    assert giving(Phase.PLANNING, "B3").handle(Planned(FIRST, nothing), 5.0) == [
        Send("B2", ours(OffloadCancel, reason=str(nothing), fruitless=True)),
        ended(True, str(nothing), fruitless=True),
        StatusChanged(Status.OK),
        Send("B3", ours(OffloadRequest, SECOND, action=LoadIndex.INPUT)),
    ]


def test_a_released_partner_is_as_before() -> None:
    mediator = accepting(Phase.OFFERED)
    mediator.handle(Detected(Status.NOT_AVAILABLE), 1.0)
    assert mediator.handle(ControlReceived(ours(OffloadCancel, reason="no")), 2.0) == [
        ended(False, f"{Reason.CANCELLED.value}: no"),
        StatusChanged(Status.NOT_AVAILABLE),
    ]


def test_a_partner_knows_that_nothing_was_found_to_move() -> None:
    assert accepting(Phase.OFFERED).handle(ControlReceived(ours(OffloadCancel, reason="no", fruitless=True)), 2.0) == [
        ended(False, f"{Reason.CANCELLED.value}: no", fruitless=True),
        StatusChanged(Status.OK),
    ]


def test_a_plan_that_takes_too_long_ends_the_session() -> None:
    mediator = giving(Phase.PLANNING)
    assert mediator.handle(Wake(), 61.0) == [
        Send("B2", ours(OffloadCancel, reason="the plan took too long")),
        StopSampling(FIRST),
        ended(True, "the plan took too long"),
        StatusChanged(Status.OK),
    ]
    assert mediator.handle(Planned(FIRST, PLAN), 62.0) == [], "a late plan moves nobody"


def test_an_accepting_broker_that_hears_no_more_is_free_again() -> None:
    mediator = accepting(Phase.OFFERED)
    assert mediator.handle(Wake(), 70.0) == [ended(False, Reason.NO_ANSWER.value), StatusChanged(Status.OK)]
    assert mediator.handle(ControlReceived(ours(OffloadStart, clients=("alice",))), 71.0) == [
        Send("B1", OffloadCancel(session=FIRST, sender="B2", reason="no such session"))
    ]


# Clients that do not come


def test_the_accepting_broker_waits_n_times_the_migration_timeout() -> None:
    mediator = accepting(Phase.RECEIVING)
    mediator.handle(ClientMoved("alice", FIRST), 2.0)
    assert mediator.handle(Wake(), 20.0) == []
    assert mediator.handle(Wake(), 21.0) == [
        Send("B1", OffloadDone(session=FIRST, sender="B2", arrived=("alice",))),
        ended(False, "some clients did not come in time", moved=("alice",), missing=("bob",)),
        StatusChanged(Status.STABILIZING),
    ]


def test_a_client_that_stays_is_not_waited_for() -> None:
    giver, taker = giving(Phase.MOVING), accepting(Phase.RECEIVING)
    again = giver.handle(ClientStayed("bob", FIRST), 3.0)
    assert again == [Send("B2", ours(OffloadStart, clients=("alice",)))]
    assert taker.handle(ClientMoved("alice", FIRST), 4.0) == []
    assert taker.handle(ControlReceived(ours(OffloadStart, clients=("alice",))), 5.0)[0] == Send(
        "B1", OffloadDone(session=FIRST, sender="B2", arrived=("alice",))
    )
    assert giver.handle(ClientStayed("bob", FIRST), 6.0) == [], "said twice"


def test_if_no_client_moves_the_session_ends() -> None:
    mediator = giving(Phase.MOVING)
    mediator.handle(ClientStayed("bob", FIRST), 3.0)
    assert mediator.handle(ClientStayed("alice", FIRST), 3.0) == [
        Send("B2", ours(OffloadCancel, reason="no client moves")),
        ended(True, "no client moves"),
        StatusChanged(Status.OK),
    ]


def test_without_done_the_giving_broker_goes_on_by_itself() -> None:
    mediator = giving(Phase.MOVING)
    mediator.handle(ClientMoved("alice", FIRST), 3.0)
    assert mediator.handle(Wake(), 32.0) == [
        Send("B2", ours(OffloadCancel, reason=Reason.NO_ANSWER.value)),
        ended(True, Reason.NO_ANSWER.value, moved=("alice",), missing=("bob",)),
        StatusChanged(Status.STABILIZING),
    ]


# Late and repeated messages


def test_a_client_may_arrive_before_the_start_is_told() -> None:
    mediator = accepting(Phase.OFFERED)
    assert mediator.handle(ClientMoved("alice", FIRST), 1.0) == []
    answer = mediator.handle(ControlReceived(ours(OffloadStart, clients=("alice",))), 2.0)
    assert answer[0] == Send("B1", OffloadDone(session=FIRST, sender="B2", arrived=("alice",)))


def test_a_repeated_request_is_answered_again() -> None:
    request = ControlReceived(ours(OffloadRequest, action=LoadIndex.INPUT))
    assert accepting(Phase.OFFERED).handle(request, 1.0) == [SendOffer("B1", FIRST)]


def test_messages_of_other_sessions_and_repeated_ones_change_nothing() -> None:
    strays: list[AnyControl] = [
        OffloadReply(session="B1/1/0", sender="B2", status=Status.BUSY),
        OffloadDone(session="B1/1/0", sender="B2", arrived=()),
        OffloadCancel(session="B1/1/0", sender="B2", reason="old"),
        OffloadCancel(session=FIRST, sender="B9", reason="not my partner"),
    ]
    machines = [giving(Phase.ASKING), giving(Phase.PLANNING), giving(Phase.MOVING)]
    machines += [accepting(Phase.OFFERED), accepting(Phase.RECEIVING), Mediator("B1", CONFIG)]
    for machine in machines:
        before = machine.phase
        found: list[MediationAction] = []
        for stray in strays:
            found += machine.handle(ControlReceived(stray), 3.0)
        found += machine.handle(ClientMoved("alice", "B1/1/0"), 3.0)
        found += machine.handle(ClientStayed("alice", "B1/1/0"), 3.0)
        found += machine.handle(Planned("B1/1/0", PLAN), 3.0)
        assert (found, machine.phase) == ([], before)


def test_a_repeated_ok_during_the_session_does_not_cancel_it() -> None:
    reply = theirs(OffloadReply, status=Status.OK, offer=OFFER)
    for phase in (Phase.PLANNING, Phase.MOVING):
        assert giving(phase).handle(reply, 3.0) == []


def test_a_broker_that_looked_at_itself_during_a_session_is_not_busy_after_it() -> None:
    mediator = accepting(Phase.OFFERED)
    mediator.handle(Detected(Status.BUSY), 1.0)
    mediator.handle(ControlReceived(ours(OffloadCancel, reason="no")), 2.0)
    assert (mediator.phase, mediator.status) == (Phase.IDLE, Status.OK)


def test_detection_during_a_session_does_not_change_the_status() -> None:
    mediator = giving(Phase.PLANNING)
    assert mediator.handle(Detected(Status.NOT_AVAILABLE), 2.0) == []
    assert mediator.status == Status.BUSY


def test_a_broker_that_looks_at_its_load_during_a_session_without_moves_is_ready_again_after_it() -> None:
    mediator = giving(Phase.MOVING)
    assert mediator.handle(Detected(Status.BUSY), 2.5) == []
    mediator.handle(ClientStayed("alice", FIRST), 3.0)
    assert StatusChanged(Status.OK) in mediator.handle(ClientStayed("bob", FIRST), 3.5)
    assert mediator.status == Status.OK
