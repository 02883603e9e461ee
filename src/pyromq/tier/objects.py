"""The port to an object store, and what every store has to do.

Objects are written whole and read in ranges. The only condition is "create if absent", which every store has.
An error of a write leaves open whether it was done: `create_settled` reads back what is there. Everything
here blocks: call it in a thread.
"""

from pathlib import Path
from typing import Final, NamedTuple, Protocol

from pyromq.errors import PyroError, TransportError

_ATTEMPTS: Final = 5


class ObjectMissing(PyroError):
    """There is no object of this name."""


class ObjectExists(PyroError):
    """There is another object of this name; or the store says so."""


class ObjectInfo(NamedTuple):
    name: str
    size_bytes: int
    modified_ms: int
    """By the store's clock."""


class Readable(Protocol):
    """Objects as readers of segments need them."""

    def read(self, name: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        """A range of an object, at most to its end. Raises ObjectMissing, or TransportError."""
        ...


class Objects(Readable, Protocol):
    """Every method may raise TransportError: the store is away, or refuses."""

    @property
    def place(self) -> str:
        """Where the objects are, for people."""
        ...

    def create(self, name: str, content: bytes) -> None:
        """Raises ObjectExists if the name is taken; any error leaves open whether it was done."""
        ...

    def replace(self, name: str, content: bytes) -> None: ...

    def put_file(self, name: str, path: Path) -> None:
        """Store a large file. Its name depends on its content, so it does not matter who is first."""
        ...

    def info(self, name: str) -> ObjectInfo | None: ...

    def list(self, prefix: str) -> list[ObjectInfo]:
        """The objects whose names begin so; one that was created or removed lately may be wrong."""
        ...

    def remove(self, name: str) -> None:
        """Remove an object; it need not be there."""
        ...


def create_settled(objects: Objects, name: str, content: bytes) -> None:
    """Create an object, and find out what has become of it if the answer does not say so. No other writer may
    write the same content.

    Raises ObjectExists if another one is there, TransportError if it cannot be known: it may still appear.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        problem: PyroError
        try:
            objects.create(name, content)
            return
        except (ObjectExists, TransportError) as failed:
            problem = failed
        try:
            found = objects.read(name)
        except ObjectMissing:
            # S3 answers 409 while another write is under way; that is not "exists".
            if attempt < _ATTEMPTS and isinstance(problem, ObjectExists):
                continue
            raise TransportError(f"{name}: {problem}") from None
        if found == content:
            return
        raise ObjectExists(name)


def size_problem(objects: Objects, name: str, size_bytes: int) -> str:
    """Why an object is not the one that is expected, without reading it; empty if it has the right size."""
    info = objects.info(name)
    if info is None:
        return "it is missing"
    return "" if info.size_bytes == size_bytes else f"it has {info.size_bytes} bytes, expected {size_bytes}"
