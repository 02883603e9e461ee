"""`pyromq produce` sends stdin to a topic, and names every line that could not be sent."""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import IO

import click

from pyromq.cli.cluster_options import ClusterOptions, cluster_options
from pyromq.cli.moments import DURATIONS, MOMENTS, duration_ms, moment_ms
from pyromq.cli.outgoing import InputLines, OutgoingLine, Template, property_map, slices
from pyromq.cli.queue_names import one_queue
from pyromq.cli.rate_line import RateLine
from pyromq.cli.signals import exit_on_signals
from pyromq.client.blocking import SIGNAL_LOOK_S, LoopThread
from pyromq.client.producer import Producer
from pyromq.client.producer_settings import ProducerOptions
from pyromq.client.values import MessageQueue, SendResult
from pyromq.clock import SystemClock
from pyromq.errors import BadMessage, PyroError
from pyromq.protocol.compression import Compression

GROUP = "pyromq-produce"

_PARTS_IN_FLIGHT = 4
_SLICES_A_SECOND = 20
_MAX_TOGETHER = 256
_SHOWN_FAILURES = 5
_NEVER_BYTES = 2**31 - 1

Part = list[OutgoingLine]


@dataclass(slots=True)
class LineOutcome:
    sent: int = 0
    sent_bytes: int = 0
    unsafe: int = 0
    handles: list[str] = field(default_factory=list)
    """The recall handles of the messages, if they are wanted and the broker gave them."""
    failures: list[tuple[str, PyroError]] = field(default_factory=list)


class LineSending:
    """Hands messages to the producer's thread in parts, counts the results and prints recall handles."""

    def __init__(
        self,
        thread: LoopThread,
        producer: Producer,
        queue: MessageQueue | None,
        rate: RateLine,
        *,
        prints_handles: bool,
    ) -> None:
        self._thread = thread
        self._producer = producer
        self._queue = queue
        self._rate = rate
        self._prints_handles = prints_handles
        self._printed = 0
        self._under_way: deque[Future[LineOutcome]] = deque()
        self.total = LineOutcome()

    def __repr__(self) -> str:
        return f"<LineSending parts={len(self._under_way)} sent={self.total.sent} failed={self.has_failed}>"

    @property
    def has_failed(self) -> bool:
        return bool(self.total.failures)

    def send(self, part: Part, *, is_awaited: bool = False) -> None:
        """Returns when more may be sent; with `is_awaited`, when these messages have their results."""
        self._under_way.append(self._thread.start(self._send, part))
        while len(self._under_way) > (0 if is_awaited else _PARTS_IN_FLIGHT):
            self._take_first()

    def finish(self) -> None:
        while self._under_way:
            self._take_first()

    def remark(self) -> str:
        """The final line's addition to the count."""
        text = ""
        if unsafe := self.total.unsafe:
            text += f"; {unsafe:,} of them are not flushed or replicated as the broker's settings require"
        if self._prints_handles and (others := self.total.sent - self._printed):
            text += f"; {others:,} of them cannot be taken back: not timed, or the broker is older than 5.3"
        return text

    def _take_first(self) -> None:
        outcome = self._under_way[0].result()
        self._under_way.popleft()
        self.total.sent += outcome.sent
        self.total.sent_bytes += outcome.sent_bytes
        self.total.unsafe += outcome.unsafe
        self.total.failures += outcome.failures
        for handle in outcome.handles:
            click.echo(handle)
        self._printed += len(outcome.handles)
        self._rate.add(outcome.sent, outcome.sent_bytes)

    async def _send(self, part: Part) -> LineOutcome:
        results = await asyncio.gather(*map(self._send_one, part), return_exceptions=True)
        outcome = LineOutcome()
        for each, result in zip(part, results, strict=True):
            if isinstance(result, SendResult):
                outcome.sent += 1
                outcome.sent_bytes += len(each.message.body)
                outcome.unsafe += not result.is_ok
                if self._prints_handles and result.recall_handle is not None:
                    outcome.handles.append(result.recall_handle)
            elif isinstance(result, PyroError):
                outcome.failures.append((each.where, result))
            else:
                raise result
        return outcome

    async def _send_one(self, each: OutgoingLine) -> SendResult:
        if self._queue is None and each.sharding_key is None:
            return await self._producer.send(each.message)  # by the compiled path
        return await self._producer.send(each.message, queue=self._queue, sharding_key=each.sharding_key)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("topic")
