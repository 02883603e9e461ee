"""A dict of very many names that never takes long to grow.

A dict grows by copying all of its entries at once: with a million of them that takes 50 ms. Here the first
names are in one plain dict, so looking them up costs nothing extra. All later ones are in buckets, of which
one at a time is divided into two when the table grows (linear hashing).
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

V = TypeVar("V")

MAX_FIRST: Final = 170_000
"""A dict grows at 174,762 entries, which would take 10 ms."""
BUCKET_ENTRIES: Final = 2_000
"""The average; the bucket that is divided next has up to twice as many."""


class BucketDict(Generic[V]):
    """In the order of insertion while one dict is enough, then in no particular order."""

    __slots__ = ("_buckets", "_divided", "_entries", "_mask", "_max_first", "_size", "first", "later")

    def __init__(self, max_first: int = MAX_FIRST, bucket_entries: int = BUCKET_ENTRIES) -> None:
        self.first: dict[str, V] = {}
        """The first names; always the same dict. Readers in a hurry look here, then call `get_later_one`."""
        self._buckets = [self.first]
        """The first dict, then all others."""
        self.later: list[dict[str, V]] = []
        """The last bits of a name's hash → its bucket. A bucket that is not divided yet is here twice. Always
        the same list, empty or with 2, 4, 8, … entries."""
        self._mask = 0
        self._divided = 0
        """How many buckets in the lower half of `later` are divided."""
        self._size = 0
        self._max_first = max_first
        self._entries = bucket_entries

    def __repr__(self) -> str:
        return f"<BucketDict {self._size} in {len(self._buckets)} dicts>"

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._buckets)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._dict_of(name)

    def get(self, name: str) -> V | None:
        return self._dict_of(name).get(name)

    def get_later_one(self, name: str) -> V | None:
        """Like `get`, for a name that is not in `first`."""
        return self.later[hash(name) & self._mask].get(name) if self.later else None

    def __setitem__(self, name: str, value: V) -> None:
        bucket = self._dict_of(name)
        before = len(bucket)
        bucket[name] = value
        if len(bucket) != before:
            self._size += 1
            if self._size > self._max_first + self._entries * (len(self._buckets) - 1):
                self._grow()

    def pop(self, name: str) -> V:
        bucket = self._dict_of(name)
        value = bucket.pop(name)
        self._size -= 1
        if not bucket:
            bucket.clear()  # an empty dict keeps its memory, a cleared one does not
        return value

    def take(self, count: int) -> Iterator[str]:
        """Remove `count` arbitrary names."""
        for bucket in self._buckets:
            while bucket:
                if not count:
                    return
                count -= 1
                self._size -= 1
                yield bucket.popitem()[0]
            bucket.clear()

    def _dict_of(self, name: str) -> dict[str, V]:
        """The dict that has the name, or gets it."""
        if not self.later or name in self.first:
            return self.first
        return self.later[hash(name) & self._mask]

    def _grow(self) -> None:
        """Add a bucket: the first one, or the upper half of the next one that is divided."""
        by_hash = self.later
        added: dict[str, V] = {}
        if not by_hash:
            by_hash.append(added)
        else:
            if self._divided == len(by_hash) // 2:
                by_hash += by_hash
                self._divided = 0
            place, bit = self._divided, len(by_hash) // 2
            whole = by_hash[place]
            added = {name: value for name, value in whole.items() if hash(name) & bit}
            by_hash[place] = {name: value for name, value in whole.items() if not hash(name) & bit}
            self._buckets[1 + place] = by_hash[place]
            by_hash[place + bit] = added
            self._divided += 1
        self._buckets.append(added)
        self._mask = len(by_hash) - 1
