"""A table's file, written with every change of the table, or later if the disk does not let us now.

An operator's change fails if it cannot be written. A change that a reader brings about, such as a group that
makes itself, must not: reading goes on while the disk is full, and the file follows when there is room.
"""

import logging
from collections.abc import Callable
from typing import Any

from pyromq.store.json_table import JsonTable

_log = logging.getLogger(__name__)


class TableFile:
    def __init__(self, file: JsonTable, content: Callable[[], Any]) -> None:
        self._file = file
        self._content = content
        self._is_unwritten = False
        self._problem = ""

    def __repr__(self) -> str:
        return f"<TableFile {self._file.path.name}{' unwritten' if self._is_unwritten else ''}>"

    def save(self) -> None:
        """Write the table; on return it is safe. After an OSError `retry` and `persist` try again."""
        self._is_unwritten = True
        self._file.save(self._content())
        self._is_unwritten = False
        if self._problem:
            self._problem = ""
            _log.info("table written after all file=%s", self._file.path.name)

    def save_or_wait(self) -> None:
        """Write the table if the disk lets us. If not, that is told once, until it works again."""
        try:
            self.save()
        except OSError as problem:
            if self._problem != str(problem):
                self._problem = str(problem)
                _log.warning(
                    "table not written, goes on in memory and is tried again file=%s: %s",
                    self._file.path.name,
                    problem,
                )

    def retry(self) -> None:
        """Try again what could not be written."""
        if self._is_unwritten:
            self.save_or_wait()

    def persist(self) -> None:
        """Write what could not be written, for the last time."""
        if self._is_unwritten:
            self.save()