@cluster_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help="Content of a line of stdin: a body, or an object with body, key, tags, properties, delayLevel …",
)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Send this file as one body, instead of the lines of stdin.",
)
@click.option(
    "-K", "--key-delimiter", metavar="TEXT", help="Separator between the key of a line and its body."
)
@click.option("-k", "--key", "keys", multiple=True, help="A key of every message; repeatable.")
@click.option("--tags", help="The tag of every message.")
@click.option("-H", "--property", "properties", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("-p", "--queue", metavar="[BROKER:]ID", help="Send everything to this queue.")
@click.option("--sharding-key", help="Send everything to the queue that this key chooses.")
@click.option("--delay", metavar="TIME", help=f"Delay of every message: {DURATIONS}.")
@click.option("--at", metavar="TIME", help=f"Deliver every message at {MOMENTS}.")
@click.option(
    "--handles", is_flag=True, help="Print the recall handle of each timed message, for `pyromq recall`."
)
@click.option(
    "-c",
    "--count",
    type=click.IntRange(min=1),
    help="Stop after this many messages; with --file, send it this many times.",
)
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), help="The maximum number of messages per second."
)
@click.option(
    "--linger",
    type=click.FloatRange(0, 30_000),
    metavar="MS",
    help="How long a message waits to be batched with others; 0 batches only lines that are read together.",
)
@click.option(
    "--compress",
    type=click.Choice(["none", *(kind.name.lower() for kind in Compression)]),
    help="How to compress every body; without it, zlib for bodies of 4 KiB or more.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    default=3.0,
    show_default=True,
    help="A message that is not sent after this time has failed, retries included.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing unless something fails.")
def produce(
    topic: str,
    cluster: ClusterOptions,
    form: str,
    file: Path | None,
    key_delimiter: str | None,
    keys: tuple[str, ...],
    tags: str | None,
    properties: tuple[str, ...],
    queue: str | None,
    sharding_key: str | None,
    delay: str | None,
    at: str | None,
    handles: bool,
    count: int | None,
    rate: float | None,
    linger: float | None,
    compress: str | None,
    timeout: float,
    quiet: bool,
) -> None:
    """Send messages to TOPIC, one for each line of stdin.

    The command stops at the first message that cannot be sent, prints the reason and exits with 1.

    \b
    Examples:
      echo hello | pyromq produce Orders -n 127.0.0.1:9876
      pyromq produce Orders -K : --tags Paid < orders.txt
      pyromq consume Orders --format json | pyromq produce Copies --format json
      pyromq produce Photos --file cat.jpg --count 1000 --rate 50
      echo hello | pyromq produce Reminders --at 2026-12-24T18:00 --handles
    """
    if queue is not None and sharding_key is not None:
        raise click.UsageError("give --queue or --sharding-key, not both")
    if file is not None and (form == "json" or key_delimiter is not None):
        raise click.UsageError(
            "--file sends one body unchanged: --format and --key-delimiter apply to lines of stdin"
        )
    if form == "json" and key_delimiter is not None:
        raise click.UsageError('--key-delimiter applies to lines of text: in JSON, use "key"')
    times = _times(delay, at, SystemClock().now_ms())
    template = Template(topic, tags, keys, property_map(properties), sharding_key, *times)
    stdin = sys.stdin.buffer
    if file is not None:
        parts, lines = _copies(template, file, count or 1), None
    else:
        lines = InputLines(stdin)
        parts = _read(lines, _reader(template, form, key_delimiter), count)
    if rate is not None:
        parts = _paced(parts, rate)
    line = RateLine("sent", is_live=True, is_quiet=quiet)
    with exit_on_signals(), cluster.explained():
        options = _options(linger, compress, timeout)
        total = _send_all(
            cluster,
            options,
            topic,
            queue,
            parts,
            line,
            is_awaited=_is_typed(stdin, file),
            prints_handles=handles,
        )
    if total.failures:
        raise click.ClickException(_failure_text(total.failures, cluster))
    if lines is not None and lines.number == 0 and not quiet:
        click.echo("stdin was empty", err=True)


