"""The official Python client of RocketMQ 5 in one role, with its defaults; prints a JSON line for each event.

    python roles.py ENDPOINTS ROLE TOPIC [GROUP] [ARGUMENTS]

It runs in an environment of its own, in which `rocketmq-python-client` is installed and PyroMQ is not.
"""

import json
import os
import sys
import time
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    LitePushConsumer,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType


def say(what: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"what": what, **values}) + "\n")
    sys.stdout.flush()


def message(topic: str, body: str, **parts: Any) -> Message:
    made = Message()
    made.topic = topic
    made.body = body.encode()
    made.keys = f"key-{body}"
    made.add_property("sent-by", "python5")
    for name, value in parts.items():
        setattr(made, name, value)
    return made


def shown(received: Any) -> dict[str, Any]:
    return {
        "body": received.body.decode(),
        "tag": received.tag,
        "group": received.message_group,
        "lite": received.lite_topic,
        "attempt": received.delivery_attempt,
        "properties": dict(received.properties),
    }


class Checker(TransactionChecker):
    def check(self, half: Message) -> Any:
        say("checked", body=half.body.decode())
        return TransactionResolution.COMMIT


def produce(configuration: ClientConfiguration, topic: str, kind: str, count: str = "1") -> None:
    is_transaction = kind in ("commit", "rollback", "check")
    producer = Producer(configuration, (topic,), checker=Checker() if is_transaction else None)
    producer.startup()
    for number in range(int(count)):
        body = f"{kind}-{number}"
        if is_transaction:
            transaction = producer.begin_transaction()
            receipt = producer.send(message(topic, body), transaction)
            if kind != "check":
                getattr(transaction, kind)()
        elif kind == "fifo":
            receipt = producer.send(message(topic, body, message_group=f"group-{number % 2}"))
        elif kind in ("delay", "recall"):
            wait_s = 2 if kind == "delay" else 3600
            receipt = producer.send(message(topic, body, delivery_timestamp=int(time.time()) + wait_s))
            if kind == "recall":
                producer.recall_message(topic, receipt.recall_handle)
                say("recalled")
        elif kind == "lite":
            receipt = producer.send(message(topic, body, lite_topic=f"session-{number % 2}"))
        elif kind == "steady":
            receipt = until_stored(producer, message(topic, body))
        else:
            receipt = producer.send(message(topic, body, tag="even" if number % 2 == 0 else "odd"))
        say("sent", id=receipt.message_id, body=body)
    say("ready")
    sys.stdin.readline()
    producer.shutdown()


def until_stored(producer: Producer, sent: Message) -> Any:
    """What an application does that must not lose a message: it tries again."""
    while True:
        try:
            return producer.send(sent)
        except Exception as problem:
            say("again", why=str(problem)[:200])
            time.sleep(0.2)


def simple(configuration: ClientConfiguration, topic: str, group: str, count: str, how: str = "ack") -> None:
    consumer = SimpleConsumer(configuration, group, {topic: FilterExpression("*")})
    consumer.startup()
    say("ready")
    left, invisible_s = int(count), 15
    while left:
        for received in consumer.receive(16, invisible_s):
            say("received", **shown(received))
            if how == "nack" and received.delivery_attempt == 1:
                consumer.change_invisible_duration(received, 1)
                continue
            consumer.ack(received)
            left -= 1
    say("done")
    sys.stdin.readline()
    consumer.shutdown()


class Listener(MessageListener):
    def __init__(self, how: str) -> None:
        self._how = how

    def consume(self, received: Any) -> Any:
        say("received", **shown(received))
        if self._how == "fail" or (self._how == "fail once" and received.delivery_attempt == 1):
            return ConsumeResult.FAILURE
        return ConsumeResult.SUCCESS


def push(
    configuration: ClientConfiguration, topic: str, group: str, expression: str = "*", how: str = "ok"
) -> None:
    kind = FilterType.SQL if "=" in expression else FilterType.TAG
    consumer = PushConsumer(configuration, group, Listener(how), {topic: FilterExpression(expression, kind)})
    consumer.startup()
    say("ready")
    sys.stdin.readline()
    consumer.shutdown()


def lite(configuration: ClientConfiguration, topic: str, group: str, lite_topic: str) -> None:
    consumer = LitePushConsumer(configuration, group, topic, Listener("fail once"))
    consumer.startup()
    consumer.subscribe_lite(lite_topic)
    say("ready")
    sys.stdin.readline()
    consumer.shutdown()


if __name__ == "__main__":
    endpoints, role, *arguments = sys.argv[1:]
    keys = Credentials(os.environ.get("PEER_ACCESS_KEY", ""), os.environ.get("PEER_SECRET_KEY", ""))
    chosen = ClientConfiguration(endpoints, keys)
    try:
        {"produce": produce, "simple": simple, "push": push, "lite": lite}[role](chosen, *arguments)
    except Exception as problem:
        say("failed", error=repr(problem))
        os._exit(1)  # its threads go on trying
