"""Apache's Go client as a peer: a process for each producer or consumer, gone when its `with` block ends."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from tests.support.apache import EVENT_TIMEOUT_S, STOP_TIMEOUT_S
from tests.support.apache_releases import FETCH_TIMEOUT_S, REPOSITORY, PeerUnavailable, cache_directory

_SOURCE: Final = REPOSITORY / "interop" / "go"


def go_peer() -> Path:
    """The program, built if it was not yet; PeerUnavailable says why it cannot be."""
    go = shutil.which("go")
    if go is None:
        raise PeerUnavailable("go is not installed: Apache's Go client needs it")
    parts = [(_SOURCE / name).read_bytes() for name in ("go.mod", "go.sum", "main.go")]
    built = cache_directory() / f"go-peer-{hashlib.sha256(b''.join(parts)).hexdigest()[:12]}"
    if not built.is_file():
        built.parent.mkdir(parents=True, exist_ok=True)
        arriving = built.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [go, "build", "-mod=readonly", "-o", str(arriving), "."],
            cwd=_SOURCE,
            capture_output=True,
            text=True,
            check=False,
            timeout=FETCH_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise PeerUnavailable(f"Apache's Go client could not be built: {done.stderr.strip()[-2000:]}")
        arriving.rename(built)
    return built


class GoClient:
    """`way`: send, transact or consume; the last one needs a topic."""

    def __init__(
        self, way: str, name_server: str, group: str, *topic: str, env: Mapping[str, str] | None = None
    ) -> None:
        self._env = {**os.environ, **(env or {})}
        self._command = [str(go_peer()), way, name_server, group, *topic]
        self._events: list[list[str]] = []
        self._changed = threading.Condition()
        self._is_over = False

    def __repr__(self) -> str:
        return f"<GoClient {' '.join(self._command[1:])}>"

    def __enter__(self) -> GoClient:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._env,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S if problem is None else 1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self._events.append(line.rstrip("\n").split("\t"))
                    self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def send(self, topic: str, body: str, **properties: str) -> None:
        """Returns when it is sent; `delay` is a delay level."""
        before = len(self.heard("sent"))
        self.ask_to_send(topic, body, **properties)
        self.heard("sent", before + 1)

    def ask_to_send(self, topic: str, body: str, **properties: str) -> None:
        """Returns before it is sent."""
        pairs = [f"{name}={value}" for name, value in properties.items()]
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join([topic, body, *pairs]) + "\n")
        self._process.stdin.flush()

    def heard(self, event: str, count: int = 0) -> list[str]:
        """What was sent, received or asked so far, as soon as it is `count` of them at least."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._is_over or len(self._of(event)) >= count, EVENT_TIMEOUT_S
            ):
                raise AssertionError(f"{self!r} said only {self._events}")
            found = self._of(event)
        assert len(found) >= count, f"{self!r} ended: {self._events}"
        return found

    def _of(self, event: str) -> list[str]:
        return [each[1] for each in self._events if each[0] == event]
