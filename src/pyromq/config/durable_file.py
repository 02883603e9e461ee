"""A small file that is always whole: either the old content or the new one, whatever interrupts us.

The content before the last change stays beside it as `<file>.bak`.
"""

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


class DurableFile:
    """Blocking; belongs on a thread that may wait for the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backup_path = path.with_name(path.name + ".bak")

    def __repr__(self) -> str:
        return f"<DurableFile {self.path}>"

    def contents(self) -> Iterator[tuple[Path, bytes]]:
        """What can be read: the file, then its backup."""
        for path in (self.path, self.backup_path):
            try:
                yield path, path.read_bytes()
            except FileNotFoundError:
                continue

    def put_aside(self, path: Path) -> Path:
        """Keep one of `contents` that makes no sense for people to look at, lest it be overwritten."""
        return path.replace(path.with_name(path.name + ".broken"))

    def save(self, content: bytes) -> None:
        """Returns when the content would survive a loss of power."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(self.path.name + ".new")
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Servers of one machine may share a file, and are often told of a change at the same time.
            with suppress(OSError):  # a file system without locks
                fcntl.flock(directory, fcntl.LOCK_EX)
            with self._open(fresh) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            self._keep_backup()
            fresh.replace(self.path)
            os.fsync(directory)
        finally:
            os.close(directory)

    def _open(self, fresh: Path) -> BinaryIO:
        """With the mode of the file that it replaces: what only its owner could read stays like that."""
        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
        except FileNotFoundError:
            return fresh.open("wb")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.fchmod(descriptor, mode)
        return os.fdopen(descriptor, "wb")

    def _keep_backup(self) -> None:
        """The file itself stays in place all the time: there is no moment without it."""
        former = self.path.with_name(self.path.name + ".old")
        former.unlink(missing_ok=True)
        try:
            os.link(self.path, former)
        except FileNotFoundError:
            return
        except OSError:  # a file system without hard links
            shutil.copy(self.path, former)
        former.replace(self.backup_path)
