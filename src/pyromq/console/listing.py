"""Lists on the server: filtered, sorted and cut into pages here, and each state of a list is a URL."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from pyromq.console.visit import Visit

T = TypeVar("T")

Key = Callable[[T], Any]


class Listing(Generic[T]):
    """One page of a list; `total` counts what the filter left, `known` everything."""

    def __init__(
        self, rows: Sequence[T], total: int, known: int, *, page: int, size: int, sort: str, q: str
    ) -> None:
        self.rows, self.total, self.known = rows, total, known
        self.page, self.size = page, size
        self.sort, self.q = sort, q

    def __repr__(self) -> str:
        return f"<Listing page {self.page} of {self.pages}, {self.total} of {self.known}>"

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // self.size))

    def facts(self) -> dict[str, object]:
        """All but the rows, for JSON."""
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
    rows_here = ordered[(page - 1) * size : page * size]
    return Listing(rows_here, len(ordered), len(rows), page=page, size=size, sort=asked, q=visit.text("q"))
