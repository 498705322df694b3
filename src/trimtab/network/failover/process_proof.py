"""How a broker's process proves which broker it is, so that nobody kills another one in its stead.

A broker is replaced for sure only when its process is over, and one that hangs must be killed. Which process it is
says its session, which came over the wire: whoever greets in a broker's name can name any process. So each broker
listens at a Unix socket of the abstract kind, which has no file, ends with its process and is seen on its host only.
The socket's name is made from the broker's name, its address in the network file and its session. Who would kill
connects there, and the kernel tells which process listens and whose it is (`SO_PEERCRED`), also if that process is
stopped or hangs. Only if process, start and user are those of the session and of ourselves, the process is proved.

Nothing secret is kept: a peer over the network cannot listen at a socket of this host, and a process of another user
that does has another user. Where there are no such sockets, as on systems other than Linux, nothing is proved, and
nobody is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import struct
from typing import Final

from trimtab.network.failover.process_identity import ProcessIdentity

WAITING_MAX_COUNT: Final = 128
"""So many may ask a broker that hangs and does not take their connections; its neighbours are fewer."""

_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user and group."""

log = logging.getLogger("trimtab.broker")


class ProcessProof:
    """The socket by which this process proves which broker it is, as long as it runs.

    >>> from trimtab.network.failover.process_identity import new_session
    >>> session = new_session()
    >>> with ProcessProof("B1", "127.0.0.1:7001", session):
    ...     proved("B1", "127.0.0.1:7001", session) == ProcessIdentity.of_session(session)
    ...     proved("B2", "127.0.0.1:7001", session) is None
    True
    True
    >>> proved("B1", "127.0.0.1:7001", session) is None
    True
    """

    def __init__(self, broker: str, address: str, session: str) -> None:
        self._socket: socket.socket | None = None
        try:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.setblocking(False)
            self._socket.bind(_name_of(broker, address, session))
            self._socket.listen(WAITING_MAX_COUNT)
        except (AttributeError, OSError) as error:
            log.info("%s cannot prove its process, and must be ended by hand if it hangs: %s", broker, error)
            self.close()

    def answer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take connections from now on, so that they do not pile up; there is nothing to say."""
        if self._socket is not None:
            loop.add_reader(self._socket.fileno(), self._accept, self._socket)

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            listening.accept()[0].close()

    def close(self) -> None:
        """Prove nothing more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> ProcessProof:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def proved(broker: str, address: str, session: str) -> ProcessIdentity | None:
    """The running process of this host that is this incarnation of the broker with this address in the network file.

    None if nobody proves to be it: then nobody may be killed for it.
    """
    life = ProcessIdentity.of_session(session)
    if life is None or not life.is_here or not life.started_ticks or not life.is_running():
        return None
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.setblocking(False)
            asking.connect(_name_of(broker, address, session))
            found = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except (AttributeError, OSError):
        return None
    pid, user, _ = _CREDENTIALS.unpack(found)
    return life if (pid, user) == (life.pid, os.geteuid()) and life.is_running() else None


def _name_of(broker: str, address: str, session: str) -> bytes:
    text = "\n".join((broker, address, session))
    return b"\0trimtab/" + hashlib.sha256(text.encode()).hexdigest().encode()
