"""Pages of a table."""

from collections.abc import Iterable

from pyromq.protocol import json_body
from pyromq.protocol.body import DataVersion

MAX_PAGE_SIZE = 2000


def page_of(
    names: Iterable[str], start: int, wanted: int, read_version: str | None, version: DataVersion
) -> list[str]:
    """Up to `wanted` names from `start` on; `read_version` is the version of the reader's first page."""
    # java: if the table changed meanwhile, the reader starts again
    if read_version is not None and read_version != json_body.encode(version).decode():
        start = 0
    return sorted(names)[max(start, 0) :][: max(0, min(wanted, MAX_PAGE_SIZE))]
