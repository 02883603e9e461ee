"""Flush policies: everything that depends on `flushDiskType` is declared here."""

from dataclasses import dataclass
from typing import Final, Literal

FlushDiskType = Literal["ASYNC_FLUSH", "SYNC_FLUSH"]


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    is_sync: bool
    """Whether senders get their answers, and consumers see the messages, only once they are on disk."""
    sweep_ms: int | None = None
    """How often everything in the log is flushed even if no sender waits for it; None: as often, and as many
    pages at least, as the settings say."""


FLUSH_POLICIES: Final[dict[FlushDiskType, FlushPolicy]] = {
    "ASYNC_FLUSH": FlushPolicy(is_sync=False),
    # java: with synchronous flush, messages that do not wait are swept up every 10 ms
    "SYNC_FLUSH": FlushPolicy(is_sync=True, sweep_ms=10),
}
