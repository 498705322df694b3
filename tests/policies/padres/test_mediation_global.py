"""The mediation protocol between two cluster-heads (thesis, section 3.4.3)."""

from __future__ import annotations

from typing import Any

from tests.policies.padres.loads import broker
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import Reason, Status
from trimtab.policies.padres.mediation_events import ControlReceived, Send, StatusChanged, Wake
from trimtab.policies.padres.mediation_global import (
    ClusterDetected,
    DetectNow,
    GlobalMediator,
    GlobalPhase,
    GlobalSessionEnded,
    GlobalTriggered,
    Listen,
    LoadTold,
    MemberGone,
    Saturated,
    StopListening,
)
from trimtab.policies.padres.messages import (
    CallForHelp,
    ExchangeEnd,
    ExchangeStart,
    GlobalDone,
    GlobalReply,
    GlobalRequest,
)

CONFIG = PadresConfig()
SESSION = "B10/1/g1"
NEITHER = "neither cluster can relieve an overloaded broker"
COMPLETE = "all brokers of both clusters are balanced"


def head(name: str, *edge_brokers: str, status: Status = Status.OK) -> GlobalMediator:
    mediator = GlobalMediator(name, name, CONFIG)
    mediator.handle(ClusterDetected(status, edge_brokers), 0.0)
    return mediator


def from_other(kind: Any, sender: str = "B20", session: str = SESSION, **more: Any) -> ControlReceived:
    return ControlReceived(kind(session=session, sender=sender, **more))


def balancing() -> GlobalMediator:
    """B10 in a session with B20: its edge-brokers B11 and B12 with B21."""
    mediator = head("B10", "B11", "B12")
    mediator.handle(GlobalTriggered(("B20", "B30")), 0.0)
    mediator.handle(from_other(GlobalReply, cluster="B20", status=Status.OK, edge_brokers=("B21",)), 1.0)
    assert mediator.phase == GlobalPhase.BALANCING
    return mediator


def test_the_head_that_asks() -> None:
    mediator = head("B10", "B11", "B12")
    assert mediator.handle(GlobalTriggered(("B20", "B30")), 0.0) == [
        Send("B20", GlobalRequest(session=SESSION, sender="B10", cluster="B10", edge_brokers=("B11", "B12")))
    ]
    ok = from_other(GlobalReply, cluster="B20", status=Status.OK, edge_brokers=("B21",))
    assert mediator.handle(ok, 1.0) == [
        StatusChanged(Status.BUSY),
        Listen("B20"),
        Send("B11", ExchangeStart(session=SESSION, sender="B10", cluster="B20")),
        Send("B12", ExchangeStart(session=SESSION, sender="B10", cluster="B20")),
    ]
    assert mediator.handle(ok, 2.0) == [], "said twice"


def test_the_head_that_agrees() -> None:
    mediator = head("B20", "B21")
    request = from_other(GlobalRequest, "B10", cluster="B10", edge_brokers=("B11", "B12"))
    reply = GlobalReply(session=SESSION, sender="B20", cluster="B20", status=Status.OK, edge_brokers=("B21",))
    assert mediator.handle(request, 0.0) == [
        Send("B10", reply),
        StatusChanged(Status.BUSY),
        Listen("B10"),
        Send("B21", ExchangeStart(session=SESSION, sender="B20", cluster="B10")),
    ]
    assert mediator.handle(request, 1.0) == [Send("B10", reply)], "a repeated request is answered again"


def test_the_session_ends_when_all_balanced_sets_are_complete() -> None:
    mediator = balancing()
    loads = {"B11": ("B12", "B21"), "B12": ("B11", "B21"), "B21": ("B11",)}
    for name, balanced_with in loads.items():
        assert mediator.handle(LoadTold(broker(name, balanced_with=balanced_with)), 5.0) == []
    assert mediator.handle(LoadTold(broker("B21", balanced_with=("B11", "B12"))), 6.0) == [
        Send("B20", GlobalDone(session=SESSION, sender="B10", reason=COMPLETE)),
        StopListening("B20"),
        Send("B11", ExchangeEnd(session=SESSION, sender="B10", cluster="B20")),
        Send("B12", ExchangeEnd(session=SESSION, sender="B10", cluster="B20")),
        GlobalSessionEnded(SESSION, "B20", COMPLETE),
        StatusChanged(Status.OK),
    ]


