"""An object store in memory that fails, or kills whoever asks, before or after a chosen request."""

import threading
from collections.abc import Callable
from pathlib import Path

from tests.support.dying_files import Killed

from pyromq.errors import TransportError
from pyromq.tier.objects import ObjectExists, ObjectInfo, ObjectMissing

Deed = Callable[[], object]


class ModelObjects:
    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.modified_ms: dict[str, int] = {}
        self.now_ms = 1_700_000_000_000
        self.requests = 0
        self.dies_at = 1 << 62
        """The request at which whoever asks is killed."""
        self.dies_after = False
        """Whether that request is carried out nevertheless."""
        self.fails: Callable[[str, str], str | None] = lambda operation, name: None
        """Says for a request whether it fails `before` or `after` it is carried out, or with `conflict`."""
        self.gate = threading.Event()
        """Reads wait for it."""
        self.gate.set()

    @property
    def place(self) -> str:
        return "the model"

    def _request(self, operation: str, name: str) -> "_Request":
        self.requests += 1
        return _Request(self, operation, name, self.requests == self.dies_at)

    def create(self, name: str, content: bytes) -> None:
        with self._request("create", name) as request:
            if request.conflicts or name in self.content:
                raise ObjectExists(name)
            self._put(name, content)

    def replace(self, name: str, content: bytes) -> None:
        with self._request("replace", name):
            self._put(name, content)

    def put_file(self, name: str, path: Path) -> None:
        content = path.read_bytes()
        with self._request("put_file", name):
            self._put(name, content)

    def _put(self, name: str, content: bytes) -> None:
        self.content[name] = content
        self.modified_ms[name] = self.now_ms

    def read(self, name: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        self.gate.wait()
        with self._request("read", name):
            if name not in self.content:
                raise ObjectMissing(name)
            end = None if size_bytes is None else start + size_bytes
            return self.content[name][start:end]

    def info(self, name: str) -> ObjectInfo | None:
        with self._request("info", name):
            if name not in self.content:
                return None
            return ObjectInfo(name, len(self.content[name]), self.modified_ms[name])

    def list(self, prefix: str) -> "list[ObjectInfo]":
        with self._request("list", prefix):
            names = [name for name in self.content if name.startswith(prefix)]
            return [ObjectInfo(name, len(self.content[name]), self.modified_ms[name]) for name in names]

    def remove(self, name: str) -> None:
        with self._request("remove", name):
            self.content.pop(name, None)


class _Request:
    def __init__(self, objects: ModelObjects, operation: str, name: str, dies: bool) -> None:
        self._objects = objects
        self._what = operation, name
        self._dies = dies
        self._fault: str | None = None

    @property
    def conflicts(self) -> bool:
        return self._fault == "conflict"

    def __enter__(self) -> "_Request":
        if self._dies and not self._objects.dies_after:
            raise Killed
        self._fault = self._objects.fails(*self._what)
        if self._fault == "before":
            raise TransportError(f"{self._what} failed before")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._dies and self._objects.dies_after:
            raise Killed
        if self._fault == "after" and kind is None:
            raise TransportError(f"{self._what} failed after")
