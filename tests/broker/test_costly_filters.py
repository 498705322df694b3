"""Filters that were made to be hard to compare stall nobody: what takes too long gets the safe answer."""

import random
import time

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.language import Filter, Op, Predicate
from trimtab.language.string_sets import shared_budget
from trimtab.protocol.codec import FrameReader, encode_frame
from trimtab.protocol.events import Connected, Step
from trimtab.protocol.frames import Hello, Payload
from trimtab.protocol.messages import Advertise, AnyMessage, Confirmed, Subscribe

ITERATION_MAX_S = 0.1
"""Of CPU: without a limit it is 18 s."""


def hard(seed: int) -> Filter:
    """Ten parts that a text must have, and a pattern that every text with all of them fits, and that it must not fit.

    Nothing satisfies it, but no two of its conditions show that.
    """
    generator = random.Random(seed)
    parts = ["".join(generator.choice("cdefgh") for _ in range(4)) + "ab" * 5 for _ in range(10)]
    predicates = [Predicate.of("text", Op.CONTAINS, part) for part in parts]
    with shared_budget(1):  # an attacker does not ask whether it makes sense
        return Filter([*predicates, Predicate.of("text", Op.NOT_LIKE, "%a%b" * 40 + "%")])


def served(messages: list[AnyMessage], *, has_neighbour: bool) -> tuple[float, list[AnyMessage]]:
    """The longest that one call takes, as a world makes them, and what the client is answered."""
    broker = Broker(BrokerConfig(name="B1", session="1"), (), 0.0)
    if has_neighbour:
        broker.handle(Connected("B2", Hello(3, "broker", "B2", "2", 1)), 0.0)
    broker.handle(Connected("mallory", Hello(3, "client", "mallory", "m", 1)), 0.0)
    longest_s = 0.0
    data = encode_frame(Payload(1, 0, list(messages)))
    began_s = time.thread_time()
    (frame,) = FrameReader().feed(data)
    longest_s = max(longest_s, time.thread_time() - began_s)
    assert isinstance(frame, Payload)
    broker.receive("mallory", frame, 0.0)
    while broker.input_count:
        began_s = time.thread_time()
        broker.handle(Step(256), 0.0)
        longest_s = max(longest_s, time.thread_time() - began_s)
    answers = [
        each
        for frame in broker.output.take_frames("mallory", 0.0)
        if isinstance(frame, Payload)
        for each in frame.messages
    ]
    return longest_s, [each for each in answers if not isinstance(each, bytes)]


def test_hard_filters_hold_up_no_iteration_of_a_broker() -> None:
    advertisements: list[AnyMessage] = [Advertise(id=f"mallory/a{n}", filter=hard(n)) for n in range(20)]
    subscriptions: list[AnyMessage] = [Subscribe(id=f"mallory/s{n}", filter=hard(100 + n)) for n in range(40)]
    longest_s, _ = served([*advertisements, *subscriptions], has_neighbour=True)
    assert longest_s < ITERATION_MAX_S


def test_honest_filters_are_compared_exactly_all_the_same() -> None:
    wanted: list[AnyMessage] = [
        Subscribe(id=f"mallory/s{n}", filter=Filter.parse(f"topic LIKE 'city/{n % 50}/%' AND text LIKE '%fire%'"))
        for n in range(300)
    ]
    _, answers = served(wanted, has_neighbour=False)
    assert sum(isinstance(each, Confirmed) for each in answers) == len(wanted)
