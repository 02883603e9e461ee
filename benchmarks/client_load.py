"""One load of our client, in a process of its own, so that its CPU time is the client's alone.

python -m benchmarks.client_load send|batch NAMESRV TOPIC BODY_BYTES IN_FLIGHT WARM_UP_S SECONDS
python -m benchmarks.client_load block|bare NAMESRV TOPIC BODY_BYTES THREADS WARM_UP_S SECONDS
python -m benchmarks.client_load consume[-plain|-stream|-lists] NAMESRV TOPIC GROUP WARM_UP TOTAL
python -m benchmarks.client_load fill NAMESRV TOPIC BODY_BYTES TOTAL

prints one line of JSON; ClientLoad.java is the same for Apache's client.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvloop
from benchmarks.marks import Marks

from pyromq import Message, Producer, PyroError, aio
from pyromq.client.values import ReceivedMessage
from pyromq.protocol import names
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.framing import DEFAULT_MAX_FRAME_BYTES, encode_head
from pyromq.protocol.requests.routes import GetRoute
from pyromq.protocol.requests.sending import SendMessageV2
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.blocking_link import Link, LinkOptions

LINGER_MS: Final = 1.0
GROUP: Final = "client_load"
LIST_MESSAGES: Final = 256


async def send(
    mode: str, namesrv: str, topic: str, body_bytes: str, in_flight: str, warm_up_s: str, seconds: str
) -> dict[str, float]:
    message = Message(topic, bytes(int(body_bytes)))
    counts = {"sent": 0, "failed": 0}
    marks = Marks()
    linger_ms = LINGER_MS if mode == "batch" else None
    async with aio.Producer(GROUP, namesrv, linger_ms=linger_ms, send_timeout_s=10) as producer:

        async def keep_sending() -> None:
            while True:
                try:
                    await producer.send(message)
                    counts["sent"] += 1
                except PyroError:
                    counts["failed"] += 1

        senders = [asyncio.create_task(keep_sending()) for _ in range(int(in_flight))]
        await asyncio.sleep(float(warm_up_s))
        before = counts["sent"]
        marks.set()
        await asyncio.sleep(float(seconds))
        marks.set()
        sent = counts["sent"] - before
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
    return marks.report(sent, counts["failed"])


def request_of(namesrv: str, topic: str, body: bytes) -> tuple[tuple[str, int], bytes]:
    """The address of a topic's broker, and a request that sends a message there."""
    link = Link(namesrv, LinkOptions())
    route = link.call(GetRoute(topic=topic)).body
    link.close()
    [broker] = route.broker_datas
    request = SendMessageV2(
        producer_group=GROUP,
        topic=topic,
        default_topic=names.AUTO_CREATE_TOPIC,
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties="",
        target_broker_name=broker.broker_name,
        body=body,
    )
    frame = encode_request(request, 1)
    return parse_address(broker.broker_addrs[0]), encode_head(
        frame, len(body), DEFAULT_MAX_FRAME_BYTES
    ) + body


def bare_socket(namesrv: str, topic: str, body: bytes) -> Iterator[Callable[[], object]]:
    """Sends one and the same request, and reads answers without a look at them."""
    address, request = request_of(namesrv, topic, body)
    with socket.create_connection(address) as connected:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send() -> None:
            connected.sendall(request)
            connected.recv(16384)

        yield send


def blocking_producer(namesrv: str, topic: str, body: bytes) -> Iterator[Callable[[], object]]:
    message = Message(topic, body)
    with Producer(GROUP, namesrv, send_timeout_s=10) as producer:
        yield lambda: producer.send(message)


def block(
    mode: str, namesrv: str, topic: str, body_bytes: str, threads: str, warm_up_s: str, seconds: str
) -> dict[str, float]:
    """Called in a loop by each thread: a blocking producer, or a bare socket, which is for one thread. Tells
    the median of the latencies, too."""
    marks = Marks()
    is_over = False
    sent: list[list[float]] = []

    def keep_sending(latencies: list[float]) -> None:
        while not is_over:
            began = time.perf_counter()
            send_one()
            latencies.append(time.perf_counter() - began)

    sender_of = contextmanager(bare_socket if mode == "bare" else blocking_producer)
    with sender_of(namesrv, topic, bytes(int(body_bytes))) as send_one:
        senders = []
        for _ in range(int(threads)):
            sent.append([])
            senders.append(threading.Thread(target=keep_sending, args=(sent[-1],)))
            senders[-1].start()
        time.sleep(float(warm_up_s))
        before = [len(each) for each in sent]
        marks.set()
        time.sleep(float(seconds))
        marks.set()
        measured = [each for part, start in zip(sent, before, strict=True) for each in part[start:]]
        is_over = True
        for sender in senders:
            sender.join()
    return marks.report(len(measured)) | {"p50_us": statistics.median(measured) * 1e6}


async def consume(
    mode: str, namesrv: str, topic: str, group: str, warm_up: str, total: str
) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    lock = threading.Lock()
    marks = Marks()
    first, last = int(warm_up), int(total)
    count = 0

    def take() -> None:
        nonlocal count
        count += 1
        if count in (first, last):
            marks.set()
            if count == last:
                loop.call_soon_threadsafe(done.set)

    async def handle(message: ReceivedMessage) -> None:
        take()

    def handle_plainly(message: ReceivedMessage) -> None:
        with lock:
            take()

    async def handle_many(messages: list[ReceivedMessage]) -> None:
        nonlocal count
        before, count = count, count + len(messages)
        if before < first <= count:
            marks.set()
        if before < last <= count:
            marks.set()
            done.set()

    batch_size = LIST_MESSAGES if mode == "consume-lists" else None
    consumer = aio.PushConsumer(group, namesrv, start_from="first", batch_size=batch_size)
    if mode == "consume-stream":
        stream = consumer.subscribe(topic)
        async with consumer:
            async for _ in stream:
                take()
                if count == last:
                    break
    else:
        handlers: dict[str, Any] = {"consume": handle, "consume-lists": handle_many}
        consumer.subscribe(topic, "*", handlers.get(mode, handle_plainly))
        async with consumer:
            await done.wait()
    return marks.report(last - first)


async def fill(mode: str, namesrv: str, topic: str, body_bytes: str, total: str) -> dict[str, float]:
    message = Message(topic, bytes(int(body_bytes)))
    marks = Marks()
    marks.set()
    async with aio.Producer(GROUP, namesrv, send_timeout_s=30) as producer:
        left = int(total)
        while left > 0:
            await producer.send([message] * min(left, 500))
            left -= 500
    marks.set()
    return marks.report(int(total))


def main(mode: str, *words: str) -> None:
    if mode in ("block", "bare"):
        print(json.dumps(block(mode, *words)))
        return
    loads = {"send": send, "batch": send, "fill": fill}
    load: Any = loads.get(mode, consume)
    work: Coroutine[Any, Any, dict[str, float]] = load(mode, *words)
    print(json.dumps(uvloop.run(work)))


if __name__ == "__main__":
    main(*sys.argv[1:])
