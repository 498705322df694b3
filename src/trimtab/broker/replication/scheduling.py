"""The queue towards a congested broker that has an assistant: each publication takes the way on which less waits.

Source: Y. Yoon, V. Muthusamy, H.-A. Jacobsen, on-demand replication for highly available content-based
publish/subscribe messaging, section 4.3, message scheduling.

Deviations: what was sent and has not been dealt with counts as waiting, for with windows most of a congested broker's
queue is there. While little waits there the assistant gets nothing, so that it shows when it is not needed any more.
Markers of single clients keep to the congested broker's way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
    >>> queue = ScheduledQueue(usual, assistant, 1, lambda message: True)
    >>> for sequence in (1, 2, 3):
    ...     queue.append(Publish(publisher="p", sequence=sequence, values={}, origin_s=0.0))
    >>> [message.sequence for message in usual.data], [message.sequence for message in assistant.data]
    ([1, 3], [2])
    """

    def __init__(
        self,
        usual: Link,
        assistant: Link,
        from_count: int,
        may_assist: MayAssist,
        on_publication: Callable[[], None] = lambda: None,
    ) -> None:
        """The assistant gets something when so many wait for the congested broker."""
        self._usual = usual
        self._assistant = assistant
        self._from_count = from_count
        self._may_assist = may_assist
        self._on_publication = on_publication
        self.last = usual
        """Where the last message has gone."""

    def __len__(self) -> int:
        return len(self._usual.data) + len(self._assistant.data)

    def __iter__(self) -> Iterator[Sendable]:
        yield from self._usual.data
        yield from self._assistant.data

    def append(self, message: Sendable) -> None:
        """One more, on the way on which less waits."""
        self.last = self._usual
        if isinstance(message, Publish | bytes):
            self._on_publication()
            usual_count = self._usual.waiting_data_count
            may_assist = self._assistant.connected and usual_count >= self._from_count
            if may_assist and self._assistant.waiting_data_count < usual_count and self._may_assist(message):
                self.last = self._assistant
        self.last.data.append(message)
