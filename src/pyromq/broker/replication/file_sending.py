"""Frames for a replica that is far behind, sent to its socket straight from the files of the log.

A thread does it: it may wait for the disk, and for the replica for a moment. Nothing is copied on this side:
the socket holds the file's own pages until the replica reads them. So only bytes that cannot be cut off any
more are sent this way.
"""

import asyncio
import os
import select
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from pyromq.filesystem import FileReader

_PATIENCE_MS: Final = 10
_WAITS: Final = 8
"""So often a thread waits for the replica; after that the event loop does."""


Frame = tuple[bytes, int, int]
"""A header, where the bytes after it begin in a file, and how many they are."""
WhenSent = Callable[[BaseException | None], None]


class FileSender(Protocol):
    """While it `is_busy`, no other code may write to the connection."""

    is_busy: bool

    def send(self, file: FileReader, frames: list[Frame]) -> None:
        """Closes the file when all is sent."""
        ...

    def close(self) -> None:
        """Send nothing more, and call nothing more."""
        ...


def file_sender(transport: asyncio.BaseTransport, sent: WhenSent) -> FileSender | None:
    """The sender that a transport offers, or one for its socket; None if it has neither."""
    if (offered := transport.get_extra_info("file_sender")) is not None:
        sender: FileSender = offered(sent)
        return sender
    peer = transport.get_extra_info("socket")
    return None if peer is None else FileSending(peer.fileno(), sent)


class FileSending:
    """Sends to a socket; the system takes the bytes from the file."""

    def __init__(self, peer: int, sent: WhenSent) -> None:
        """`peer`: a descriptor of the socket, which stays the caller's. `sent` is called on the event loop,
        when all is sent or cannot be."""
        self._loop = asyncio.get_running_loop()
        self._peer = socket.socket(fileno=os.dup(peer))
        self._sent = sent
        self._file: FileReader | None = None
        self._frames: deque[Frame] = deque()
        self._is_waiting = self._is_closed = False
        self.is_busy = False

    def __repr__(self) -> str:
        return f"<FileSending {len(self._frames)} frames to send{' closed' if self._is_closed else ''}>"

    def send(self, file: FileReader, frames: list[Frame]) -> None:
        self._file = file
        self._frames.extend(frames)
        self.is_busy = True
        self._go_on()

    def close(self) -> None:
        """Send nothing more; `sent` is not called any more."""
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(OSError):  # the thread's next step fails
            self._peer.shutdown(socket.SHUT_RDWR)
        if self._is_waiting:
            self._loop.remove_writer(self._peer)
        if self._is_waiting or not self.is_busy:
            self._release()

    def _go_on(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._peer)
        self._loop.run_in_executor(None, self._send_some).add_done_callback(self._was_sent)

    def _was_sent(self, done: "asyncio.Future[bool]") -> None:
        problem = OSError("cancelled") if done.cancelled() else done.exception()
        if self._is_closed:
            self._release()
        elif problem is None and not done.result():
            self._is_waiting = True
            self._loop.add_writer(self._peer, self._go_on)
        else:
            self._end_file()
            self._sent(problem)

    def _end_file(self) -> None:
        self.is_busy = False
        if self._file is not None:
            self._file.close()
            self._file = None

    def _release(self) -> None:
        self._end_file()
        self._peer.close()

    # In a thread

    def _send_some(self) -> bool:
        """False if the replica takes no more for now."""
        waits = _WAITS
        while self._frames:
            try:
                self._send_part(*self._frames[0])
            except BlockingIOError:
                if not waits or not _is_writable(self._peer):
                    return False
                waits -= 1
        return True

    def _send_part(self, header: bytes, position: int, size_bytes: int) -> None:
        assert self._file is not None
        if header:
            header = header[self._peer.send(header, socket.MSG_MORE) :]
        else:
            sent_bytes = self._file.send_to(self._peer.fileno(), position, size_bytes)
            position += sent_bytes
            size_bytes -= sent_bytes
        if size_bytes:
            self._frames[0] = (header, position, size_bytes)
        else:
            self._frames.popleft()


def _is_writable(peer: socket.socket) -> bool:
    """Whether it takes more, at once or very soon."""
    poll = select.poll()
    poll.register(peer, select.POLLOUT)
    return bool(poll.poll(_PATIENCE_MS))
