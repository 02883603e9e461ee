"""Exactly the messages of one span of offsets, in order, even if connections break on the way.

Several pulls are in flight; each asks for as many messages as the broker gave lately. Messages that an
answer leaves out are pulled again, so a wrong guess does no harm.
"""

import logging
from collections.abc import Iterator
from typing import NamedTuple

from pyromq.cluster.retry_table import is_passing
from pyromq.errors import PyroError, RemoteProtocolError
from pyromq.protocol.catalogue import decode_answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import LMQ_PREFIX
from pyromq.protocol.record import scan_record
from pyromq.protocol.requests.pulling import PullMessage, PullMessageAnswer
from pyromq.remoting.blocking_link import Link
from pyromq.spark.cluster import SparkCluster, pull_of
from pyromq.spark.compacted import is_compacted
from pyromq.spark.options import ReadOptions
from pyromq.spark.queues import Queue, Span

_log = logging.getLogger(__name__)

CHUNK_BYTES = 2 * 1024 * 1024
CHUNK_MESSAGES = 16_384
_FULL_ANSWERS_BEFORE_ASKING_FOR_MORE = 16


class DataLoss(PyroError):
    """Messages that should be read are gone."""


class Chunk(NamedTuple):
    """Stored records, one after the other, that hold the offsets from `start` to `end`."""

    bodies: list[memoryview]
    start: int
    end: int


class _Piece(NamedTuple):
    body: memoryview
    end: int


