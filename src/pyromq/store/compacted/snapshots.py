"""The snapshots of all compacted queues: loaded, replaced, cut and removed.

A snapshot has nothing that the log never had: if the log loses its end, the snapshots are cut to it before
anything else is appended.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock

from pyromq.errors import StoreError
from pyromq.filesystem import UNFINISHED_SUFFIX, Files
from pyromq.store.compacted.snapshot import QueueSnapshot, SnapshotEnd, SnapshotWriter
from pyromq.store.filenames import BROKEN_SUFFIX, StorePaths, is_text, parse_queue_name

Key = tuple[str, int]
"""Topic and queue id."""


class Snapshots:
    def __init__(self, files: Files, paths: StorePaths) -> None:
        self._files = files
        self._paths = paths
        self._changing = Lock()
        """Held by threads while they change which files are in place."""
        self.by_queue: dict[Key, QueueSnapshot] = {}

    def __repr__(self) -> str:
        return f"<Snapshots of {len(self.by_queue)} queues>"

    def find(self, topic: str, queue_id: int) -> QueueSnapshot | None:
        return self.by_queue.get((topic, queue_id))

    # Loading

    def load(
        self,
        deleted_before: Callable[[str], int],
        log_end: int,
        begin_at: Callable[[str, int, int], None],
    ) -> list[str]:
        """Take over the files; remarks for the operator. Raises OSError.

        `deleted_before`: records of a topic before this log offset are of one that was deleted. `begin_at`:
        the messages of a queue from this offset on are to come.
        """
        remarks = [
            f"{path.relative_to(self._paths.root)}: cut to the end of the log, which has lost newer messages"
            for path in self.cut(log_end)
        ]
        for key, path in list(self._found()):
            name = path.relative_to(self._paths.root)
            try:
                snapshot = QueueSnapshot(self._files, path)
            except StoreError as damage:
                aside = path.with_name(path.name + BROKEN_SUFFIX)
                self._files.rename(path, aside)
                remarks.append(f"{damage}: set aside as {aside.name}, its messages are gone for readers")
                continue
            if snapshot.end.log_offset <= deleted_before(key[0]):
                snapshot.close()
                self._files.remove(path)
                remarks.append(f"{name}: its topic was deleted: removed")
                continue
            self.by_queue[key] = snapshot
            begin_at(*key, snapshot.end.queue_offset)
        self._files.sync_all_directories()
        return remarks

    def _found(self) -> Iterator[tuple[Key, Path]]:
        root = self._paths.compacted
        for topic in self._files.names(root)[1]:
            for name in self._files.names(root / topic)[0]:
                path = root / topic / name
                queue_id = parse_queue_name(name)
                if name.endswith(UNFINISHED_SUFFIX):
                    self._files.remove(path)
                elif queue_id is not None and is_text(topic):
                    yield (topic, queue_id), path

    # Changes

    def put_in_place(self, key: Key, is_wanted: Callable[[], bool]) -> bool:
        """Give a snapshot that was written its name; any thread may do it. False if it is not wanted any
        more. Raises OSError."""
        path = self._paths.snapshot(*key)
        with self._changing:
            if not is_wanted():
                return False
            self._files.rename(self.path_beside(key), path)
            self._files.sync_all_directories()
            return True

    def path_beside(self, key: Key) -> Path:
        path = self._paths.snapshot(*key)
        return path.with_name(path.name + UNFINISHED_SUFFIX)

    def open(self, key: Key) -> QueueSnapshot:
        """The file that is in place now. Raises StoreError, OSError."""
        return QueueSnapshot(self._files, self._paths.snapshot(*key))

    def use(self, key: Key, snapshot: QueueSnapshot) -> None:
        former = self.by_queue.get(key)
        self.by_queue[key] = snapshot
        if former is not None:
            former.close()

    def cut(self, log_end: int) -> list[Path]:
        """Drop the messages at and behind a log offset; the files that had any. Any thread may do it. Raises
        OSError.

        What they had replaced is gone, so the rest is not complete. `reload` makes the change visible.
        """
        changed = []
        with self._changing:
            for path in [path for _, path in self._found()]:
                try:
                    snapshot = QueueSnapshot(self._files, path)
                except StoreError:
                    continue
                try:
                    if snapshot.end.log_offset > log_end:
                        self._write_start(snapshot, snapshot.first_behind(log_end), log_end)
                        changed.append(path)
                finally:
                    snapshot.close()
        return changed

    def _write_start(self, snapshot: QueueSnapshot, count: int, log_end: int) -> None:
        entries = list(snapshot.entries(0, count))
        last = entries[-1] if entries else None
        size_bytes = 0 if last is None else last.position + last.size
        end = SnapshotEnd(0 if last is None else last.queue_offset + 1, log_end, is_complete=False)
        beside = snapshot.path.with_name(snapshot.path.name + UNFINISHED_SUFFIX)
        writer = SnapshotWriter(self._files, beside)
        try:
            writer.begin()
            writer.add(entries, [snapshot.bytes_at(0, size_bytes)])
            writer.finish(end)
        except OSError:
            writer.discard()
            raise
        self._files.rename(beside, snapshot.path)
        self._files.sync_all_directories()

    def reload(self) -> None:
        """Use what `cut` has left. Raises StoreError, OSError."""
        for key, snapshot in list(self.by_queue.items()):
            fresh = self.open(key)
            if fresh.end == snapshot.end:
                fresh.close()
            else:
                self.use(key, fresh)

    def remove_topic(self, topic: str, before: int) -> None:
        """Remove what a topic had before this log offset; `sync_removals` makes it safe. Raises OSError."""
        for key in [key for key in self.by_queue if key[0] == topic]:
            if self.by_queue[key].end.log_offset <= before:
                with self._changing:
                    snapshot = self.by_queue.pop(key)
                    snapshot.close()
                    self._files.remove(snapshot.path)

    def sync_removals(self) -> None:
        """Topics that were removed do not come back after a crash; any thread may call it. Raises OSError."""
        if self._paths.compacted.name in self._files.names(self._paths.root)[1]:
            self._files.sync_directory(self._paths.compacted)

    def close(self) -> None:
        for snapshot in self.by_queue.values():
            snapshot.close()
        self.by_queue.clear()
