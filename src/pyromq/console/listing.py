"""Lists on the server: filtered, sorted and cut into pages here, and each state of a list is a URL."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from pyromq.console.visit import Visit

T = TypeVar("T")

Key = Callable[[T], Any]

_SAME_ORDER = frozenset(("page", "size", "lang", "theme"))
"""Parameters that do not change the order of a list."""


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
    visit: Visit,
    rows: Sequence[T],
    keys: Mapping[str, Key[T]],
    *,
    name: Callable[[T], str],
    sort: str,
    only: Callable[[T], bool] | None = None,
) -> Listing[T]:
    """The page that the URL asks for: `q` filters by name, `sort` is a key, with `-` downwards.

    What is unknown comes last, in either direction. `rows` and `only` must depend on the snapshot and the URL
    alone: the list is ordered once for all viewers.
    """
    asked = visit.text("sort", sort)
    key = keys.get(asked.removeprefix("-"))
    if key is None:
        asked, key = sort, keys[sort.removeprefix("-")]
    assert visit.shown is not None, "a list belongs to a cluster"
    parameters = sorted(each for each in visit.query.multi_items() if each[0] not in _SAME_ORDER)
    ordered: list[T] = visit.shown.kept_list(
        (visit.request.url.path, *parameters),
        lambda: _ordered(
            rows if only is None else list(filter(only, rows)),
            visit.text("q").lower(),
            key,
            name,
            is_downwards=asked.startswith("-"),
        ),
    )
    size = visit.page_size
    page = min(visit.page_number, max(1, -(-len(ordered) // size)))
    rows_here = ordered[(page - 1) * size : page * size]
    return Listing(rows_here, len(ordered), len(rows), page=page, size=size, sort=asked, q=visit.text("q"))


def _ordered(
    rows: Sequence[T], q: str, key: Key[T], name: Callable[[T], str], *, is_downwards: bool
) -> list[T]:
    """Rows that are equal stay in the order they have, that of their names."""
    found = [row for row in rows if q in name(row).lower()] if q else rows
    known = [row for row in found if key(row) is not None]
    unknown = [row for row in found if key(row) is None] if len(known) < len(found) else []
    return sorted(known, key=key, reverse=is_downwards) + unknown
