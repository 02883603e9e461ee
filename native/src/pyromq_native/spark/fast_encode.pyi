from collections.abc import Callable
from typing import Any, TypeVar

B = TypeVar("B")
Column = tuple[Any, int, Any, Any]

def entries(
    allocate: Callable[[int], B],
    count: int,
    values: Column,
    texts: tuple[tuple[bytes, Column], ...],
    pairs: tuple[Column, Column, Column] | None,
    skipped: tuple[bytes, ...],
    prefix: bytes,
    first: int,
) -> tuple[B, B] | None: ...
