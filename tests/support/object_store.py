"""An S3 server, and a proxy before it that fails as planned.

moto answers conditional writes as S3 does; it checks no signatures, and forgets everything when it stops.
"""

import http.client
import logging
import multiprocessing
import queue
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.managers import BaseManager
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pytest
from moto.server import ThreadedMotoServer

ACCESS_KEY, SECRET_KEY = "an-access-key", "a-secret-that-nobody-prints"

BUSY, CONFLICT = "503", "409"
RESET_BEFORE, RESET_AFTER = "reset before", "reset after"
ERROR_AFTER = "500 after"
HALF_REQUEST, HALF_ANSWER = "half a request", "half an answer"
FAULTS: Final = (BUSY, CONFLICT, RESET_BEFORE, RESET_AFTER, ERROR_AFTER, HALF_REQUEST, HALF_ANSWER)
WAIT_S: Final = 60.0

_ERRORS: Final = {
    BUSY: (503, b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"),
    CONFLICT: (409, b"<Error><Code>ConditionalRequestConflict</Code><Message>Try again.</Message></Error>"),
    ERROR_AFTER: (500, b"<Error><Code>InternalError</Code><Message>We are sorry.</Message></Error>"),
}
_NOT_FORWARDED: Final = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive"})


class Asked(NamedTuple):
    method: str
    path: str


class FaultyStore:
    """In a process of its own: some libraries keep Python from doing anything while they wait for answers."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        self._server = server.get_host_and_port()
        self._faults: Callable[[Asked], str | None] = lambda asked: None
        self._failed = 0
        self._holds: Callable[[Asked], bool] = lambda asked: False
        self._held, self._released = threading.Event(), threading.Event()
        self._writes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._one_at_a_time = threading.Lock()
        self._proxy = _Proxy(("127.0.0.1", 0), self)
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()

    def url(self) -> str:
        return f"http://127.0.0.1:{self._proxy.server_address[1]}"

    def new_bucket(self) -> str:
        name = f"bucket-{uuid.uuid4()}"
        self.forward(Asked("PUT", f"/{name}"), {}, b"")
        return name

    def fail_once(self, method: str, ending: str, fault: str) -> None:
        """Fail the next request of this method whose path ends so."""
        self._failed = 0
        self._faults = lambda asked: (
            fault if not self._failed and asked.method == method and asked.path.endswith(ending) else None
        )

    def fail_sometimes(self, seed: int, share: float = 0.5) -> None:
        """Fail this share of all requests, each in one of the ways it can fail in."""
        chance = random.Random(seed)

        def decide(asked: Asked) -> str | None:
            ways = [fault for fault in FAULTS if fault != CONFLICT or asked.method == "PUT"]
            return chance.choice(ways) if chance.random() < share else None

        self._failed, self._faults = 0, decide

    def fail_no_more(self) -> None:
        self._faults = lambda asked: None

    def failed(self) -> int:
        """How many requests have failed since the last plan."""
        return self._failed

    def hold_once(self, method: str, ending: str) -> None:
        """Let the next such request wait before the store."""
        self._held.clear()
        self._released.clear()
        self._holds = lambda asked: (
            not self._held.is_set() and asked.method == method and asked.path.endswith(ending)
        )

    def wait_held(self) -> bool:
        return self._held.wait(WAIT_S)

    def release(self) -> None:
        self._released.set()

    def written(self, timeout_s: float) -> list[str]:
        """The paths that requests have changed since the last call, or wanted to; it waits for the first."""
        found = []
        try:
            found.append(self._writes.get(timeout=timeout_s))
            while True:
                found.append(self._writes.get_nowait())
        except queue.Empty:
            return found

    def fault_of(self, asked: Asked) -> str | None:
        with self._lock:
            fault = self._faults(asked)
            self._failed += fault is not None
        return fault

    def pass_gate(self, asked: Asked) -> None:
        with self._lock:
            waits = self._holds(asked)
            if waits:
                self._held.set()
        if waits:
            self._released.wait(WAIT_S)

    def forward(self, asked: Asked, headers: Any, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        is_write = asked.method in ("PUT", "POST", "DELETE")
        path = unquote(asked.path.partition("?")[0])
        if is_write:
            self._writes.put(path)
        # On a busy machine moto may let two conditional writes pass its check at the same time.
        with self._one_at_a_time if "If-None-Match" in headers else nullcontext():
            answer = self._forward(asked, headers, body)
        if is_write:
            self._writes.put(path)
        return answer

    def _forward(self, asked: Asked, headers: Any, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        link = http.client.HTTPConnection(*self._server, timeout=WAIT_S)
        try:
            kept = {name: value for name, value in headers.items() if name.lower() not in _NOT_FORWARDED}
            link.request(asked.method, asked.path, body, kept | {"Content-Length": str(len(body))})
            answer = link.getresponse()
            content = answer.read()
            return answer.status, answer.getheaders(), content
        finally:
            link.close()


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], store: FaultyStore) -> None:
        super().__init__(address, _Request)
        self.store = store

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no error."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def _serve(self) -> None:
        store, asked = self.server.store, Asked(self.command, self.path.partition("?")[0])
        whole = Asked(self.command, self.path)
        fault = store.fault_of(asked)
        length = int(self.headers.get("Content-Length") or 0)
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        if fault == HALF_REQUEST:
            self.rfile.read(length // 2)
            self._reset()
            return
        body = self._chunks() if self.headers.get("Transfer-Encoding") else self.rfile.read(length)
        if fault == RESET_BEFORE:
            self._reset()
            return
        if fault in (BUSY, CONFLICT):
            self._answer(*_ERRORS[fault])
            return
        store.pass_gate(asked)
        status, headers, content = store.forward(whole, self.headers, body)
        if fault == RESET_AFTER:
            self._reset()
        elif fault == ERROR_AFTER:
            self._answer(*_ERRORS[fault])
        else:
            self._answer(status, content, headers, half=fault == HALF_ANSWER)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _serve  # noqa: N815

    def _chunks(self) -> bytes:
        found = bytearray()
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(found)

    def _answer(self, status: int, content: bytes, headers: Any = (), *, half: bool = False) -> None:
        self.send_response_only(status)
        length = str(len(content))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value  # of a HEAD
            elif name.lower() not in _NOT_FORWARDED:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(content[: len(content) // 2] if half else content)
        if half:
            self._reset()

    def _reset(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.close()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: the test has `asked`."""


class _Process(BaseManager):
    """The process of a store."""


_Process.register("FaultyStore", FaultyStore)


@contextmanager
def faulty_store() -> Iterator[FaultyStore]:
    """A store in a process of its own."""
    process = _Process(ctx=multiprocessing.get_context("spawn"))
    process.start()
    try:
        yield process.FaultyStore()  # type: ignore[attr-defined]
    finally:
        process.shutdown()


def lead_to(url: str, patch: pytest.MonkeyPatch) -> None:
    """Make the environment lead to a store."""
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"):
        patch.delenv(name, raising=False)
    patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    patch.setenv("AWS_REGION", "us-east-1")
    patch.setenv("AWS_ENDPOINT_URL", url)
