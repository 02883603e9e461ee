"""The files `brokerIdentity…`: the id that the controller gave this broker, the name of its last start, and
whether it is a mirror.

The broker gets its id in two steps. First it notes the id that it wants and a unique text; then it claims the
id with that text. After a crash in between it claims the same id again with the same text.

A name for each start is on disk before the broker takes part in its group. So a store with that name is the
one that took part since, and no older copy of it.
"""

from pathlib import Path
from typing import NamedTuple

from pyromq.errors import ConfigError, StoreError
from pyromq.filesystem import UNFINISHED_SUFFIX, Files

_SEPARATOR = "#"
_SYNC, _ASYNC = "SYNC_FLUSH", "ASYNC_FLUSH"


class Claim(NamedTuple):
    broker_id: int
    check_code: str


class Incarnation(NamedTuple):
    name: str
    is_sync: bool
    """Whether this broker said that it has something only after it was on disk."""


class MirrorState(NamedTuple):
    of: str
    """The name servers of the cluster that this broker copies, or has copied."""
    step: int


MIRRORING, PROMOTED, JOINED = 0, 1, 2
"""Steps: a mirror; it is to be one no more; controllers have given it a role since."""


class IdentityFiles:
    def __init__(self, files: Files, path: Path, cluster: str, name: str) -> None:
        """`cluster` and `name` are those of the settings."""
        self._files = files
        self._path = path
        self._claim_path = path.with_name(path.name + "-temp")
        self._incarnation_path = path.with_name(path.name + "-incarnation")
        self._members_path = path.with_name(path.name + "-members")
        self._mirror_path = path.with_name(path.name + "-mirror")
        self._cluster = cluster
        self._name = name

    def __repr__(self) -> str:
        return f"<IdentityFiles {self._path}>"

    def read(self) -> int | None:
        """The id of this broker; None if it has none. Raises ConfigError if the file is of another broker,
        StoreError if it is damaged."""
        fields = self._read(self._path, 3)
        return None if fields is None else int(fields[2])

    def read_claim(self) -> Claim | None:
        """The id that this broker has begun to claim."""
        fields = self._read(self._claim_path, 4)
        return None if fields is None else Claim(int(fields[2]), fields[3])

    def write_claim(self, claim: Claim) -> None:
        """Raises OSError."""
        self._write(self._claim_path, self._cluster, self._name, str(claim.broker_id), claim.check_code)

    def write(self, broker_id: int) -> None:
        """The claim has succeeded. Raises OSError."""
        self._write(self._path, self._cluster, self._name, str(broker_id))
        self.drop_claim()

    def drop_claim(self) -> None:
        self._files.remove(self._claim_path)

    def read_incarnation(self) -> Incarnation | None:
        """The last start after which this broker took part in its group."""
        fields = self._read(self._incarnation_path, 4)
        return None if fields is None else Incarnation(fields[2], fields[3] == _SYNC)

    def write_incarnation(self, incarnation: Incarnation) -> None:
        """Raises OSError."""
        kind = _SYNC if incarnation.is_sync else _ASYNC
        self._write(self._incarnation_path, self._cluster, self._name, incarnation.name, kind)

    def read_members(self) -> str:
        """The brokers of the group as the controller last named them; empty if it has not."""
        fields = self._read(self._members_path, 4)
        return "" if fields is None else fields[3]

    def write_members(self, broker_id: int, members: str) -> None:
        """Raises OSError."""
        self._write(self._members_path, self._cluster, self._name, str(broker_id), members)

    def read_mirror(self) -> MirrorState | None:
        """None if this store has not been a mirror, or everything about that is done."""
        fields = self._read(self._mirror_path, 4)
        return None if fields is None else MirrorState(fields[3], int(fields[2]))

    def write_mirror(self, state: MirrorState) -> None:
        """Raises OSError."""
        self._write(self._mirror_path, self._cluster, self._name, str(state.step), state.of)

    def drop_mirror(self) -> None:
        self._files.remove(self._mirror_path)

    def _read(self, path: Path, count: int) -> list[str] | None:
        if not self._files.size(path):
            return None
        fields = self._files.read(path).decode(errors="replace").strip().split(_SEPARATOR)
        if len(fields) != count or not fields[2].isdecimal():
            raise StoreError(f"{path} is not the identity of a broker: {_SEPARATOR.join(fields)!r}")
        for key, found, expected in (
            ("brokerClusterName", fields[0], self._cluster),
            ("brokerName", fields[1], self._name),
        ):
            if found != expected:
                raise ConfigError(key, expected, f"{found}, as in {path}: this store belongs to that broker")
        return fields

    def _write(self, path: Path, *fields: str) -> None:
        beside = path.with_name(path.name + UNFINISHED_SUFFIX)
        self._files.write(beside, _SEPARATOR.join(fields).encode())
        self._files.rename(beside, path)
        self._files.sync_directory(path.parent)
