"""An edge-broker's part as a whole: what it says when, with the broker around it set by the test."""

from __future__ import annotations

from random import Random

from tests.policies.padres.hosts import FakeHost
from tests.policies.padres.loads import broker
from tests.policies.padres.test_messages import OFFER
from trimtab.language import Filter
from trimtab.policies.api import AgentAction, Heard, Tell, Woken
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex as Index
from trimtab.policies.padres.decisions import Status
from trimtab.policies.padres.edge import EdgePart
from trimtab.policies.padres.messages import (
    LB_CONTROL,
    AnyControl,
    CallForHelp,
    OffloadReply,
    OffloadRequest,
    control_from_values,
    control_to_values,
)
from trimtab.policies.padres.snapshot import (
    BrokerLoad,
    broker_load_to_values,
)

CONFIG = PadresConfig()


def said(actions: list[AgentAction]) -> list[AnyControl]:
    """The control messages among what a part does."""
    return [
        control_from_values(each.values)
        for each in actions
        if isinstance(each, Tell) and each.values["class"] == LB_CONTROL
    ]


def edge(ratio: float = 0.5, began_s: float = 0.0) -> EdgePart:
    return EdgePart(FakeHost("B1", ratio=ratio), "B0", CONFIG, Random(1), began_s)


def tells(part: EdgePart, load: BrokerLoad, now_s: float) -> list[AnyControl]:
    """A broker tells its load, and the part looks at it at once."""
    return said([*part.handle(Heard(broker_load_to_values(load)), now_s), *part.handle(Woken(), now_s)])


def fruitless_session(part: EdgePart, request: AnyControl, now_s: float) -> None:
    """B2 agrees, and no publication comes in by which a plan could be made."""
    reply = OffloadReply(session=request.session, sender="B2", status=Status.OK, offer=OFFER)
    part.handle(Heard(control_to_values(reply, "B1")), now_s)
    part.handle(Woken(), now_s + CONFIG.press_timeout_s)
    assert part.mediator.status == Status.OK


def test_a_session_that_found_nothing_to_move_is_not_tried_again_at_once() -> None:
    part = edge(0.5)
    other = broker("B2", 0.1, 0.5, matching_delay_s=0.05)
    (request,) = tells(part, other, 10.0)
    assert isinstance(request, OffloadRequest)
    fruitless_session(part, request, 10.0)
    assert [time_s for time_s in range(41, 101) if tells(part, other, float(time_s))] == [100]


def test_meanwhile_another_index_is_tried() -> None:
    part = edge(0.5)
    other = broker("B2", 0.1, 0.2, matching_delay_s=0.05)
    (request,) = tells(part, other, 10.0)
    fruitless_session(part, request, 10.0)
    (again,) = tells(part, other, 41.0)
    assert isinstance(request, OffloadRequest)
    assert isinstance(again, OffloadRequest)
    assert (request.action, again.action) == (Index.INPUT, Index.OUTPUT)


def test_an_overloaded_broker_calls_for_help_once_per_detection_interval() -> None:
    part = edge(0.97)
    calls_s: list[int] = []
    for time_s in range(1, 100):
        found = tells(part, broker("B2", 0.1), float(time_s))
        for request in [each for each in found if isinstance(each, OffloadRequest)]:
            refusal = OffloadReply(session=request.session, sender="B2", status=Status.BUSY)
            found += said(part.handle(Heard(control_to_values(refusal, "B1")), float(time_s)))
        calls_s += [time_s for each in found if isinstance(each, CallForHelp)]
    assert calls_s == [1, 21, 41, 61, 81], "although B2's news wakes it every second"


def test_a_broker_that_was_started_again_gives_its_sessions_new_names() -> None:
    names = {tells(edge(0.5, began_s), broker("B2", 0.1), began_s + 50.0)[0].session for began_s in (0.0, 100.0)}
    assert len(names) == 2


def test_a_broker_that_has_matched_nothing_tells_what_a_subscription_will_cost_it() -> None:
    host = FakeHost("B2", {"alice": [Filter.parse("[class,eq,'STOCK']")]}, ratio=0.0)
    host.matching_s_per_subscription = 0.0001
    part = EdgePart(host, "B0", CONFIG, Random(1), 0.0)
    request = OffloadRequest(session="B1/1/1", sender="B1", action=Index.INPUT)
    (reply,) = said(part.handle(Heard(control_to_values(request, "B2")), 10.0))
    assert isinstance(reply, OffloadReply) and reply.offer is not None
    assert reply.offer.resources.matching_delay_slope_s == 0.0001
