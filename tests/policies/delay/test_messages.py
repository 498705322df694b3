"""Every message of the agents is read back as it was, and nothing else is taken for one."""

from __future__ import annotations

from typing import get_args

import pytest

from trimtab.language import Filter, Publication
from trimtab.policies.api import BrokerCapacity
from trimtab.policies.delay.messages import (
    ANNOUNCED,
    Answer,
    Ask,
    Begin,
    Candidates,
    Content,
    Done,
    EdgeLoad,
    Go,
    HeadLoad,
    HeardMessage,
    Moved,
    OffloadList,
    Ping,
    Pong,
    Refusal,
    Request,
    filter_for,
    from_values,
    to_values,
)
from trimtab.policies.delay.metrics import EdgeMetrics, HeadMetrics, State
from trimtab.policies.delay.selection import Selected

LOAD = EdgeLoad(
    metrics=EdgeMetrics(0.1, 0.2, 0.3, 4),
    state=State.OVERLOAD,
    capacity=BrokerCapacity(1e6, 1e9, None),
    matching_delay_s=0.001,
    input_rate_per_s=100.0,
    is_busy=True,
    filters=(Filter.parse("topic = 8 AND name LIKE 'a%'"),),
)
SELECTED = (Selected(("S1", "S2"), "b0"),)
CONTENTS: list[Content] = [
    LOAD,
    HeadLoad(
        metrics=HeadMetrics(0.4, 0.97),
        state=State.OVERLOAD,
        capacity=BrokerCapacity(1e6, 1e9, None),
        edges={"b1": LOAD},
    ),
    Ping(number=3),
    Pong(number=3, publisher_head_s=0.2, head_s=0.01, local_publishers=("P1",)),
    Request(phase="b1/1", candidates=("b0", "b2")),
    Refusal(phase="b1/1", reason="busy"),
    Ask(phase="b1/1"),
    Answer(phase="b1/1", load=LOAD),
    Candidates(phase="b1/1", loads={"b0": LOAD}),
    OffloadList(phase="b1/1", selected=SELECTED),
    Go(phase="b1/1", selected=SELECTED),
    Begin(phase="b1/1"),
    Moved(phase="b1/1", client="S1", reason="it has left"),
    Done(phase="b1/1", took_s=1.5),
]


def test_no_message_is_forgotten_here() -> None:
    assert {type(content) for content in CONTENTS} == set(get_args(Content))


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: type(content).__name__)
def test_a_message_is_announced_reaches_its_address_and_is_read_back(content: Content) -> None:
    values = to_values(content, "b1", "Bh")
    assert ANNOUNCED.announces(Publication(values))
    assert filter_for("Bh").matches(values)
    assert not filter_for("b1").matches(values)
    assert from_values(values) == HeardMessage("b1", content)


def test_other_control_messages_are_not_read_and_broken_ones_are_named() -> None:
    assert from_values({"class": "LOCAL_PIE"}) is None
    with pytest.raises(ValueError, match="not a message of delay-sensitive balancing"):
        from_values({"class": "DELAY", "body": "{}"})
