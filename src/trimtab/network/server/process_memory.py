"""The memory that this process holds."""

from __future__ import annotations

import os
import sys
from pathlib import Path


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