class Fetch:
    """Reads one span; iterate over it once."""

    def __init__(self, cluster: SparkCluster, span: Span, options: ReadOptions) -> None:
        self._cluster = cluster
        self._span = span
        self._options = options
        self._next = span.start
        """Everything before this offset has been handed out."""
        self._frontier = span.start
        """Everything before this offset has been asked for."""
        self._step = options.pull_messages
        self._full_answers = 0
        self._asked: dict[int, tuple[int, int]] = {}
        self._arrived: dict[int, _Piece] = {}
        self._in_flight = 1
        self._failures = 0

    def __repr__(self) -> str:
        return f"<Fetch {self._span} next={self._next} in_flight={len(self._asked)}>"

    def __iter__(self) -> Iterator[Chunk]:
        chunk: list[memoryview] = []
        start, size_bytes = self._next, 0
        for piece in self._pieces():
            chunk.append(piece.body)
            size_bytes += len(piece.body)
            if size_bytes >= CHUNK_BYTES or piece.end - start >= CHUNK_MESSAGES:
                yield Chunk(chunk, start, piece.end)
                chunk, start, size_bytes = [], piece.end, 0
        if chunk:
            yield Chunk(chunk, start, self._next)

    def _pieces(self) -> Iterator[_Piece]:
        """The chunks in order; after a lost connection the unanswered pulls are repeated."""
        while self._next < self._span.end:
            try:
                with self._cluster.links.borrow(self._cluster.address_to_read(self._span.queue)) as link:
                    yield from self._pieces_over(link)
            except PyroError as problem:
                if not is_passing(problem) or self._failures >= self._cluster.access.retries:
                    raise
                self._failures += 1
                _log.warning("pull failed, trying again span=%s next=%d: %s", self._span, self._next, problem)
                self._start_over()
                self._cluster.forget_routes()
                self._cluster.links.wait(self._cluster.access.retry_interval_ms / 1000)

    def _start_over(self) -> None:
        self._asked.clear()
        self._arrived.clear()
        self._frontier = self._next

    def _pieces_over(self, link: Link) -> Iterator[_Piece]:
        while self._next < self._span.end:
            self._ask_ahead(link)
            frame, body = link.receive()
            if frame.opaque not in self._asked:
                raise RemoteProtocolError(
                    f"{link.address} answered {frame.opaque}, which was never requested"
                )
            offset, messages = self._asked.pop(frame.opaque)
            answer = decode_answer(PullMessage, frame)
            self._take(link, offset, messages, answer, body)
            while (piece := self._arrived.pop(self._next, None)) is not None:
                self._next = piece.end
                if piece.body:
                    self._failures = 0
                    self._ask_ahead(link)
                    yield piece
            if not self._asked:
                # Where messages vanish, answers may leave a gap; the fetch asks for it again.
                self._start_over()

    def _ask_ahead(self, link: Link) -> None:
        while self._frontier < self._span.end and len(self._asked) < self._in_flight:
            messages = min(self._step, self._span.end - self._frontier)
            self._ask(link, self._frontier, messages)
            self._frontier += messages

    def _ask(self, link: Link, offset: int, messages: int) -> None:
        self._asked[link.send(self._pull(offset, messages))] = (offset, messages)

    def _pull(self, offset: int, messages: int) -> PullMessage:
        options = self._options
        return pull_of(
            self._span.queue,
            offset,
            messages,
            group=options.pull_group,
            tags=options.tags or "*",
            sql=options.sql,
        )

    def _take(
        self, link: Link, offset: int, messages: int, answer: PullMessageAnswer, body: memoryview
    ) -> None:
        if answer.code == ResponseCode.SUCCESS:
            end = answer.next_begin_offset
            if end <= offset:
                raise RemoteProtocolError(f"{self._span.queue}: a pull at {offset} continues at {end}")
            self._check_queue(body)
            self._arrived[offset] = _Piece(body, end)
            self._go_on(link, offset, messages, end)
        elif answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and self._options.is_filtered:
            end = max(answer.next_begin_offset, offset)
            if end > offset:
                self._arrived[offset] = _Piece(body[:0], end)
                self._go_on(link, offset, messages, end)
            else:
                self._wait_for(offset, "the broker made no progress")
                self._ask(link, offset, messages)
        else:
            self._missing(link, offset, messages, answer)

    def _check_queue(self, body: memoryview) -> None:
        """The first message shows which queue an answer is from; which offsets are there is seen when it is
        decoded."""
        queue = self._span.queue
        first = scan_record(body) if body and not queue.topic.startswith(LMQ_PREFIX) else None
        if first is None:
            return
        if (first.topic, first.queue_id) != (queue.topic, queue.queue_id):
            raise RemoteProtocolError(
                f"{queue}: a pull brought messages of {first.topic} queue {first.queue_id}"
            )

    def _go_on(self, link: Link, offset: int, messages: int, end: int) -> None:
        """Ask for what an answer left out, and learn from how much it gave."""
        if self._options.is_filtered:
            # A filtered answer does not say how far it reaches: the next pull starts where this one ended.
            self._frontier = max(end, self._next)
            return
        given, asked_to = end - offset, offset + messages
        self._in_flight = self._options.pulls_in_flight
        if end >= min(asked_to, self._span.end):
            self._full_answers += 1
            if self._full_answers >= _FULL_ANSWERS_BEFORE_ASKING_FOR_MORE:
                self._full_answers = 0
                self._step = min(self._step * 2, self._options.pull_messages)
        else:
            self._full_answers = 0
            self._step = max(given, 1)
            if self._asked:
                self._ask(link, end, asked_to - end)
            else:
                self._frontier = end

    def _missing(self, link: Link, offset: int, messages: int, answer: PullMessageAnswer) -> None:
        """The broker has no message at this offset: for the moment, or for good."""
        if offset != self._next:
            return  # asked for too early: its turn comes when everything before it is settled
        low, high = answer.min_offset, answer.max_offset
        if offset < low:
            self._lose(link, offset, messages, low, f"the queue begins at {low} now")
        elif answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and answer.next_begin_offset <= offset:
            # The broker mends a damaged queue: the message is there, and can be read in a moment.
            self._wait_for(offset, f"{answer.remark}")
            self._ask(link, offset, messages)
        elif answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            self._lose(link, offset, messages, answer.next_begin_offset, f"{answer.remark}")
        elif offset < high and answer.code == ResponseCode.PULL_OFFSET_MOVED:
            # The broker sends the group to another offset until it reads there: not what is read here.
            self._wait_for(offset, "the broker sends its readers elsewhere")
            with self._cluster.links.borrow(link.address) as other:
                other.call(self._pull(answer.next_begin_offset, 1))
            self._ask(link, offset, messages)
        elif self._failures < self._cluster.access.retries:
            # A replica may be behind its master, and a broker may be on its way up.
            self._wait_for(offset, f"the queue ends at {high} now")
            self._ask(link, offset, messages)
        else:
            end = answer.next_begin_offset if offset < high else self._span.end
            self._lose(link, offset, messages, end, f"the queue ends at {high} now")

    def _wait_for(self, offset: int, why: str) -> None:
        self._failures += 1
        if self._failures > self._cluster.access.retries:
            raise DataLoss(f"{self._span.queue} gives nothing at offset {offset}: {why}")
        _log.warning("waiting for messages span=%s offset=%d: %s", self._span, offset, why)
        self._cluster.links.wait(self._cluster.access.retry_interval_ms / 1000)

    def _lose(self, link: Link, offset: int, messages: int, end: int, why: str) -> None:
        end = min(max(end, offset + 1), self._span.end)
        if not is_compacted(self._cluster, self._span.queue):
            report_loss(self._span.queue, offset, end, why, fails=self._options.fail_on_data_loss)
        self._arrived[offset] = _Piece(memoryview(b""), end)
        self._frontier = max(self._frontier, end)
        if end < offset + messages:
            self._ask(link, end, offset + messages - end)


def report_loss(queue: Queue, start: int, end: int, why: str, *, fails: bool) -> None:
    """The messages from `start` to `end`, none of which was read, are gone."""
    lost = f"message {start}" if end == start + 1 else f"messages {start} to {end - 1}"
    verb = "is" if end == start + 1 else "are"
    report(f"{lost} of {queue} {verb} gone: {why}. Deleted before they were read", fails=fails)


def report(what: str, *, fails: bool) -> None:
    if fails:
        raise DataLoss(f"{what}. Read with failOnDataLoss=false to continue without them")
    _log.warning("data lost, reading on without it: %s", what)
