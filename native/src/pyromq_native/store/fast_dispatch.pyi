from collections.abc import Callable
from mmap import mmap
from typing import Any

class Carrier:
    offset: int
    count: int
    last_timestamp: int
    def __init__(
        self,
        queues_by_topic: Any,
        mark_dirty: Callable[[Any], None],
        add_light: Callable[[str, int, int, int, bytes], None] | None = None,
    ) -> None: ...
    def carry(
        self,
        buffer: mmap,
        buffer_start: int,
        offset: int,
        limit: int,
        max_messages: int,
        touched: Any,
        forgotten: dict[str, int],
        is_indexing: bool,
        index_from: int,
        index_file: Any | None,
    ) -> None: ...
