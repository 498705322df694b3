"""How many files and connections this process may have open at once."""

from __future__ import annotations

import resource


def allow_open_files() -> int:
    """Raise the limit as far as that is allowed, for processes that are started from here, too; what it is then.

    >>> allow_open_files() > 100
    True
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
