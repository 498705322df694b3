"""An edge-broker that is overloaded asks its head; how soon it asks again depends on what came of it."""

from __future__ import annotations

from tests.policies.delay.test_head import CONFIG, load
from tests.policies.padres.hosts import FakeHost
from trimtab.policies.api import AgentAction, Heard, Tell, Woken
from trimtab.policies.delay.edge import DelayEdge
from trimtab.policies.delay.messages import Content, Refusal, Request, from_values, to_values


class Edge:
    """An edge whose matching is overloaded, and which knows a broker with little load."""

    def __init__(self) -> None:
        self.part = DelayEdge(FakeHost("b1", ratio=1.2), "Bh", CONFIG, 0.0)

    def hears(self, sender: str, content: Content, now_s: float) -> list[AgentAction]:
        return self.part.handle(Heard(to_values(content, sender, "b1")), now_s)

    def request_at(self, now_s: float) -> Request | None:
        """What it asks for when it wakes; others tell their load all the time."""
        self.hears("b0", load(0.3), now_s)
        for action in self.part.handle(Woken(), now_s):
            received = from_values(action.values) if isinstance(action, Tell) else None
            if received is not None and isinstance(received.content, Request):
                return received.content
        return None


def test_one_that_was_refused_asks_again_with_the_next_reading() -> None:
    edge = Edge()
    first = edge.request_at(1.0)
    assert first is not None
    edge.hears("Bh", Refusal(phase=first.phase, reason="b3 is being balanced"), 1.2)
    again = edge.request_at(1.2 + CONFIG.read_every_s)
    assert again is not None
    assert again.phase != first.phase
    assert "b3 is being balanced" not in edge.part.report().decision


def test_one_that_nobody_answered_lets_the_load_settle_first() -> None:
    edge = Edge()
    assert edge.request_at(1.0) is not None
    given_up_s = 1.0 + CONFIG.reply_timeout_s + CONFIG.sample_timeout_s
    assert edge.request_at(given_up_s) is None
    assert edge.request_at(given_up_s + CONFIG.settle_s / 2) is None
    assert edge.request_at(given_up_s + CONFIG.settle_s) is not None