def test_a_broker_that_is_gone_is_not_waited_for() -> None:
    mediator = balancing()
    for name, other in (("B11", "B12"), ("B12", "B11")):
        assert mediator.handle(LoadTold(broker(name, balanced_with=(other,))), 5.0) == []
    assert GlobalSessionEnded(SESSION, "B20", COMPLETE) in mediator.handle(MemberGone("B21"), 6.0)


def test_the_other_heads_done_ends_the_session_without_an_answer() -> None:
    assert balancing().handle(from_other(GlobalDone, reason="enough"), 5.0) == [
        StopListening("B20"),
        Send("B11", ExchangeEnd(session=SESSION, sender="B10", cluster="B20")),
        Send("B12", ExchangeEnd(session=SESSION, sender="B10", cluster="B20")),
        GlobalSessionEnded(SESSION, "B20", "enough"),
        StatusChanged(Status.OK),
    ]


def test_refusals_and_silence_lead_to_the_next_head() -> None:
    mediator = head("B10", "B11")
    mediator.handle(GlobalTriggered(("B20", "B30", "B40")), 0.0)
    refusal = from_other(GlobalReply, cluster="B20", status=Status.BUSY)
    assert mediator.handle(refusal, 1.0) == [
        Send("B30", GlobalRequest(session="B10/1/g2", sender="B10", cluster="B10", edge_brokers=("B11",)))
    ]
    assert mediator.handle(Wake(), 10.0) == []
    assert mediator.handle(Wake(), 11.0) == [
        Send("B30", GlobalDone(session="B10/1/g2", sender="B10", reason=Reason.NO_ANSWER.value)),
        Send("B40", GlobalRequest(session="B10/1/g3", sender="B10", cluster="B10", edge_brokers=("B11",))),
    ]
    late = from_other(GlobalReply, "B30", "B10/1/g2", cluster="B30", status=Status.OK)
    assert mediator.handle(late, 12.0) == [
        Send("B30", GlobalDone(session="B10/1/g2", sender="B10", reason="the answer came too late"))
    ]
    assert (
        mediator.handle(from_other(GlobalReply, "B40", "B10/1/g3", cluster="B40", status=Status.NOT_AVAILABLE), 13.0)
        == []
    )
    assert (mediator.phase, mediator.wake_at_s()) == (GlobalPhase.IDLE, None)


def test_only_an_available_cluster_agrees() -> None:
    request = from_other(GlobalRequest, "B30", "B30/1/g1", cluster="B30", edge_brokers=("B31",))
    for mediator, status in (
        (head("B20", "B21", status=Status.NOT_AVAILABLE), Status.NOT_AVAILABLE),
        (balancing(), Status.BUSY),
    ):
        assert mediator.handle(request, 5.0) == [
            Send(
                "B30",
                GlobalReply(session="B30/1/g1", sender=mediator.head, cluster=mediator.cluster, status=status),
            )
        ]


def test_a_call_for_help_starts_detection_unless_a_session_may_still_help() -> None:
    call = from_other(CallForHelp, "B11", "")
    assert head("B10", "B11", status=Status.NOT_AVAILABLE).handle(call, 0.0) == [DetectNow()]
    mediator = balancing()
    assert [mediator.handle(call, 5.0), mediator.handle(call, 6.0)] == [[], []]
    third = mediator.handle(call, 7.0)
    assert third[0] == Send("B20", GlobalDone(session=SESSION, sender="B10", reason=NEITHER, saturated=True))
    assert third[-1] == DetectNow(instead_of="B20")
    assert mediator.phase == GlobalPhase.IDLE


