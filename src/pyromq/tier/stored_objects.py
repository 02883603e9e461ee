"""Objects in S3, Google Cloud Storage or Azure, by obstore.

Only its blocking calls are used: its threads end badly when Python exits while an `await` is under way. It
must be opened after a fork. An error of a write may mean anything, so a conditional one is never repeated
here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.errors import TransportError
from pyromq.tier.counted_objects import PART_BYTES
from pyromq.tier.objects import ObjectExists, ObjectInfo, ObjectMissing

if TYPE_CHECKING:
    from obstore.store import ObjectStore


class StoredObjects:
    def __init__(self, store: "ObjectStore", place: str, *, upload_concurrency: int = 4) -> None:
        self._store = store
        self._place = place
        self._upload_concurrency = upload_concurrency

    def __repr__(self) -> str:
        return f"<StoredObjects {self._place}>"

    @property
    def place(self) -> str:
        return self._place

    def create(self, name: str, content: bytes) -> None:
        from obstore.exceptions import AlreadyExistsError

        with reached(f"{self._place}/{name}"):
            try:
                self._store.put(name, content, mode="create")
            except (AlreadyExistsError, FileExistsError):
                raise ObjectExists(name) from None

    def replace(self, name: str, content: bytes) -> None:
        with reached(f"{self._place}/{name}"):
            self._store.put(name, content)

    def put_file(self, name: str, path: Path) -> None:
        with reached(f"{self._place}/{name}"):
            self._store.put(name, path, chunk_size=PART_BYTES, max_concurrency=self._upload_concurrency)

    def read(self, name: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        with reached(f"{self._place}/{name}"):
            try:
                if size_bytes is None and not start:
                    return bytes(self._store.get(name).bytes())
                end = self._store.head(name)["size"] if size_bytes is None else start + size_bytes
                return bytes(self._store.get_range(name, start=start, end=end))
            except FileNotFoundError:
                raise ObjectMissing(name) from None

    def info(self, name: str) -> ObjectInfo | None:
        with reached(f"{self._place}/{name}"):
            try:
                meta = self._store.head(name)
            except FileNotFoundError:
                return None
            return ObjectInfo(name, meta["size"], int(meta["last_modified"].timestamp() * 1000))

    def list(self, prefix: str) -> "list[ObjectInfo]":
        directory, _, beginning = prefix.rpartition("/")
        # A prefix ends at a slash for the library, so that `a/1` does not mean `a/10` as well.
        with reached(f"{self._place}/{prefix}"):
            found = self._store.list(f"{directory}/" if directory else None).collect()
        begin = f"{directory}/{beginning}" if directory else beginning
        return [
            ObjectInfo(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))
            for meta in found
            if meta["path"].startswith(begin)
        ]

    def remove(self, name: str) -> None:
        with reached(f"{self._place}/{name}"):
            try:
                self._store.delete(name)
            except FileNotFoundError:
                return


@contextmanager
def reached(name: str) -> Iterator[None]:
    """Raises TransportError for whatever the library says."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (ObjectExists, ObjectMissing):
        raise
    except (BaseError, OSError) as problem:
        # The library's text continues with its own state, over many lines.
        text = str(problem).partition("\n")[0]
        raise TransportError(f"{name}: {text}") from None
