"""Every message between agents travels and comes back the same; what is none is refused with a reason."""

from __future__ import annotations

import pytest

from tests.policies.relocation.trees import roomy
from trimtab.language import Publication
from trimtab.policies.relocation.grape_joint import PathChange
from trimtab.policies.relocation.grape_tracing import BrokerTrace
from trimtab.policies.relocation.messages import (
    AnyRelocation,
    Echo,
    EchoAnswer,
    HeadroomAnswer,
    HeadroomRequest,
    RelocationAnswer,
    RelocationRequest,
    TraceAnswer,
    TraceRequest,
    TraceResult,
    announced_by,
    relocation_from_values,
    relocation_to_values,
    wanted_from,
)
from trimtab.policies.relocation.pop_selection import Walk

TRACE = BrokerTrace(
    broker="B3",
    neighbours=("B1", "B4"),
    bits_hex=f"{1 << 99:x}",
    deliveries_count=7,
    input_delay_s=0.001,
    matching_delay_s=0.002,
    output_delays_s={"B1": 0.003},
    client_output_delay_s=0.004,
    serves_publishers=False,
    room=roomy(),
)
MESSAGES: list[AnyRelocation] = [
    TraceResult(sender="B2", publisher="P", sequence=5, subscribers_count=3),
    RelocationRequest(sender="B1", publisher="P", walk=Walk("B1", 10.0, 15.0, 5.0), brokers=("B1",)),
    RelocationAnswer(sender="B5", publisher="P", brokers=("B6", "B5", "B1"), saved_hops_per_delivery=0.4),
    TraceRequest(sender="B1", publisher="P", session="trace/grape/B1/P/212", sent_count=97),
    TraceAnswer(sender="B3", publisher="P", session="trace/grape/B1/P/212", traces=(TRACE,)),
    HeadroomRequest(sender="B1", publisher="P", session="s", changes=(PathChange("B2", 1.5, -2.0),)),
    Echo(sender="B1", sent_s=12.5),
    EchoAnswer(sender="B1", sent_s=12.5, matching_delay_s=0.001),
    HeadroomAnswer(sender="B2", publisher="P", session="s", brokers=("B2", "B1"), full="B2"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_travels(message: AnyRelocation) -> None:
    values = relocation_to_values(message, to="B9")
    assert relocation_from_values(values) == message
    assert announced_by(message.sender).intersects(wanted_from(message.sender, "B9"))
    assert wanted_from(message.sender, "B9").matches(Publication(values))
    assert not wanted_from(message.sender, "B8").matches(Publication(values))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"class": "LB_CONTROL"}, "the class is 'LB_CONTROL'"),
        ({"class": "RELOCATION"}, "no body"),
        ({"class": "RELOCATION", "body": "{}"}, "not a relocation message"),
        ({"class": "RELOCATION", "body": '{"kind":"trace-result"}'}, "missing required field"),
    ],
)
def test_what_is_no_message_is_refused(values: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        relocation_from_values(values)
