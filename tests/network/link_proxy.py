"""A TCP proxy between two brokers that can be cut, silenced and healed: a real fault on a real link."""

from __future__ import annotations

import contextlib
import socket
import threading


class LinkProxy:
    """Listens at a port and passes bytes to another one while it is not cut."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._is_cut = False
        self._open: list[socket.socket] = []
        self._passes = threading.Event()
        """Whether anything passes over the connections that are made now; each stays with its own."""
        self._passes.set()
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
            for each in self._open:
                _shut(each)
            self._open.clear()

    def silence(self, *, also_new: bool = False) -> None:
        """Pass nothing over what is open, and close nothing either; over new connections neither, if that is said."""
        with self._lock:
            self._passes.clear()
            self._silenced.append(self._passes)
            if not also_new:
                self._passes = threading.Event()
                self._passes.set()

    def heal(self) -> None:
        """Let connections through again, and what was silenced."""
        with self._lock:
            self._is_cut = False
            for passes in self._silenced:
                passes.set()
            self._silenced.clear()

    def close(self) -> None:
        """End."""
        self.heal()
        self.cut()
        self._listener.close()

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
                callee = socket.create_connection(("127.0.0.1", self._target_port), 2)
            except OSError:
                _shut(caller)
                return
            callee.settimeout(None)
            self._open += [caller, callee]
            passes = self._passes
        for source, target in ((caller, callee), (callee, caller)):
            threading.Thread(target=self._pass, args=(source, target, passes), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, passes: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                passes.wait()
                target.sendall(data)
                self.passed_bytes += len(data)
        passes.wait()
        _shut(source)
        _shut(target)


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
