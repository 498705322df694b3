"""What a world measures comes in as events."""

from __future__ import annotations

from tests.broker.test_agents import Talker
from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.protocol.events import LoadMeasured, PublicationSizes, Wake
from trimtab.protocol.messages import Publish


def test_measurements_are_part_of_the_load() -> None:
    broker = Broker(BrokerConfig("B1"))
    assert broker.handle(LoadMeasured(memory_bytes=5_000, output_delay_s=0.5, publication_bytes=200.0), 1.0) == []
    assert broker.read_load(1.0).memory_bytes == 5_000
    assert broker.meters.publication_bytes == 200.0


def test_what_was_not_measured_stays() -> None:
    broker = Broker(BrokerConfig("B1"))
    broker.handle(LoadMeasured(memory_bytes=5_000, publication_bytes=200.0), 1.0)
    broker.handle(LoadMeasured(memory_bytes=6_000), 2.0)
    assert (broker.meters.memory_bytes, broker.meters.publication_bytes) == (6_000, 200.0)


def test_sizes_of_publishers_are_added_to_those_that_are_known() -> None:
    broker = Broker(BrokerConfig("B1"))
    broker.handle(PublicationSizes({"a": 100, "b": 200}), 0.0)
    broker.handle(PublicationSizes({"b": 300}), 0.0)
    sizes = [
        broker.meters.size_of_bytes(Publish(publisher=name, sequence=1, values={}, origin_s=0.0)) for name in ("a", "b")
    ]
    assert sizes == [100, 300]


def test_agents_do_not_begin_their_work_because_something_was_measured() -> None:
    talker = Talker()
    broker = Broker(BrokerConfig("B1"), [talker])
    broker.handle(LoadMeasured(memory_bytes=1), 0.0)
    broker.handle(PublicationSizes({"a": 100}), 0.0)
    assert talker.host is None
    broker.handle(Wake(), 0.0)
    assert talker.host is not None
