"""The run of a pipeline in a file, for the web console: written every few seconds, and at its end.

If the file cannot be written, that is logged once, and the pipeline continues.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from pyromq.admin import pipeline_runs
from pyromq.admin.pipeline_runs import Ending, PipelineRun, QueryRun, TopicRun
from pyromq.clock import SystemClock

if TYPE_CHECKING:
    from pyromq.spark.pipelines.tallies import Tally

_EVERY_S: Final = 5.0
_MAX_PROBLEM: Final = 500


class KeptRun:
    """A sign of life also while a batch takes long: its own thread writes it."""

    def __init__(self, directory: Path, job: str, place: str, options: Mapping[str, str]) -> None:
        self._directory = directory
        self._clock = SystemClock()
        now_ms = self._clock.now_ms()
        self._run = PipelineRun(
            id=f"{job}-{now_ms}-{os.getpid()}",
            job=job,
            namesrv=options["namesrv"],
            host=socket.gethostname(),
            pid=os.getpid(),
            started_ms=now_ms,
            at_ms=now_ms,
            place=pipeline_runs.without_secrets(place),
            group=_reported_group(options),
        )
        self._is_told = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="pipeline-run", daemon=True)

    def __repr__(self) -> str:
        return f"<KeptRun {self._run.id} in {self._directory}>"

    def start(self) -> None:
        try:
            pipeline_runs.forget_old(self._directory, self._clock.now_ms())
        except OSError as problem:
            self._tell(problem)
        self._thread.start()

    def show(self, tallies: "Mapping[str, Tally]") -> None:
        """Take over what is counted so far."""
        queries = dict(self._run.queries) | {name: _query(tally) for name, tally in tallies.items()}
        self._run = msgspec.structs.replace(self._run, queries=queries)

    def end(self, ending: Ending, problem: str = "") -> None:
        self._ended.set()
        self._thread.join()
        self._run = msgspec.structs.replace(self._run, ending=ending, problem=problem)
        self._write()

    def _repeat(self) -> None:
        self._write()
        while not self._ended.wait(_EVERY_S):
            self._write()

    def _write(self) -> None:
        try:
            now_ms = self._clock.now_ms()
            pipeline_runs.keep(self._directory, msgspec.structs.replace(self._run, at_ms=now_ms))
        except OSError as problem:
            self._tell(problem)

    def _tell(self, problem: OSError) -> None:
        if not self._is_told:
            self._is_told = True
            click.echo(f"warning: the console will not see this run: {problem}", err=True)


def _reported_group(options: Mapping[str, str]) -> str:
    """The group of the option `commitOffsets`."""
    given = {name.lower(): value for name, value in options.items()}
    if given.get("commitoffsets", "").lower() != "true":
        return ""
    return given.get("consumergroup", given.get("kafka.group.id", ""))


def _query(tally: "Tally") -> QueryRun:
    return QueryRun(
        rows_in=tally.rows_in,
        rows_out=tally.rows_out,
        expected=tally.expected,
        batches=tally.batches,
        rows_per_s=tally.rows_per_s,
        seconds=tally.seconds,
        watermark=tally.watermark,
        topics={name: TopicRun(topic.rows, topic.lag) for name, topic in tally.topics.items()},
    )


@contextmanager
def kept_run(
    directory: Path | None, job: str, place: str, options: Mapping[str, str], described: Callable[[str], str]
) -> "Iterator[KeptRun | None]":
    """Keep the file of a run while the block runs; none without a directory."""
    if directory is None:
        yield None
        return
    run = KeptRun(directory, job, place, options)
    run.start()
    try:
        yield run
    except (KeyboardInterrupt, SystemExit):
        run.end("ended")
        raise
    except BaseException as problem:
        run.end("failed", described(str(problem))[:_MAX_PROBLEM])
        raise
    run.end("ended")
