"""A small file that is always whole: either the old content or the new one, whatever interrupts us.

The content before the last change is kept as `<file>.bak`.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyromq.filesystem import Files


class DurableFile:
    """Blocking; belongs on a thread that may wait for the disk."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self.path = path
        self.backup_path = path.with_name(path.name + ".bak")
        self._files = files or Files()

    def __repr__(self) -> str:
        return f"<DurableFile {self.path}>"

    def read(self) -> bytes | None:
        """None if there is no file."""
        try:
            return self._files.read(self.path)
        except FileNotFoundError:
            return None

    def contents(self) -> Iterator[tuple[Path, bytes]]:
        """The readable copies: the file, then its backup."""
        for path in (self.path, self.backup_path):
            try:
                yield path, self._files.read(path)
            except FileNotFoundError:
                continue

    def put_aside(self, path: Path) -> Path:
        """Keep one of `contents` that cannot be read, so that it is not overwritten."""
        broken = path.with_name(path.name + ".broken")
        self._files.rename(path, broken)
        return broken

    def save(self, content: bytes) -> None:
        """Returns when the content would survive a loss of power."""
        files, directory = self._files, self.path.parent
        files.make_directories(directory)
        fresh = self.path.with_name(self.path.name + ".new")
        # Servers of one machine may share a file, and often get a change at the same time.
        with files.taking_turns(directory):
            # With the mode of the file that it replaces: what only its owner could read stays like that.
            files.write(fresh, content, files.mode(self.path))
            self._keep_backup()
            files.rename(fresh, self.path)
            files.sync_all_directories()

    def _keep_backup(self) -> None:
        """The file itself stays in place all the time: there is no moment without it."""
        former = self.path.with_name(self.path.name + ".old")
        self._files.remove(former)
        with suppress(FileNotFoundError):
            self._files.link(self.path, former)
            self._files.rename(former, self.backup_path)
