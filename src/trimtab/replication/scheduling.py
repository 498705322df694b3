"""The queue towards a congested broker that has an assistant: each publication takes the way on which less waits.

Source: Y. Yoon, V. Muthusamy, H.-A. Jacobsen, on-demand replication for highly available content-based
publish/subscribe messaging, section 4.3, message scheduling.

Deviations: what was sent and has not been dealt with counts as waiting, for with windows most of a congested broker's
queue is there. Markers of single clients keep to the congested broker's way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from trimtab.protocol.codec import decode_publication
from trimtab.protocol.frames import Sendable
from trimtab.protocol.link import Link
from trimtab.protocol.messages import Publish

MayAssist = Callable[[Publish | bytes], bool]
"""Whether a publication may go to the assistant: it must know a route for it, or be allowed not to."""


class ScheduledQueue:
    """Stands in the place of the data queue of the link to the congested broker.

    >>> from trimtab.protocol.link import LinkConfig
    >>> usual, assistant = Link(LinkConfig()), Link(LinkConfig())
    >>> assistant.connect(1, 0.0)
    >>> queue = ScheduledQueue(usual, assistant, lambda message: True)
    >>> for sequence in (1, 2, 3):
    ...     queue.append(Publish(publisher="p", sequence=sequence, values={}, origin_s=0.0))
    >>> [message.sequence for message in usual.data], [message.sequence for message in assistant.data]
    ([1, 3], [2])
    """

    def __init__(
        self, usual: Link, assistant: Link, may_assist: MayAssist, on_publication: Callable[[], None] = lambda: None
    ) -> None:
        self._usual = usual
        self._assistant = assistant
        self._may_assist = may_assist
        self._on_publication = on_publication
        self.assisted_count = 0
        """Publications that the assistant was given."""

    def __len__(self) -> int:
        return len(self._usual.data) + len(self._assistant.data)

    def __iter__(self) -> Iterator[Sendable]:
        yield from self._usual.data
        yield from self._assistant.data

    def append(self, message: Sendable) -> None:
        """One more, on the way on which less waits."""
        if not isinstance(message, Publish | bytes):
            self._usual.data.append(message)
            return
        self._on_publication()
        assistant = self._assistant
        if (
            assistant.connected
            and assistant.waiting_data_count < self._usual.waiting_data_count
            and self._may_assist(message)
        ):
            self.assisted_count += 1
            assistant.data.append(message)
        else:
            self._usual.data.append(message)


def put_back(queue: deque[Sendable], publications: Iterable[Publish]) -> None:
    """Put publications of an assistant into the usual queue: behind those before them of their publishers only.

    >>> queue = deque([Publish(publisher="p", sequence=sequence, values={}, origin_s=0.0) for sequence in (1, 4)])
    >>> put_back(queue, [Publish(publisher=name, sequence=3, values={}, origin_s=0.0) for name in "qp"])
    >>> [f"{message.publisher}{message.sequence}" for message in queue]
    ['q3', 'p1', 'p3', 'p4']
    """
    streams: dict[tuple[str, str], list[Publish]] = {}
    for each in publications:
        streams.setdefault((each.publisher, each.session), []).append(each)
    usual = list(queue)
    queue.clear()
    for message in reversed(usual):
        head = decode_publication(message) if isinstance(message, bytes) else message
        if isinstance(head, Publish):
            later = streams.get((head.publisher, head.session), [])
            while later and later[-1].sequence > head.sequence:
                queue.appendleft(later.pop())
        queue.appendleft(message)
    queue.extendleft(reversed([each for stream in streams.values() for each in stream]))
