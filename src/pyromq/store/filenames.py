"""The names of all files of the store."""

import time
from pathlib import Path

OFFSET_DIGITS = 20
INDEX_DIGITS = 17
BROKEN_SUFFIX = ".broken"
_NO_OFFSET = 1 << 63
_NO_QUEUE = 1 << 31


class StorePaths:
    """Where everything is under one root."""

    def __init__(self, root: Path, log_directory: Path | None = None) -> None:
        self.root = root
        self.commit_log = log_directory or root / "commitlog"
        self.consume_queues = root / "consumequeue"
        self.batch_queues = root / "batchconsumequeue"
        """java: queues whose units are whole batches; we have none."""
        self.index = root / "index"
        self.light_queues = root / "lightqueues"
        """Ours."""
        self.compacted = root / "compacted"
        """Ours: the newest message of each key of compacted topics."""
        self.compacted_by_apache = root / "compaction" / "compactionLog"
        self.config = root / "config"
        self.topics = self.config / "topics.json"
        """The table of the broker's topics."""
        self.damaged = root / "damaged"
        """Bytes of the log that were damaged, set aside."""
        self.checkpoint = root / "checkpoint"
        self.deletions = root / "deletions"
        """Ours; Apache's broker looks only for files that it knows here."""
        self.purges = root / "purges"
        """The same for queues that were purged."""
        self.erasures = root / "erasures"
        """The same for messages that are erased by their keys."""
        self.abort = root / "abort"
        self.lock = root / "lock"
        self.restoring = root / "restoring"
        """Ours: the store is being rebuilt from a tier, and not complete."""
        self.epochs = root / "epochFileCheckpoint"
        self.broker_identity = root / "brokerIdentity"
        """The id that the controller gave this broker."""
        self.timer_wheel = root / "timerwheel"
        self.timer_log = root / "timerlog"
        self.timer_checkpoint = self.config / "timercheck"

    def queue(self, topic: str, queue_id: int) -> Path:
        return self.consume_queues / topic / str(queue_id)

    def snapshot(self, topic: str, queue_id: int) -> Path:
        return self.compacted / topic / str(queue_id)


def can_be_directory(topic: str) -> bool:
    return "/" not in topic and "\0" not in topic and topic not in ("", ".", "..")


def is_text(name: str) -> bool:
    """Whether a name found on disk is UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def offset_name(offset: int) -> str:
    return f"{offset:020d}"


def parse_offset_name(name: str) -> int | None:
    """The offset in a file name, or None if it is not such a name."""
    if len(name) != OFFSET_DIGITS or not (name.isascii() and name.isdigit()):
        return None
    offset = int(name)
    return offset if offset < _NO_OFFSET else None


def parse_queue_name(name: str) -> int | None:
    """The number in the name of a queue's directory, or None if it is not such a name."""
    if name.isascii() and name.isdigit() and str(int(name)) == name and int(name) < _NO_QUEUE:
        return int(name)
    return None


def index_name(created_ms: int) -> str:
    # java: local time, yyyyMMddHHmmssSSS
    return time.strftime("%Y%m%d%H%M%S", time.localtime(created_ms // 1000)) + f"{created_ms % 1000:03d}"


def next_index_name(name: str) -> str:
    """A name that sorts behind another."""
    return f"{int(name) + 1:0{INDEX_DIGITS}d}"


def is_index_name(name: str) -> bool:
    return len(name) == INDEX_DIGITS and name.isascii() and name.isdigit()
