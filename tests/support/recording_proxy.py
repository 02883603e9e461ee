"""A TCP proxy that keeps every remoting frame it passes on, in the order it saw them.

It forwards whole frames only, and may replace a text in them by another of the same length (so that a client
that asked for a route comes back to a proxy instead of the broker).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_LENGTH: Final = struct.Struct(">i")


@dataclass(frozen=True)
class SeenFrame:
    """One frame, with its connection and direction."""

    connection: int
    to_server: bool
    data: bytes


class RecordingProxy:
    """Listens on a free loopback port, forwards to `server` ("host:port"); leaving the block closes all."""

    def __init__(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.replacements: dict[bytes, bytes] = {}
        self._seen: list[SeenFrame] = []
        self._changed = threading.Condition()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._connections = 0

    def __repr__(self) -> str:
        return f"<RecordingProxy {self.address} -> {self._server} frames={len(self._seen)}>"

    def replace(self, texts: Mapping[str, str]) -> None:
        """From now on replace these texts in every frame; each pair must have one length."""
        for old, new in texts.items():
            if len(old) != len(new):
                raise ValueError(f"{old!r} and {new!r} differ in length")
            self.replacements[old.encode()] = new.encode()

    def frames(self) -> list[SeenFrame]:
        with self._changed:
            return list(self._seen)

    def wait_for_frames(self, count: int, timeout_s: float) -> None:
        """Wait until at least `count` frames were seen."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._seen) >= count, timeout_s):
                raise TimeoutError(f"{self!r}: fewer than {count} frames in {timeout_s} s")

    def __enter__(self) -> RecordingProxy:
        self._run(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        # shutdown() wakes the threads that wait in accept() and recv(); close() alone would not.
        for open_socket in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for open_socket in (self._listener, *self._sockets):
            open_socket.close()

    def _run(self, target: object, *arguments: object) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, args=arguments, name="recording-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._connections += 1
            self._sockets.append(client)
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.shutdown(socket.SHUT_RDWR)
                continue
            self._sockets.append(server)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._run(self._forward, self._connections, True, client, server)
            self._run(self._forward, self._connections, False, server, client)

    def _forward(
        self, connection: int, to_server: bool, source: socket.socket, target: socket.socket
    ) -> None:
        buffer = bytearray()
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                buffer += data
                while len(buffer) >= 4 and len(buffer) >= (end := 4 + _LENGTH.unpack_from(buffer)[0]):
                    frame = bytes(buffer[:end])
                    del buffer[:end]
                    for old, new in self.replacements.items():
                        frame = frame.replace(old, new)
                    with self._changed:
                        self._seen.append(SeenFrame(connection, to_server, frame))
                        self._changed.notify_all()
                    target.sendall(frame)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
