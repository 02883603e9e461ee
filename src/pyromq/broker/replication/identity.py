"""The files `brokerIdentity` and `brokerIdentity-temp`: which id the controller gave this broker.

The id is asked for in two steps. First the broker notes the id that it wants and a text that nobody else has;
then it claims the id with that text. After a crash in between it claims the same id again with the same text.
"""

from pathlib import Path
from typing import NamedTuple

from pyromq.errors import ConfigError, StoreError
from pyromq.filesystem import Files
from pyromq.store.filenames import UNFINISHED_SUFFIX

_SEPARATOR = "#"


class Claim(NamedTuple):
    broker_id: int
    check_code: str


class IdentityFiles:
    def __init__(self, files: Files, path: Path, cluster: str, name: str) -> None:
        """`cluster` and `name` are those of the settings."""
        self._files = files
        self._path = path
        self._claim_path = path.with_name(path.name + "-temp")
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

    def _read(self, path: Path, count: int) -> list[str] | None:
        if not self._files.size(path):
            return None
        fields = self._files.read(path).decode(errors="replace").strip().split(_SEPARATOR)
        if len(fields) != count or not fields[2].isdecimal():
            raise StoreError(f"{path} is no identity of a broker: {_SEPARATOR.join(fields)!r}")
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
