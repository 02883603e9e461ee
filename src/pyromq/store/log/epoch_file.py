"""The file `epochFileCheckpoint`: which master wrote which part of the log, as RocketMQ keeps it.

An epoch is on disk before the first byte of it is in the log. Epochs that are cut off leave the file after
their bytes are gone from the disk. So after a crash the file may list too many epochs, never too few.
"""

from pathlib import Path
from threading import Lock

from pyromq.errors import StoreError
from pyromq.filesystem import BACKUP_SUFFIX, UNFINISHED_SUFFIX, Files
from pyromq.store.log.epochs import (
    Epoch,
    Epochs,
    begin_epoch,
    cut_epochs,
    decode_epochs,
    encode_epochs,
    epochs_from,
)


class EpochFile:
    def __init__(self, files: Files, path: Path, log_end: int) -> None:
        """Raises StoreError if the file and its backup are damaged."""
        self._files = files
        self._path = path
        self._shortening = Lock()
        self._backup = path.with_name(path.name + BACKUP_SUFFIX)
        # Epochs behind the end of the log have lost their bytes.
        self.epochs: Epochs = tuple(each for each in self._load() if each.start <= log_end)

    def __repr__(self) -> str:
        return f"<EpochFile {len(self.epochs)} epochs, newest {self.newest}>"

    @property
    def newest(self) -> int:
        """The number of the newest epoch; -1 if there is none."""
        return self.epochs[-1].number if self.epochs else -1

    def _load(self) -> Epochs:
        problem: StoreError | None = None
        for path in (self._path, self._backup):
            if self._files.size(path) is not None:
                try:
                    return decode_epochs(self._files.read(path))
                except StoreError as error:
                    problem = StoreError(f"{path}: {error}")
        if problem is not None:
            raise problem
        return ()

    def begin(self, number: int, start: int) -> None:
        """The log continues at its end `start` in a new epoch. Raises StoreError or OSError."""
        self._replace(begin_epoch(self.epochs, number, start))

    def enter(self, epoch: Epoch, offset: int) -> None:
        """The next bytes of the log, at `offset`, are of this epoch of the master. Raises StoreError or
        OSError."""
        if epoch in self.epochs:
            return
        if not (self.epochs[-1].start if self.epochs else 0) <= epoch.start <= offset:
            raise StoreError(
                f"the master's bytes at {offset} are of epoch {epoch.number}, which began at {epoch.start}:"
                f" that does not fit the epochs of this log, {self.epochs[-3:]}"
            )
        self._replace(begin_epoch(self.epochs, *epoch))

    def cut(self, log_end: int) -> None:
        """The log was cut; any thread may call this. Raises OSError."""
        with self._shortening:
            kept = cut_epochs(self.epochs, log_end)
            if kept != self.epochs:
                self._replace(kept)

    def forget_before(self, log_start: int) -> None:
        """The files of the log before this offset are deleted. Raises OSError."""
        with self._shortening:
            kept = epochs_from(self.epochs, log_start)
            if kept != self.epochs:
                self._replace(kept)

    def _replace(self, epochs: Epochs) -> None:
        beside = self._path.with_name(self._path.name + UNFINISHED_SUFFIX)
        if epochs:
            self._files.write(beside, encode_epochs(epochs))
            if self._files.size(self._path) is not None:
                self._files.rename(self._path, self._backup)
            self._files.rename(beside, self._path)
        else:
            self._files.remove(self._path)
            self._files.remove(self._backup)
        self._files.sync_directory(self._path.parent)
        self.epochs = epochs
