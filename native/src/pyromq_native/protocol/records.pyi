# What other compiled modules use is in records.pxd.

from mmap import mmap

def whole_records(
    buffer: mmap | bytearray | bytes, position: int, end: int, limit: int, log_offset: int
) -> tuple[int, int, int]: ...
def first_damaged(buffer: memoryview, position: int) -> int: ...
