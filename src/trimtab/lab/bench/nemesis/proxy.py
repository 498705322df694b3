"""A TCP proxy that can be cut, half-closed, silenced and healed: a real fault on a real link."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final

CALL_WITHIN_S: Final = 2.0
READ_BYTES: Final = 65_536


class LinkProxy:
    """Listens at a port and passes bytes to another one while it is not cut.

    Forwards is from who calls to who is called.
    """

    def __init__(self, target_port: int, port: int = 0) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._is_cut = False
        self._open: list[_Pair] = []
        self._forwards = _passing()
        """Whether anything passes over the connections that are made now; each stays with its own."""
        self._backwards = _passing()
        self._silenced: list[threading.Event] = []
        self._lock = threading.Lock()
        self.cut_count = 0
        self.passed_bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break what is open, in the middle of whatever it carries, and refuse what comes."""
        with self._lock:
            self._is_cut = True
            self.cut_count += 1
            for pair in self._open:
                pair.shut()
            self._open.clear()

    def half_close(self, *, forwards: bool = True) -> None:
        """End one direction of what is open, as if its sender had closed it; what that one still sends is dropped."""
        with self._lock:
            for pair in self._open:
                pair.end(forwards=forwards)

    def silence(self, *, also_new: bool = False, forwards: bool = True, backwards: bool = True) -> None:
        """Pass nothing over what is open, and close nothing either; over new connections neither, if that is said."""
        with self._lock:
            for wanted, passes in ((forwards, self._forwards), (backwards, self._backwards)):
                if wanted:
                    passes.clear()
                    self._silenced.append(passes)
            if not also_new:
                self._renew()

    def heal(self) -> None:
        """Let connections through again, and what was silenced."""
        with self._lock:
            self._is_cut = False
            for passes in self._silenced:
                passes.set()
            self._silenced.clear()
            self._renew()

    def close(self) -> None:
        """End."""
        self.heal()
        self.cut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits for calls
        self._listener.close()

    def _renew(self) -> None:
        self._forwards, self._backwards = _passing(), _passing()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                self._connect(caller)

    def _connect(self, caller: socket.socket) -> None:
        with self._lock:
            if self._is_cut:
                _shut(caller)
                return
            try:
                callee = socket.create_connection(("127.0.0.1", self._target_port), CALL_WITHIN_S)
            except OSError:
                _shut(caller)
                return
            callee.settimeout(None)
            for each in (caller, callee):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = _Pair(caller, callee)
            self._open = [each for each in self._open if not each.is_over]
            self._open.append(pair)
            ways = ((True, self._forwards), (False, self._backwards))
        for forwards, passes in ways:
            threading.Thread(target=self._pass, args=(pair, forwards, passes), daemon=True).start()

    def _pass(self, pair: _Pair, forwards: bool, passes: threading.Event) -> None:
        source, target = (pair.caller, pair.callee) if forwards else (pair.callee, pair.caller)
        with contextlib.suppress(OSError):
            while data := source.recv(READ_BYTES):
                passes.wait()
                if forwards not in pair.ended:
                    target.sendall(data)
                    self.passed_bytes += len(data)
        passes.wait()
        pair.shut()


class _Pair:
    """Two connections that are one for those at their ends."""

    def __init__(self, caller: socket.socket, callee: socket.socket) -> None:
        self.caller = caller
        self.callee = callee
        self.ended: list[bool] = []
        """Directions in which nothing passes any more: whether it is forwards."""
        self.is_over = False

    def end(self, *, forwards: bool) -> None:
        self.ended.append(forwards)
        with contextlib.suppress(OSError):
            (self.callee if forwards else self.caller).shutdown(socket.SHUT_WR)

    def shut(self) -> None:
        self.is_over = True
        _shut(self.caller)
        _shut(self.callee)


def _passing() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
