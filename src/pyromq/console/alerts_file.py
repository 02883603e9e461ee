"""Which alerts were posted and have not ended, in a file: a console that starts again posts nothing twice.

The file is a convenience: if it cannot be read or written, alerts are posted once more than needed.
"""

import logging
from collections.abc import Container, Mapping
from pathlib import Path

import msgspec

from pyromq.config.durable_file import DurableFile
from pyromq.console.watch.values import Problem, Severity

_log = logging.getLogger(__name__)

Key = tuple[str, str, str, str]
"""Cluster, kind, about, name."""


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    cluster: str
    kind: str
    severity: Severity
    about: str
    name: str
    values: dict[str, str | int | float]
    since_ms: int


class AlertsFile:
    """Blocking."""

    def __init__(self, path: Path) -> None:
        self._file = DurableFile(path)

    def __repr__(self) -> str:
        return f"<AlertsFile {self._file.path}>"

    def load(self, clusters: Container[str]) -> dict[Key, Problem]:
        """The alerts of these clusters: others are not watched any more."""
        try:
            for path, content in self._file.contents():
                try:
                    entries = msgspec.json.decode(content, type=list[_Entry])
                except msgspec.MsgspecError as problem:
                    _log.warning("alerts not read file=%s problem=%s", path, problem)
                    continue
                return {
                    (each.cluster, each.kind, each.about, each.name): Problem(
                        each.kind, each.severity, each.about, each.name, each.values, each.since_ms
                    )
                    for each in entries
                    if each.cluster in clusters
                }
        except OSError as problem:
            _log.warning("alerts not read problem=%s", problem)
        return {}

    def save(self, told: Mapping[Key, Problem]) -> None:
        entries = [
            _Entry(cluster, each.kind, each.severity, each.about, each.name, dict(each.values), each.since_ms)
            for (cluster, _, _, _), each in told.items()
        ]
        try:
            self._file.save(msgspec.json.format(msgspec.json.encode(entries)))
        except OSError as problem:
            _log.warning("alerts not kept problem=%s", problem)