def test_the_cluster_that_could_not_help_knows_it() -> None:
    assert balancing().handle(from_other(GlobalDone, reason=NEITHER, saturated=True), 5.0)[-1] == Saturated()


def test_a_session_has_a_time_limit() -> None:
    mediator = balancing()
    while (due_s := mediator.wake_at_s()) is not None and due_s < 601.0:
        mediator.handle(LoadTold(broker("B11", status=Status.STABILIZING)), due_s - 1.0)
    assert due_s == 601.0
    assert GlobalSessionEnded(SESSION, "B20", "the session took too long") in mediator.handle(Wake(), 601.0)


def test_no_time_limit_ends_a_session_while_a_member_is_overloaded() -> None:
    """Section 3.3.2.2: such a session ends with full balanced sets or after three calls for help."""
    mediator = balancing()
    mediator.handle(LoadTold(broker("B11", 0.93, status=Status.NOT_AVAILABLE)), 10.0)
    while (due_s := mediator.wake_at_s()) is not None and due_s < 2_000.0:
        assert mediator.handle(Wake(), due_s) == []
    call = from_other(CallForHelp, "B11", "")
    assert [mediator.handle(call, 2_000.0) for _ in range(2)] == [[], []]
    assert GlobalSessionEnded(SESSION, "B20", NEITHER) in mediator.handle(call, 2_001.0)


def test_it_ends_soon_after_the_overload() -> None:
    mediator = balancing()
    mediator.handle(LoadTold(broker("B11", 0.93, status=Status.NOT_AVAILABLE)), 10.0)
    assert mediator.handle(Wake(), 700.0) == []
    mediator.handle(LoadTold(broker("B11", 0.5)), 710.0)
    assert GlobalSessionEnded(SESSION, "B20", "nothing more was found to move") in mediator.handle(Wake(), 760.0)


def test_a_session_in_which_nobody_finds_anything_to_move_ends_and_frees_both_clusters() -> None:
    mediator = balancing()
    mediator.handle(LoadTold(broker("B11", status=Status.STABILIZING)), 100.0)
    mediator.handle(LoadTold(broker("B11")), 200.0)
    mediator.handle(LoadTold(broker("B99", status=Status.BUSY)), 250.0)
    assert mediator.handle(Wake(), 241.0) == []
    assert mediator.wake_at_s() == 340.0
    assert GlobalSessionEnded(SESSION, "B20", "nothing more was found to move") in mediator.handle(Wake(), 340.0)
    assert mediator.status == Status.OK
    assert mediator.wake_at_s() is None


def test_sessions_that_find_nothing_to_move_do_not_prolong_it() -> None:
    mediator = balancing()
    for time_s in range(10, 240, 20):
        mediator.handle(LoadTold(broker("B11", status=Status.BUSY)), float(time_s))
        mediator.handle(LoadTold(broker("B11")), time_s + 3.0)
    assert GlobalSessionEnded(SESSION, "B20", "nothing more was found to move") in mediator.handle(Wake(), 241.0)


def test_but_one_under_way_is_waited_for() -> None:
    mediator = balancing()
    mediator.handle(LoadTold(broker("B11", status=Status.BUSY)), 230.0)
    assert mediator.handle(Wake(), 241.0) == []
    mediator.handle(LoadTold(broker("B11", status=Status.STABILIZING)), 250.0)
    assert mediator.wake_at_s() == 490.0


def test_what_is_late_or_belongs_to_no_session_changes_nothing() -> None:
    mediator = head("B10", "B11")
    for event in (
        LoadTold(broker("B11")),
        MemberGone("B11"),
        from_other(GlobalDone, reason="old"),
        from_other(GlobalReply, cluster="B20", status=Status.BUSY),
        Wake(),
    ):
        assert mediator.handle(event, 100.0) == []
    assert balancing().handle(GlobalTriggered(("B30",)), 5.0) == []
    assert balancing().handle(ClusterDetected(Status.NOT_AVAILABLE, ("B11",)), 5.0) == []
