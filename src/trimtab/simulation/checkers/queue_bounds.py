"""Every queue has a limit: what waits in a broker never exceeds what credit and marks allow."""

from __future__ import annotations

from collections import Counter

from trimtab.protocol.messages import Publish
from trimtab.simulation.world.world import World


def check_queues(world: World) -> None:
    """Tell the world's checker which queues of this moment are too long.

    From each source at most a window of data is in the input, and an output queue passes its mark by one publication at
    most: the one that makes the broker hold its sources back. Clients' queues are looked at where they hold back too.
    What came over earlier epochs of a link comes on top of that, and what goes to a replica again on top of what waits
    for it. What is held for the end of an earlier stream takes no credit, for
    two links that wait for each other's tails would wait for ever, and goes on at once. Where the ways of an assistant
    and its broker meet, what has come in order at once goes on at once. Assistants hold nobody back.
    """
    for node in world.brokers.values():
        broker = node.broker
        link = broker.config.link
        window_count = link.data_window_count
        again_count = broker.takeover.streams.released_max_count
        if broker.replacement is not None:
            again_count += broker.replacement.divisions.released_max_count
        waiting = Counter(source for source, _ in broker.data_waiting())
        waiting.subtract(source for source, _, _ in broker.takeover.streams.held())
        for source, count in waiting.items():
            peer = broker.peers.get(source)
            if peer is not None and count > (may_count := window_count + peer.link.stale_count):
                world.checker.violate(
                    "input",
                    f"{count} messages of {source} wait in {broker.name}, {may_count} may ({world.now_s:.3f} s)",
                )
        for peer in broker.peers.values():
            if broker.config.assists:
                continue
            if peer.role == "client" and broker.config.slow_policy != "block":
                continue
            count = sum(isinstance(message, Publish) for message in peer.link.data)
            if count > peer.queue_max_count + 1 + again_count + peer.again_count:
                world.checker.violate(
                    "output", f"{count} publications wait in {broker.name} for {peer.name} ({world.now_s:.3f} s)"
                )
