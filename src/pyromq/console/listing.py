"""Lists on the server: filtered, sorted and cut into pages here, and each state of a list is a URL."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyromq.console.visit import Visit

T = TypeVar("T")

Key = Callable[[T], Any]


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """One page of a list; `total` counts what the filter left, `known` everything."""

    rows: Sequence[T]
    total: int
    known: int
    page: int
    size: int
    sort: str
    q: str

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // self.size))

    def facts(self) -> dict[str, object]:
        return {
            "total": self.total,
            "known": self.known,
            "page": self.page,
            "pages": self.pages,
            "size": self.size,
            "sort": self.sort,
            "q": self.q,
        }


def listed(
    visit: Visit, rows: Sequence[T], keys: Mapping[str, Key[T]], *, name: Callable[[T], str], sort: str
) -> Listing[T]:
    """The page that the URL asks for: `q` filters by name, `sort` is a key, with `-` downwards.

    What is unknown comes last, in either direction.
    """
    q = visit.text("q").lower()
    found = [row for row in rows if q in name(row).lower()] if q else list(rows)
    asked = visit.text("sort", sort)
    key = keys.get(asked.removeprefix("-"))
    if key is None:
        asked, key = sort, keys[sort.removeprefix("-")]
    known = [row for row in found if key(row) is not None]
    unknown = [row for row in found if key(row) is None]
    known.sort(key=lambda row: (key(row), name(row)))
    if asked.startswith("-"):
        known.reverse()
    ordered = known + unknown
    size = visit.page_size
    page = min(visit.page_number, max(1, -(-len(ordered) // size)))
    return Listing(ordered[(page - 1) * size : page * size], len(ordered), len(rows), page, size, asked, visit.text("q"))
