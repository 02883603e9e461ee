"""A streaming query of Spark: every offset is in one micro-batch, and a batch that is repeated is the same.

The driver side and the reads are those of the connector. Spark's part is played here: it journals the end of
a batch before it runs it, and repeats the last one after a restart. Its checkpoint is on another machine.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator

from pyspark.sql.streaming.datasource import ReadMaxRows
from tests.campaign.history import Delivered
from tests.simulation.blocking import BlockingCode
from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad

from pyromq.errors import PyroError
from pyromq.protocol.record import decode_records
from pyromq.remoting.blocking_link import Links
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.fetch import DataLoss, Fetch
from pyromq.spark.offsets import FIRST, Offset, ends_of, spans_between
from pyromq.spark.options import read_options
from pyromq.spark.progress import StreamProgress
from pyromq.spark.queues import Queue

_GROUP = "spark"
_MAX_ROWS = 300
_TIMEOUT_MS = 1500
_RESTART_S, _LONGEST_S = 1.0, 0.3

Rows = list[tuple[Queue, int, str]]
"""Queue, offset and body of each."""


class SourcedLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP, commits=False)
        self._journal: list[Offset] = [FIRST]
        """Where batches end, beginning with the start of the first one."""
        self._batches: list[Rows] = []
        self._read: dict[int, Rows] = {}
        self.sender("producer", self.produce("p"))
        self.member("driver", self._drive)

    async def _drive(self) -> None:
        while True:
            code = BlockingCode()
            try:
                await code.run(lambda: self._run(code))  # noqa: B023
            except DataLoss as problem:
                if not self.cluster.plan.acknowledges_alone:
                    self.recorder.violation("a query lost data", str(problem))
                return
            except PyroError:
                await asyncio.sleep(_RESTART_S)

    def _run(self, code: BlockingCode) -> None:
        """Until something fails, in a thread."""
        text = {
            "namesrv": self.cluster.name_server_address,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "pollTimeoutMs": str(_TIMEOUT_MS),
        }
        options = read_options(text, streaming=True)
        cluster = SparkCluster(options.access, Links(code.link_options(_TIMEOUT_MS)))
        progress = StreamProgress(options, cluster, self.cluster.loop.clock)
        while True:
            if len(self._batches) == len(self._journal) - 1:
                end = progress.latest(self._journal[-1], ReadMaxRows(_MAX_ROWS))
                if end == self._journal[-1]:
                    continue
                self._journal.append(end)
            number = len(self._batches)
            start, end = self._journal[number : number + 2]
            rows = [
                (span.queue, message.queue_offset, message.body.decode())
                for span in spans_between(start, end)
                for chunk in Fetch(cluster, span, options)
                for body in chunk.bodies
                for message in decode_records(body)
            ]
            if self._read.setdefault(number, rows) != rows:
                self.recorder.violation("a repeated batch differs", f"batch {number}")
            code.wait(self.chance.uniform(0.0, _LONGEST_S))  # a sink writes it
            self._ended(rows)
            progress.finished(ends_of(end))

    def _ended(self, rows: Rows) -> None:
        self._batches.append(rows)
        for queue, offset, body in rows:
            at_s = self.recorder.now_s
            self.history.delivered.append(Delivered(body, _GROUP, queue.queue_id, offset, at_s, False))
            self._got[_GROUP].add(body)
        self.recorder.totals.delivered += len(rows)

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        yield from super().judge(contents)
        yield from self._misread()

    def judge_what_is_left(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        return iter(())  # a query whose messages are gone stops

    def _misread(self) -> Iterator[tuple[str, str]]:
        ends: dict[Queue, int] = defaultdict(int)
        for number, rows in enumerate(self._batches):
            for queue, offset, body in rows:
                if offset != ends[queue]:
                    text = f"batch {number} has {body!r} at {offset} of {queue}, after {ends[queue] - 1}"
                    yield "a batch skips or repeats", text
                ends[queue] = offset + 1
            for queue, end in ends_of(self._journal[number + 1]).items():
                if ends[queue] != end:
                    text = f"batch {number} ends at {ends[queue]} of {queue}, and should at {end}"
                    yield "a batch skips or repeats", text
