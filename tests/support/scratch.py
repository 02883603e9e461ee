"""Where property tests write files that they sync again and again: in memory, where there is enough of it.

A test that waits for a busy disk thousands of times takes minutes and finds nothing more.
"""

import shutil
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")
_MIN_FREE_BYTES: Final = 2 * 10**9


def _has_room() -> bool:
    return _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MIN_FREE_BYTES


IN_MEMORY: Final = str(_MEMORY) if _has_room() else None
"""For `dir=` of `tempfile`; None is its usual directory."""
