"""One load of a Kafka client, in a process of its own, like client_load.py for ours.

python -m benchmarks.kafka_load aiokafka|confluent send|batch BROKER TOPIC BODY_BYTES IN_FLIGHT WARM_UP_S
    SECONDS
python -m benchmarks.kafka_load aiokafka|confluent consume BROKER TOPIC GROUP WARM_UP TOTAL
python -m benchmarks.kafka_load confluent fill BROKER TOPIC BODY_BYTES TOTAL

It runs in a virtual environment that has the Kafka clients and nothing of ours. Settings are those of
client_load.py: one copy of each message, answered when the broker has it, one millisecond of lingering where
the client batches by itself.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from importlib import import_module
from typing import Any, Final

from benchmarks.marks import Marks

LINGER_MS: Final = 1
MAX_AT_ONCE: Final = 500
POLL_S: Final = 0.005


# aiokafka


async def aiokafka_send(
    mode: str, broker: str, topic: str, body_bytes: str, in_flight: str, warm_up_s: str, seconds: str
) -> dict[str, float]:
    aiokafka: Any = import_module("aiokafka")
    body = bytes(int(body_bytes))
    counts = {"sent": 0, "failed": 0}
    marks = Marks()
    linger_ms = LINGER_MS if mode == "batch" else 0
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker, acks=1, linger_ms=linger_ms) as producer:

        async def keep_sending() -> None:
            while True:
                try:
                    await producer.send_and_wait(topic, body)
                    counts["sent"] += 1
                except aiokafka.errors.KafkaError:
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


async def aiokafka_consume(
    mode: str, broker: str, topic: str, group: str, warm_up: str, total: str
) -> dict[str, float]:
    aiokafka: Any = import_module("aiokafka")
    marks = Marks()
    first, last = int(warm_up), int(total)
    count = 0
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=broker, group_id=group, auto_offset_reset="earliest"
    )
    async with consumer:
        async for _ in consumer:
            count += 1
            if count in (first, last):
                marks.set()
                if count == last:
                    break
    return marks.report(last - first)


# confluent-kafka


class ConfluentSending:
    """Keeps so many messages in flight."""

    def __init__(self, broker: str, topic: str, body_bytes: int, in_flight: int, linger_ms: int) -> None:
        confluent: Any = import_module("confluent_kafka")
        self._producer = confluent.Producer(
            {"bootstrap.servers": broker, "acks": 1, "linger.ms": linger_ms, "log_level": 3}
        )
        self._topic = topic
        self._body = bytes(body_bytes)
        self._room = in_flight
        self.sent = 0
        self.failed = 0

    def _delivered(self, problem: object, message: object) -> None:
        self._room += 1
        if problem is None:
            self.sent += 1
        else:
            self.failed += 1

    def until(self, deadline: float) -> None:
        producer = self._producer
        while time.perf_counter() < deadline:
            while self._room > 0:
                self._room -= 1
                producer.produce(self._topic, self._body, on_delivery=self._delivered)
            producer.poll(POLL_S)

    def send(self, total: int) -> None:
        for _ in range(total):
            while self._room <= 0:
                self._producer.poll(POLL_S)
            self._room -= 1
            self._producer.produce(self._topic, self._body, on_delivery=self._delivered)
        self.finish()

    def finish(self) -> None:
        self._producer.flush()


def confluent_send(
    mode: str, broker: str, topic: str, body_bytes: str, in_flight: str, warm_up_s: str, seconds: str
) -> dict[str, float]:
    linger_ms = LINGER_MS if mode == "batch" else 0
    sending = ConfluentSending(broker, topic, int(body_bytes), int(in_flight), linger_ms)
    marks = Marks()
    now = time.perf_counter()
    sending.until(now + float(warm_up_s))
    before = sending.sent
    marks.set()
    sending.until(now + float(warm_up_s) + float(seconds))
    marks.set()
    sent = sending.sent - before
    sending.finish()
    return marks.report(sent, sending.failed)


def confluent_consume(
    mode: str, broker: str, topic: str, group: str, warm_up: str, total: str
) -> dict[str, float]:
    confluent: Any = import_module("confluent_kafka")
    marks = Marks()
    first, last = int(warm_up), int(total)
    count = 0
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "log_level": 3,
        }
    )
    consumer.subscribe([topic])
    while count < last:
        for message in consumer.consume(MAX_AT_ONCE, 1.0):
            if message.error() is not None:
                raise RuntimeError(message.error())
            message.value()
            count += 1
            if count in (first, last):
                marks.set()
    consumer.close()
    return marks.report(last - first)


def confluent_fill(mode: str, broker: str, topic: str, body_bytes: str, total: str) -> dict[str, float]:
    marks = Marks()
    marks.set()
    ConfluentSending(broker, topic, int(body_bytes), 10_000, LINGER_MS).send(int(total))
    marks.set()
    return marks.report(int(total))


def main(client: str, mode: str, *words: str) -> None:
    if client == "aiokafka":
        load: Any = aiokafka_consume if mode == "consume" else aiokafka_send
        uvloop: Any = import_module("uvloop")
        figures = uvloop.run(load(mode, *words))
    else:
        loads: dict[str, Any] = {"consume": confluent_consume, "fill": confluent_fill}
        figures = loads.get(mode, confluent_send)(mode, *words)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
