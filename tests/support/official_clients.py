"""RocketMQ's own 5.x clients as peers, from their registries and with their defaults.

Each language has a program with the same roles (`interop/python5` and the others), which prints a JSON line
for each event.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from tests.support.apache import EVENT_TIMEOUT_S, STOP_TIMEOUT_S
from tests.support.apache_releases import (
    FETCH_TIMEOUT_S,
    REPOSITORY,
    PeerUnavailable,
    cache_directory,
    fetch,
    tool,
)

PYTHON_CLIENT: Final = "rocketmq-python-client==5.1.2"
LITE_PYTHON_CLIENT: Final = "rocketmq-python-client==5.1.1"
"""5.1.2 subscribes to each character of a lite topic's name."""
JAVA_CLIENT: Final = "5.0.7"
LITE_JAVA_CLIENT: Final = "5.2.0"
LITE: Final = ("python5-lite", "java5-lite", "go5-lite")
LANGUAGES: Final = ("python5", "java5", "go5", "node5")
CLOUDEVENTS: Final = "cloudevents"
"""CloudEvents' Java SDK, over Java's client; its program has roles of its own."""


def program_of(language: str) -> list[str]:
    """The command of a language's program, fetched and built if it was not yet; raises PeerUnavailable."""
    programs: dict[str, Callable[[], list[str]]] = {
        "python5": _python_program,
        "java5": _java_program,
        "python5-lite": lambda: _python_program(LITE_PYTHON_CLIENT),
        "java5-lite": lambda: _java_program("java5", "Lite", "clients5", LITE_JAVA_CLIENT),
        "go5": _go_program,
        "go5-lite": lambda: _go_program("go5lite"),
        "node5": _node_program,
        CLOUDEVENTS: _cloudevents_program,
    }
    return programs[language]()


def _java_program(
    directory: str = "java5", name: str = "Roles", part: str = "clients5", version: str = JAVA_CLIENT
) -> list[str]:
    jars = fetch(version, part)
    source = REPOSITORY / "interop" / directory / f"{name}.java"
    classes = cache_directory() / f"{directory}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    if not classes.is_dir():
        arriving = classes.with_suffix(f".{os.getpid()}")
        command = [tool("javac"), "-nowarn", "-cp", f"{jars}/*", "-d", str(arriving), str(source)]
        _run(command, "Java's client")
        arriving.rename(classes)
    log = f"-Drocketmq.log.root={cache_directory()}/logs"
    quick = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return [tool("java"), *quick, log, "-cp", f"{classes}:{jars}/*", name]


def _cloudevents_program() -> list[str]:
    return _java_program("cloudevents", "Events", "cloudevents")


def _node_program() -> list[str]:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise PeerUnavailable("node is not installed: Node's client needs it")
    source = REPOSITORY / "interop" / "node5"
    wanted = (source / "package.json").read_bytes()
    modules = cache_directory() / f"node5-{hashlib.sha256(wanted).hexdigest()[:12]}"
    if not (modules / "done").is_file():
        modules.mkdir(parents=True, exist_ok=True)
        (modules / "package.json").write_bytes(wanted)
        _run([npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"], "Node's client", cwd=modules)
        (modules / "done").touch()
    return ["env", f"NODE_PATH={modules}/node_modules", node, str(source / "roles.js")]


def _python_program(client: str = PYTHON_CLIENT) -> list[str]:
    environment = cache_directory() / client.replace("==", "-")
    python = environment / "bin" / "python"
    if not (environment / "done").is_file():
        _run(
            [sys.executable, "-m", "venv", "--clear", str(environment)], "an environment for Python's client"
        )
        _run([str(python), "-m", "pip", "install", "-q", client], "Python's client")
        (environment / "done").touch()
    return [str(python), str(REPOSITORY / "interop" / "python5" / "roles.py")]


def _go_program(directory: str = "go5") -> list[str]:
    go = shutil.which("go")
    if go is None:
        raise PeerUnavailable("go is not installed: Go's client needs it")
    source = REPOSITORY / "interop" / directory
    parts = [(source / name).read_bytes() for name in ("go.mod", "go.sum", "main.go")]
    built = cache_directory() / f"{directory}-{hashlib.sha256(b''.join(parts)).hexdigest()[:12]}"
    if not built.is_file():
        arriving = built.with_suffix(f".{os.getpid()}")
        _run([go, "build", "-mod=readonly", "-o", str(arriving), "."], "Go's client", cwd=source)
        arriving.rename(built)
    return [str(built)]


def _run(command: list[str], what: str, cwd: Path | None = None) -> None:
    cache_directory().mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_S
    )
    if done.returncode != 0:
        raise PeerUnavailable(f"{what} cannot be had: {done.stderr.strip()[-2000:]}")


class OfficialClient:
    """`OfficialClient(language, endpoints, role, topic, …)`: a process, gone when its `with` block ends."""

    def __init__(
        self, language: str, endpoints: str, role: str, *arguments: str, keys: tuple[str, str] | None = None
    ) -> None:
        """`keys`: the access key and the secret key that it signs with."""
        self._command = [*program_of(language), endpoints, role, *arguments]
        self._env = {**os.environ}
        if keys is not None:
            self._env["PEER_ACCESS_KEY"], self._env["PEER_SECRET_KEY"] = keys
        self._events: list[dict[str, Any]] = []
        self._rest: list[str] = []
        self._changed = threading.Condition()
        self._is_over = False

    def __repr__(self) -> str:
        return f"<OfficialClient {' '.join(self._command[-6:])}>"

    def __enter__(self) -> OfficialClient:
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
        # One after the other: clients that start at the same time are too slow for their own deadlines.
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or bool(self._events), EVENT_TIMEOUT_S)
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
                    try:
                        self._events.append(json.loads(line))
                    except ValueError:
                        self._rest.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait(self, what: str, count: int = 1) -> list[dict[str, Any]]:
        """The first events of a kind."""

        def found() -> list[dict[str, Any]]:
            return [each for each in self._events if each["what"] == what]

        with self._changed:
            self._changed.wait_for(lambda: self._is_over or len(found()) >= count, EVENT_TIMEOUT_S)
            assert len(found()) >= count, f"{self!r} said {self._events} and {self._rest[-20:]}"
            return found()

    def wait_for(self, is_done: Callable[[Callable[[str], list[dict[str, Any]]]], bool]) -> None:
        """`is_done` gets a function that finds the events of a kind."""

        def found(what: str) -> list[dict[str, Any]]:
            return [each for each in self._events if each["what"] == what]

        with self._changed:
            self._changed.wait_for(lambda: self._is_over or is_done(found), EVENT_TIMEOUT_S)
            assert is_done(found), f"{self!r} said {self._events[-20:]} and {self._rest[-20:]}"

    def has(self, what: str) -> bool:
        with self._changed:
            return any(each["what"] == what for each in self._events)

    @classmethod
    def together(cls, count: int, *clients: OfficialClient) -> list[str]:
        """The bodies that several clients received, when all of them have so many together."""
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while True:
            found = [each["body"] for one in clients for each in one._events if each["what"] == "received"]
            if len(found) >= count or time.monotonic() > deadline:
                return found
            time.sleep(0.1)

    def bodies(self, count: int) -> list[str]:
        return [each["body"] for each in self.wait("received", count)]
