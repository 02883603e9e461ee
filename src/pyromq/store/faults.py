"""Faults: the reasons why the store refuses all messages. Reads continue meanwhile.

The next check of the disk clears a full disk. All other faults last until the store is opened again.
"""

from enum import IntFlag
from typing import TYPE_CHECKING, Final

from pyromq.filesystem import Space
from pyromq.store.flushing import TEMPORARY_ERRORS

if TYPE_CHECKING:
    from pyromq_native.store.fast_appending import Appender


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
    """The current faults, and the reason of the first one, for callers."""

    def __init__(self, appender: "Appender | None") -> None:
        self._appender = appender
        self._is_dispatch_stuck = False
        self.present = Fault.NONE
        self.reason = ""
        self.is_refusing = False
        """Whether there is a fault, as a plain bool: testing a flag is slow."""
        self.replace(Fault.NOT_WRITEABLE, "the store is not open")

    @property
    def can_dispatch(self) -> bool:
        return not (self._is_dispatch_stuck or (self.is_refusing and self.present & _NO_DISPATCH))

    def replace(self, fault: Fault, reason: str) -> None:
        self.present = fault
        self.reason = reason
        self.is_refusing = fault is not Fault.NONE
        if self._appender is not None:
            self._appender.is_refusing = self.is_refusing

    def refuse(self, fault: Fault, reason: str) -> None:
        if not self.present & fault:
            self.replace(self.present | fault, reason)

    def clear(self, fault: Fault) -> None:
        if fault is Fault.QUEUE_DISK_FULL:
            self._is_dispatch_stuck = False
        remaining = self.present & ~fault
        self.replace(remaining, self.reason if remaining else "")

    def refuse_after_dispatch(self, error: OSError) -> None:
        """Dispatch failed, and stays where it is until the fault is cleared."""
        self._is_dispatch_stuck = True
        fault = Fault.QUEUE_DISK_FULL if error.errno in TEMPORARY_ERRORS else Fault.QUEUE_ERROR
        self.refuse(fault, f"dispatch: {error}")

    def check_disk(self, fault: Fault, space: Space, warning_percent: int) -> None:
        """Refuse messages while a disk is too full or read-only."""
        if space.read_only:
            self.refuse(fault, "the disk is read-only")
        elif space.used_ratio > warning_percent / 100:
            self.refuse(fault, f"the disk is {space.used_ratio:.0%} full")
        elif self.present & fault:
            self.clear(fault)
