"""What a broker's process measures of itself, told to the broker's meters: rates, sizes, waiting times and memory.

Nothing is modelled, except that a broker that keeps to a configured processor tells the time that this one would take.

Otherwise a publication costs all that the process did for it: decoding and writing as well as the step in between,
and the time that it was ready to run and did not get the processor, because others had it or a quota was used up. So
the input utilisation reads 1 when the process can do no more, on whatever share of a processor it has. What the
process does when no publications come is not theirs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from trimtab.broker.core import Broker
from trimtab.load.queue_delay import QueueDelay
from trimtab.network.clock import now_s
from trimtab.network.server.capacity import EnforcedCapacity
from trimtab.protocol.events import LoadMeasured
from trimtab.protocol.frames import Ack, Payload

SAMPLES_COUNT: Final = 8
"""Waiting times are means over so many looks at the queues."""

SIZE_WEIGHT: Final = 0.02
"""What one frame counts in the mean size of publications: the last fifty or so make it."""


SHARE_EVERY_LOOKS_COUNT: Final = 10
"""How often quotas are read: operators may change them while a process runs."""

IDLE_WEIGHT: Final = 0.1
"""What one look at an idle process counts in the share that it wants then."""

_SCHEDULING: Final = Path("/proc/self/schedstat")
_GROUPS: Final = Path("/proc/self/cgroup")
_GROUP_ROOT: Final = Path("/sys/fs/cgroup")
_NEW_FILES: Final[tuple[str, ...]] = ("cpu.max",)
_OLD_FILES: Final[tuple[str, ...]] = ("cpu.cfs_quota_us", "cpu.cfs_period_us")


def processor_wanted_s(share: float = 1.0) -> float | None:
    """How much of its time this process has needed so far, if it may have this share of a processor; None where the
    system does not tell.

    That is the time in which it ran or waited for a processor, or the time that what it ran takes of its share, which
    is longer as long as a quota is not used up.

    >>> before_s = processor_wanted_s()
    >>> count = sum(range(1_000_000))
    >>> before_s is None or processor_wanted_s() > before_s
    True
    """
    try:
        ran_ns, waited_ns, _ = _SCHEDULING.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return max(int(ran_ns) + int(waited_ns), int(ran_ns) / share) / 1e9


def processor_share() -> float:
    """How much of one processor this process may use, by the quotas of its control groups; 1 without any.

    >>> 0.0 < processor_share() <= 1.0
    True
    """
    try:
        lines = _GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return 1.0
    share = 1.0
    files: tuple[str, ...]
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, files = _GROUP_ROOT, _NEW_FILES
        elif "cpu" in controllers.split(","):
            root, files = _GROUP_ROOT / "cpu", _OLD_FILES
        else:
            continue
        group = root / path.strip("/")
        for each in (group, *group.parents):
            if not each.is_relative_to(root):
                break
            share = min(share, _quota(each, files))
    return share


def _quota(group: Path, files: tuple[str, ...]) -> float:
    try:
        words = [word for file in files for word in (group / file).read_text(encoding="ascii").split()]
        quota_us, period_us = float(words[0]), float(words[1])
    except (OSError, ValueError, IndexError):  # no such file, or "max"
        return 1.0
    return quota_us / period_us if quota_us > 0 < period_us else 1.0


class ProcessMeters:
    """Feeds the meters of one broker."""

    def __init__(self, broker: Broker, capacity: EnforcedCapacity | None) -> None:
        self._broker = broker
        self._capacity = capacity
        self._input_delay = QueueDelay(SAMPLES_COUNT)
        self._output_delay = QueueDelay(SAMPLES_COUNT)
        self._input_waits_s = 0.0
        self._arrived_count = 0
        self._in_count = 0
        self._out_count = 0
        self._data_count = 0
        self._begun_bytes = resident_bytes()[0]
        self._output_waits_s = 0.0
        self._publication_bytes = broker.meters.publication_bytes
        self._steps_s = 0.0
        """The time of steps since the last look."""
        self._stepped_count = 0
        """Publications that were matched meanwhile."""
        self._share = processor_share()
        self._wanted_s = processor_wanted_s(self._share)
        self._looks_count = 0
        self._looked_s: float | None = None
        self._idle_share = 0.0
        """The share of a processor that the process wants when no publications come."""

    def worked(self, started_s: float) -> None:
        """A turn is over that began then: what has arrived, was matched, and has entered output queues since the last.

        What is in the input tells what has arrived, so that nothing needs to be counted where frames come in.
        """
        broker, meters = self._broker, self._broker.meters
        counters = broker.counters
        data_count = broker.data_count
        matched_count = counters.publications_in_count - self._in_count
        arrived_count = matched_count + data_count - self._data_count
        self._data_count = data_count
        if arrived_count <= 0 and matched_count == 0:
            return
        ended_s = now_s()
        if arrived_count > 0:
            self._arrived_count += arrived_count
            meters.arrived(ended_s, arrived_count)
        if matched_count == 0:
            return
        self._in_count = counters.publications_in_count
        capacity = self._capacity
        modelled_s = 0.0 if capacity is None else capacity.matching_s(broker.tables.matched_count)
        matching_s = matched_count * modelled_s or ended_s - started_s
        meters.matched(matching_s, self._input_waits_s, ended_s, matched_count)
        self._steps_s += matching_s
        self._stepped_count += matched_count
        queued_count = counters.publications_out_count - self._out_count
        if queued_count:
            self._out_count = counters.publications_out_count
            meters.queued_output(round(queued_count * self._publication_bytes), ended_s)

    def sent(self, frame: Payload | Ack, size_bytes: int) -> None:
        """A frame was written; one that begins with a publication holds nothing else, for control comes first."""
        if type(frame) is Payload and type(frame.messages[0]) is bytes:
            mean_bytes = size_bytes / len(frame.messages)
            self._publication_bytes += SIZE_WEIGHT * (mean_bytes - self._publication_bytes)

    def look(self, time_s: float) -> None:
        """At steady times: how long messages wait in queues."""
        broker = self._broker
        counters = broker.counters
        self._input_waits_s = self._input_delay.read(
            time_s, entered_count=self._arrived_count, queued_count=broker.data_count
        )
        self._output_waits_s = self._output_delay.read(
            time_s,
            entered_count=counters.publications_out_count + counters.control_out_count,
            queued_count=sum(peer.link.queued_count for peer in broker.peers.values()),
        )

        self._count_all_work(time_s)

    def _count_all_work(self, time_s: float) -> None:
        """What the process did besides steps belongs to the publications of this time, if there were any."""
        self._looks_count += 1
        if self._looks_count % SHARE_EVERY_LOOKS_COUNT == 0:
            self._share_may_have_changed()
        wanted_s, looked_s = processor_wanted_s(self._share), self._looked_s
        steps_s, stepped_count = self._steps_s, self._stepped_count
        self._steps_s, self._stepped_count, self._looked_s = 0.0, 0, time_s
        before_s, self._wanted_s = self._wanted_s, wanted_s
        if self._capacity is not None or wanted_s is None or before_s is None or looked_s is None:
            return
        over_s = time_s - looked_s
        if over_s <= 0:
            return
        done_s = wanted_s - before_s
        if stepped_count:
            more_s = min(done_s, over_s) - self._idle_share * over_s - steps_s
            self._broker.meters.worked(max(more_s, 0.0), time_s)
        else:
            self._idle_share += IDLE_WEIGHT * (min(done_s / over_s, 1.0) - self._idle_share)

    def _share_may_have_changed(self) -> None:
        share = processor_share()
        if share != self._share:
            self._share = share
            self._looked_s = None  # what was wanted before is told in another measure

    def measured(self) -> LoadMeasured:
        """What is to be told to the broker."""
        return LoadMeasured(self._memory_bytes(), self._output_waits_s, self._publication_bytes)

    def _memory_bytes(self) -> int:
        """What the broker's work takes: the process has grown by so much since it began.

        Load is estimated in proportion to subscriptions, and the program itself is not.
        """
        return max(resident_bytes()[0] - self._begun_bytes, 0)


def resident_bytes() -> tuple[int, str]:
    """The memory that this process holds, and how that was found out.

    >>> resident_bytes()[0] > 1_000_000
    True
    """
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        import resource

        unit_bytes = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes, "growth of peak resident memory"
    return pages * os.sysconf("SC_PAGE_SIZE"), "growth of resident memory"
