"""When a process has no descriptor left: connections that stand go on, new ones wait, and the log says why.

The event loop then refuses new connections, or leaves them waiting, and tries again; whoever calls does so as well.
Nothing that is sent over the connections that stand is lost. A process without descriptors can call nobody, so it does
not say that somebody else is gone.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
from typing import Any, Final

from trimtab.network.clock import now_s

if sys.platform != "win32":
    import resource

_MANY_COUNT: Final = 8_192
"""Where a platform does not tell how many descriptors there are."""

TOLD_EVERY_S: Final = 60.0
"""It is logged so often at most."""

log = logging.getLogger("trimtab.broker")


def are_exhausted(error: BaseException | None) -> bool:
    """Whether something has failed because this process, or its host, has no descriptor left.

    >>> are_exhausted(OSError(errno.EMFILE, "Too many open files")), are_exhausted(OSError(errno.ECONNREFUSED, ""))
    (True, False)
    """
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class DescriptorWatch:
    """Looks from time to time whether the process of a broker has a descriptor left, and says so if it has none."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._told_s = -TOLD_EVERY_S

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the loop not complain by itself, of each connection and with a traceback."""

        def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if are_exhausted(context.get("exception")):
                self.look()
            else:
                loop.default_exception_handler(context)

        loop.set_exception_handler(handle)

    def look(self) -> None:
        """See whether there is one."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if are_exhausted(error) and now_s() >= self._told_s + TOLD_EVERY_S:
                self._told_s = now_s()
                log.error(
                    "%s has no descriptor left%s: new connections wait until others end; raise the limit (ulimit -n, "
                    "or LimitNOFILE of systemd)",
                    self._broker,
                    _limit(),
                )


def descriptors_max_count() -> int:
    """How many descriptors this process may have."""
    if sys.platform == "win32":
        return _MANY_COUNT
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _limit() -> str:
    return f" (its limit is {descriptors_max_count():,})"