def _send_all(
    cluster: ClusterOptions,
    options: ProducerOptions,
    topic: str,
    queue_name: str | None,
    parts: Iterable[Part],
    rate: RateLine,
    *,
    is_awaited: bool,
    prints_handles: bool,
) -> LineOutcome:
    thread = LoopThread.shared()
    producer = Producer(GROUP, cluster.namesrv, **(cluster.options | options))
    thread.run(producer.start)
    sending: LineSending | None = None
    try:
        queue = None if queue_name is None else one_queue(queue_name, thread.run(producer.queues, topic))
        sending = LineSending(thread, producer, queue, rate, prints_handles=prints_handles)
        try:
            for part in parts:
                sending.send(part, is_awaited=is_awaited)
                if sending.has_failed:
                    break
        except BadMessage as problem:
            sending.total.failures.append(("", problem))
        sending.finish()
        return sending.total
    finally:
        try:
            thread.run(producer.close)
            if sending is not None:
                sending.finish()
        finally:
            if sending is not None and not (sending.has_failed and rate.messages == 0):
                rate.end(sending.remark())


def _options(linger: float | None, compress: str | None, timeout_s: float) -> ProducerOptions:
    options = ProducerOptions(linger_ms=linger, send_timeout_s=timeout_s)
    if compress == "none":
        options["compress_from_bytes"] = _NEVER_BYTES
    elif compress is not None:
        options["compress_from_bytes"] = 1
        options["compression"] = Compression[compress.upper()]
    return options


# Messages to send


def _times(delay: str | None, at: str | None, now_ms: int) -> tuple[int | None, int | None]:
    """The delay and the time of delivery, in milliseconds; one of them at most."""
    if delay is not None and at is not None:
        raise click.UsageError("give --delay or --at, not both")
    delay_ms = at_ms = None
    if delay is not None and (delay_ms := duration_ms(delay)) is None:
        raise click.UsageError(f"--delay {delay}: expected {DURATIONS}")
    if at is not None:
        if (at_ms := moment_ms(at)) is None:
            raise click.UsageError(f"--at {at}: expected {MOMENTS}")
        if at_ms < now_ms:
            raise click.UsageError(f"--at {at} is in the past: brokers would deliver at once")
    return delay_ms, at_ms


def _reader(template: Template, form: str, key_delimiter: str | None) -> Callable[[bytes, str], OutgoingLine]:
    if form == "json":
        return template.from_json
    delimiter = key_delimiter.encode() if key_delimiter else None
    return lambda line, where: template.from_line(line, where, delimiter)


def _read(lines: InputLines, read: Callable[[bytes, str], OutgoingLine], count: int | None) -> Iterator[Part]:
    left = count if count is not None else sys.maxsize
    for numbered in lines:
        part: Part = []
        problem: BadMessage | None = None
        for where, line in numbered[:left]:
            try:
                part.append(read(line, where))
            except BadMessage as mistake:
                problem = mistake
                break
        yield part  # the messages before the bad line are sent
        if problem is not None:
            raise problem
        left -= len(part)
        if left <= 0:
            return


def _copies(template: Template, file: Path, count: int) -> Iterator[Part]:
    one = template.message(file.read_bytes(), str(file))
    while count > 0:
        part = list(repeat(one, min(count, _MAX_TOGETHER)))
        count -= len(part)
        yield part


def _paced(parts: Iterable[Part], rate: float) -> Iterator[Part]:
    """The same messages, at most this many per second."""
    size = max(1, min(int(rate / _SLICES_A_SECOND), _MAX_TOGETHER))
    due = time.monotonic()
    for part in parts:
        for some in slices(part, size):
            while (left_s := due - time.monotonic()) > 0:
                time.sleep(min(left_s, SIGNAL_LOOK_S))
            due = max(due, time.monotonic() - 1 / _SLICES_A_SECOND) + len(some) / rate
            yield some


def _is_typed(stdin: IO[bytes], file: Path | None) -> bool:
    """Someone who types wants the result of a line before typing the next."""
    return file is None and stdin.isatty()


# Reports


def _failure_text(failures: list[tuple[str, PyroError]], cluster: ClusterOptions) -> str:
    """Each reason once, with the first line it applies to."""
    places: dict[str, list[str]] = {}
    for where, problem in failures:
        places.setdefault(cluster.explanation(problem), []).append(where)
    texts = []
    for text, found in list(places.items())[:_SHOWN_FAILURES]:
        others = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
        texts.append(f"{found[0]}{others}: {text}" if found[0] else text)
    if len(places) > _SHOWN_FAILURES:
        texts.append(f"and {len(places) - _SHOWN_FAILURES} more reasons")
    return "some messages were not sent; " + "; ".join(texts)
