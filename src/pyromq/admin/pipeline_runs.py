"""Runs of pipelines, as they report themselves: each keeps its tally in a file, which others read.

A run that was killed cannot say so: it is silent. Neither options nor messages are in these files.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final, Literal

import msgspec

from pyromq.protocol.catalogue import Int64

RUNS: Final = Path("~/.pyromq/pipelines")
"""The default directory of runs."""
SILENT_AFTER_MS: Final = 30_000
_KEPT_MS: Final = 7 * 24 * 3_600_000
_MAX_RUNS: Final = 500
_MAX_FILE_BYTES: Final = 1024 * 1024
_SECRETS: Final = re.compile(r"//[^/@]*@")

Ending = Literal["", "ended", "failed"]


class TopicRun(msgspec.Struct, frozen=True, rename="camel"):
    rows: Int64 = 0
    lag: Int64 = 0


class QueryRun(msgspec.Struct, frozen=True, rename="camel"):
    """The tally of one query; `expected` is how many rows there will be, where that is known."""

    rows_in: Int64 = 0
    rows_out: Int64 = 0
    expected: Int64 | None = None
    batches: Int64 = 0
    rows_per_s: float = 0.0
    seconds: float = 0.0
    watermark: str | None = None
    topics: dict[str, TopicRun] = {}

    @property
    def lag(self) -> int | None:
        """None for a query that reads no topic."""
        return sum(topic.lag for topic in self.topics.values()) if self.topics else None


class PipelineRun(msgspec.Struct, frozen=True, rename="camel"):
    """One run. `ending` is empty while it runs; `place` is its table or checkpoint."""

    id: str
    job: str
    namesrv: str
    host: str
    pid: int
    started_ms: Int64
    at_ms: Int64
    """The time of its last report."""
    place: str = ""
    group: str = ""
    """The group that its progress is copied to, if it is."""
    ending: Ending = ""
    problem: str = ""
    queries: dict[str, QueryRun] = {}

    def state(self, now_ms: int) -> str:
        """`running`, `silent`, `ended` or `failed`."""
        if self.ending:
            return self.ending
        return "silent" if now_ms - self.at_ms > SILENT_AFTER_MS else "running"

    def reads(self, topic: str) -> bool:
        return any(topic in query.topics for query in self.queries.values())

    def is_at(self, name_servers: Collection[str]) -> bool:
        """Whether it works with the cluster of these name servers."""
        return not set(self.namesrv.split(";")).isdisjoint(name_servers)


def without_secrets(place: str) -> str:
    """A path or URL without the name and password that a URL may have."""
    return _SECRETS.sub("//", place)


def keep(directory: Path, run: PipelineRun) -> None:
    """Write the file of a run; raises OSError."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = directory / f".{run.id}.new"
    fresh.write_bytes(msgspec.json.encode(run))
    fresh.replace(directory / f"{run.id}.json")


def runs(directory: Path) -> list[PipelineRun]:
    """All runs that are kept, the newest first; files that are none are passed over."""
    found = []
    for path in directory.glob("*.json"):
        try:
            if path.stat().st_size <= _MAX_FILE_BYTES:
                found.append(msgspec.json.decode(path.read_bytes(), type=PipelineRun))
        except (OSError, msgspec.MsgspecError):
            continue
    return sorted(found, key=lambda run: (-run.started_ms, run.id))


def forget_old(directory: Path, now_ms: int) -> None:
    """Delete runs that have reported nothing for a week, and the oldest beyond a number."""
    for number, run in enumerate(runs(directory)):
        if number >= _MAX_RUNS or now_ms - run.at_ms > _KEPT_MS:
            (directory / f"{run.id}.json").unlink(missing_ok=True)
