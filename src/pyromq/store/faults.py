"""Faults: why the store refuses messages. While there is any, nothing is appended; reading goes on.

A full disk is a trouble that passes: the next look at the disk ends it. All others last until the store is
opened again.
"""

from enum import IntFlag
from typing import TYPE_CHECKING, Final

from pyromq.store.filesystem import Space
from pyromq.store.flushing import PASSING

if TYPE_CHECKING:
    from pyromq_native.appending import Appender


class Fault(IntFlag):
    """Why the store refuses messages; the bits are Apache's running flags."""

    NONE = 0
    NOT_WRITEABLE = 2
    QUEUE_ERROR = 4
    INDEX_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    QUEUE_DISK_FULL = 64


_NO_DISPATCH: Final = Fault.NOT_WRITEABLE | Fault.QUEUE_ERROR | Fault.INDEX_ERROR


class StoreFaults:
    """What is wrong now, and since which error: the first reason is the one that is told."""

    def __init__(self, appender: "Appender | None") -> None:
        self._appender = appender
        self._is_dispatch_stuck = False
        self.present = Fault.NONE
        self.reason = ""
        self.is_refusing = False
        """Whether there is any, as a plain bool: asking a flag for its truth is slow."""
        self.replace(Fault.NOT_WRITEABLE, "the store is not open")

    @property
    def can_dispatch(self) -> bool:
        return not (self._is_dispatch_stuck or (self.is_refusing and self.present & _NO_DISPATCH))

    def replace(self, trouble: Fault, reason: str) -> None:
        """Whatever there was, from now on it is this."""
        self.present = trouble
        self.reason = reason
        self.is_refusing = trouble is not Fault.NONE
        if self._appender is not None:
            self._appender.is_refusing = self.is_refusing

    def refuse(self, trouble: Fault, reason: str) -> None:
        if not self.present & trouble:
            self.replace(self.present | trouble, reason)

    def relieve(self, trouble: Fault) -> None:
        if trouble is Fault.QUEUE_DISK_FULL:
            self._is_dispatch_stuck = False
        remaining = self.present & ~trouble
        self.replace(remaining, self.reason if remaining else "")

    def refuse_after_dispatch(self, error: OSError) -> None:
        """Dispatch met an error, and stays where it is until the trouble passes."""
        self._is_dispatch_stuck = True
        trouble = Fault.QUEUE_DISK_FULL if error.errno in PASSING else Fault.QUEUE_ERROR
        self.refuse(trouble, f"dispatch: {error}")

    def judge_disk(self, trouble: Fault, space: Space, warning_percent: int) -> None:
        """Stop taking messages when a disk is too full, and start again when it is not."""
        if space.read_only:
            self.refuse(trouble, "the disk is read-only")
        elif space.used_ratio > warning_percent / 100:
            self.refuse(trouble, f"the disk is {space.used_ratio:.0%} full")
        elif self.present & trouble:
            self.relieve(trouble)
