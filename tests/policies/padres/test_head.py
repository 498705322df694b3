"""A cluster-head's part as a whole: what it says when, with the broker around it set by the test."""

from __future__ import annotations

from random import Random

from tests.policies.padres.hosts import FakeHost
from tests.policies.padres.loads import broker, cluster
from tests.policies.padres.test_edge import said
from trimtab.language import Filter
from trimtab.policies.api import AgentAction, AgentEvent, Heard, MoveClient, Tell, Woken
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import Status
from trimtab.policies.padres.head import HeadPart
from trimtab.policies.padres.messages import (
    AnyControl,
    CallForHelp,
    GlobalDone,
    GlobalReply,
    GlobalRequest,
    control_to_values,
)
from trimtab.policies.padres.snapshot import (
    GLOBAL_PIE,
    BrokerLoad,
    ClusterLoad,
    broker_load_to_values,
    cluster_load_from_values,
    cluster_load_to_values,
)

CONFIG = PadresConfig()


def head(began_s: float = 0.0) -> HeadPart:
    return HeadPart(FakeHost("B10"), CONFIG, Random(1), began_s)


def hears(part: HeadPart, now_s: float, *what: BrokerLoad | ClusterLoad | AnyControl) -> list[AgentAction]:
    """The head hears this, and looks at it at once."""
    actions: list[AgentAction] = []
    for each in what:
        if isinstance(each, BrokerLoad):
            values = broker_load_to_values(each)
        elif isinstance(each, ClusterLoad):
            values = cluster_load_to_values(each)
        else:
            values = control_to_values(each, "B10")
        actions += part.handle(Heard(values), now_s)
    return [*actions, *part.handle(Woken(), now_s)]


def asked(actions: list[AgentAction]) -> list[str]:
    """The sessions that the head asks for."""
    return [each.session for each in said(actions) if isinstance(each, GlobalRequest)]


def told(actions: list[AgentAction]) -> list[ClusterLoad]:
    """The clusters' loads that the head tells or passes on."""
    return [
        cluster_load_from_values(each.values)
        for each in actions
        if isinstance(each, Tell) and each.values["class"] == GLOBAL_PIE
    ]


def moves(actions: list[AgentAction]) -> list[tuple[str, str]]:
    """The clients that are asked to move, and where."""
    return [(each.client, each.to_broker) for each in actions if isinstance(each, MoveClient)]


def in_session(*edges: BrokerLoad) -> tuple[HeadPart, str]:
    """A head whose cluster balances with B20's, and the session."""
    part = head()
    (session,) = asked(hears(part, 75.0, *edges, cluster("B20", 0.1)))
    reply = GlobalReply(session=session, sender="B20", cluster="B20", status=Status.OK, edge_brokers=("B21",))
    hears(part, 76.0, reply)
    return part, session


EDGE = broker("B11", 0.6, cluster="B10")
FULL = broker("B11", 0.97, cluster="B10", status=Status.NOT_AVAILABLE)


def test_a_cluster_tells_that_it_is_free_as_soon_as_a_session_is_over() -> None:
    part, session = in_session(EDGE)
    hears(part, 150.0, EDGE)
    done = GlobalDone(session=session, sender="B20", reason="enough")
    assert [load.status for load in told(part.handle(Heard(control_to_values(done, "B10")), 160.0))] == [Status.OK]
    request = GlobalRequest(session="B30/1/g1", sender="B30", cluster="B30", edge_brokers=())
    (reply,) = said(part.handle(Heard(control_to_values(request, "B10")), 161.0))[:1]
    assert isinstance(reply, GlobalReply)
    assert reply.status == Status.OK


def test_or_that_it_is_overloaded() -> None:
    part, session = in_session(EDGE)
    hears(part, 155.0, FULL)
    done = GlobalDone(session=session, sender="B20", reason="enough")
    statuses = [load.status for load in told(part.handle(Heard(control_to_values(done, "B10")), 160.0))]
    assert statuses == [Status.NOT_AVAILABLE]


def test_a_cluster_that_could_not_help_is_not_asked_again_at_once() -> None:
    part, _ = in_session(FULL)
    call = CallForHelp(session="B11/help", sender="B11")
    assert asked(hears(part, 100.0, call, call, call, cluster("B20", 0.1))) == []
    assert len(asked(hears(part, 110.0, FULL, cluster("B30", 0.2, sent_by="B20")))) == 1
    part, _ = in_session(FULL)
    hears(part, 100.0, call, call, call)
    assert len(asked(hears(part, 281.0, FULL, cluster("B20", 0.1)))) == 1


def test_a_cluster_that_could_not_help_lets_others_see_past_it_and_acts_itself() -> None:
    part, session = in_session(EDGE)
    overloaded = cluster("B20", 0.95, status=Status.NOT_AVAILABLE)
    part.handle(Heard(cluster_load_to_values(cluster("B30", 0.2))), 90.0)
    hears(part, 90.0, EDGE, overloaded)
    done = GlobalDone(session=session, sender="B20", reason="full", saturated=True)
    found = part.handle(Heard(control_to_values(done, "B10")), 100.0)
    assert [(load.cluster, load.sent_by) for load in told(found) if load.cluster == "B30"] == [("B30", "B10")]
    assert len(asked(hears(part, 110.0, EDGE, overloaded, cluster("B30", 0.2)))) == 1, "although B20 is overloaded"


def test_a_head_without_edge_brokers_sends_subscribers_to_the_nearest_cluster() -> None:
    """Thesis, section 3.2: heads serve no subscribers."""
    served = {"alice": [Filter.parse("[class,eq,'STOCK']")]}
    part = HeadPart(FakeHost("B10", served), CONFIG, Random(1), 0.0)
    far, near = cluster("B40", 0.2, sent_by="B30"), cluster("B20", 0.6)
    assert moves(hears(part, 80.0, far)) == [], "its edge-brokers may not have told their load yet"
    found = hears(part, 171.0, far)
    assert moves(found) == [("alice", "B30")]
    assert [(load.cluster, load.sent_by) for load in told(found)] == [("B40", "B10")], "it is no barrier"
    assert moves(hears(part, 250.0, far, near)) == [("alice", "B20")]


def test_otherwise_the_overloaded_cluster_goes_first() -> None:
    part = head()
    overloaded = cluster("B20", 0.95, status=Status.NOT_AVAILABLE)
    found = hears(part, 75.0, EDGE, overloaded, cluster("B30", 0.2))
    assert asked(found) == []
    assert all(load.cluster == "B10" for load in told(found))


def test_a_cluster_head_that_was_started_again_does_so_too() -> None:
    names: set[str] = set()
    for began_s in (0.0, 100.0):
        part = HeadPart(FakeHost("B10"), CONFIG, Random(1), began_s)
        now_s = began_s + 50.0
        events: list[AgentEvent] = [
            Heard(broker_load_to_values(broker("B11", 0.6, cluster="B10"))),
            Heard(cluster_load_to_values(cluster("B20", 0.1))),
            Woken(),
        ]
        found = said([action for event in events for action in part.handle(event, now_s)])
        names |= {each.session for each in found if isinstance(each, GlobalRequest)}
    assert len(names) == 2
