from collections.abc import Callable
from mmap import mmap
from typing import Any

from pyromq_native.store.fast_light import LightEnd

class Carrier:
    offset: int
    count: int
    last_timestamp: int
    def __init__(
        self,
        queues_by_topic: Any,
        mark_dirty: Callable[[Any], None],
        light: LightEnd | None = None,
        light_waiting: list[Any] | None = None,
        add_light: Callable[[str, int, int, int, bytes], None] | None = None,
        enters_light: Callable[[str], bool] | None = None,
    ) -> None: ...
    def carry(
        self,
        buffer: mmap,
        buffer_start: int,
        offset: int,
        limit: int,
        max_messages: int,
        touched: Any,
        light_touched: dict[str, int],
        forgotten: dict[str, int],
        is_indexing: bool,
        index_from: int,
        index_file: Any | None,
    ) -> None: ...
