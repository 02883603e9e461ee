"""An object store whose requests and bytes are counted: they are what a bucket costs.

A part of a large upload is its own request. What a library repeats by itself is not seen here.
"""

import threading
from pathlib import Path
from typing import Final

import msgspec

from pyromq.tier.objects import ObjectInfo, Objects

PART_BYTES: Final = 16 * 1024 * 1024
"""Larger files are uploaded in parts of this size."""


class Traffic(msgspec.Struct, frozen=True):
    """Requests to an object store, and bytes. A write or a list costs about ten times as much as a read."""

    writes: int = 0
    reads: int = 0
    lists: int = 0
    removals: int = 0
    written_bytes: int = 0
    read_bytes: int = 0

    @property
    def requests(self) -> int:
        return self.writes + self.reads + self.lists + self.removals

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(*(getattr(self, name) + getattr(other, name) for name in Traffic.__struct_fields__))


def upload_requests(size_bytes: int) -> int:
    """How many requests it takes to store a file."""
    parts = -(-size_bytes // PART_BYTES)
    return parts + 2 if parts > 1 else 1


class CountedObjects:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._traffic = Traffic()

    def __repr__(self) -> str:
        return f"<CountedObjects {self._objects!r}>"

    @property
    def place(self) -> str:
        return self._objects.place

    @property
    def traffic(self) -> Traffic:
        """All requests so far, by this process or in its name."""
        with self._lock:
            return self._traffic

    def count(self, more: Traffic) -> None:
        with self._lock:
            self._traffic += more

    def create(self, name: str, content: bytes) -> None:
        self.count(Traffic(writes=1, written_bytes=len(content)))
        self._objects.create(name, content)

    def replace(self, name: str, content: bytes) -> None:
        self.count(Traffic(writes=1, written_bytes=len(content)))
        self._objects.replace(name, content)

    def put_file(self, name: str, path: Path) -> None:
        size_bytes = path.stat().st_size
        self.count(Traffic(writes=upload_requests(size_bytes), written_bytes=size_bytes))
        self._objects.put_file(name, path)

    def read(self, name: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        self.count(Traffic(reads=1))
        content = self._objects.read(name, start, size_bytes)
        self.count(Traffic(read_bytes=len(content)))
        return content

    def info(self, name: str) -> ObjectInfo | None:
        self.count(Traffic(reads=1))
        return self._objects.info(name)

    def list(self, prefix: str) -> "list[ObjectInfo]":
        self.count(Traffic(lists=1))
        return self._objects.list(prefix)

    def remove(self, name: str) -> None:
        self.count(Traffic(removals=1))
        self._objects.remove(name)
