from collections.abc import Collection
from mmap import mmap

def slice_records(
    queue_buffer: mmap,
    position: int,
    count: int,
    tag_codes: Collection[int] | None,
    log_view: memoryview,
    log_start: int,
    log_end: int,
    max_messages: int,
    max_bytes: int,
    topic: bytes,
    queue_id: int,
    offset: int,
    stride: int,
) -> tuple[int, int, int, list[memoryview]] | None: ...
