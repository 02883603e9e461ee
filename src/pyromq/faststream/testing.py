"""A broker in memory, for tests of applications: handlers run where `publish` is called."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from faststream._internal.parser import DefaultCodec
from faststream._internal.testing.broker import TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from pyromq.chance import uuid
from pyromq.client.consumer.reading.subscriptions import Sql, Subscription
from pyromq.client.prepared_messages import MessagePreparer
from pyromq.client.values import Message, MessageQueue, ReceivedMessage
from pyromq.clock import clock_of
from pyromq.faststream.broker import RocketBroker
from pyromq.faststream.commands import RocketCommand
from pyromq.faststream.producer import RocketProducer, message_of
from pyromq.faststream.publisher import TopicPublisher
from pyromq.faststream.subscriber import TopicSubscriber
from pyromq.filtering.json_body import MessageWithBody
from pyromq.filtering.sql_parser import compile_sql
from pyromq.protocol.record import StoredMessage


class TestRocketBroker(TestBroker[RocketBroker, Any], broker=RocketBroker):
    """`async with TestRocketBroker(broker) as tested: await tested.publish(…)`: no cluster is needed.

    Messages are checked as a producer checks them, and reach one subscriber of each group.
    """

    def create_publisher_fake_subscriber(
        self, broker: RocketBroker, publisher: TopicPublisher
    ) -> tuple[TopicSubscriber, bool]:
        for subscriber in _subscribers(self.brokers):
            if subscriber.topic == publisher.topic:
                return subscriber, True
        return broker.subscriber(publisher.topic, persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: RocketBroker) -> Iterator[None]:
        config = broker.config.broker_config
        config.is_in_memory = True
        try:
            with change_producer(config, MemoryProducer(broker, self.brokers)):
                yield
        finally:
            config.is_in_memory = False

    async def _fake_connect(self, broker: RocketBroker, *args: Any, **kwargs: Any) -> Any:
        return broker._new_link()


class MemoryProducer(RocketProducer):
    def __init__(self, broker: RocketBroker, brokers: Sequence[RocketBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)
        self.broker, self.brokers = broker, brokers
        self.codec = broker.config.broker_codec or DefaultCodec()

    async def _received(self, cmd: RocketCommand) -> ReceivedMessage:
        message = await message_of(cmd, self.codec, self.broker.config.fd_config._serializer)
        return received(message)

    def _handlers(self, message: ReceivedMessage) -> Iterator[TopicSubscriber]:
        groups = set()
        for subscriber in _subscribers(self.brokers):
            if _wants(subscriber, message) and subscriber.group not in groups:
                groups.add(subscriber.group)
                yield subscriber

    async def publish(self, cmd: RocketCommand) -> None:
        message = await self._received(cmd)
        for subscriber in list(self._handlers(message)):
            await subscriber.process_message(message)

    async def request(self, cmd: RocketCommand) -> ReceivedMessage:
        message = await self._received(cmd)
        for subscriber in self._handlers(message):
            async with asyncio.timeout(cmd.timeout_s):
                result = await subscriber.process_message(message)
            reply = RocketCommand.from_cmd(result.as_publish_command())
            reply.destination = cmd.destination
            return await self._received(reply)
        raise SubscriberNotFound(f"no subscriber reads {cmd.destination}")


def received(message: Message) -> ReceivedMessage:
    """The message as a consumer gets it; raises BadMessage if a producer would."""
    now_ms = clock_of(asyncio.get_running_loop()).now_ms()
    prepared = MessagePreparer().prepare(message, str(uuid()), now_ms, compress=False)
    stored = StoredMessage(
        topic=message.topic,
        body=prepared.body,
        properties=prepared.properties.encode(),
        born_timestamp=now_ms,
        store_timestamp=now_ms,
    )
    return ReceivedMessage(stored, MessageQueue(topic=message.topic, broker_name="memory", queue_id=0))


def _subscribers(brokers: Sequence[RocketBroker]) -> Iterator[TopicSubscriber]:
    for broker in brokers:
        for subscriber in broker.subscribers:
            assert isinstance(subscriber, TopicSubscriber), subscriber
            yield subscriber


def _wants(subscriber: TopicSubscriber, message: ReceivedMessage) -> bool:
    if subscriber.topic != message.topic:
        return False
    wanted = subscriber.options.tags
    if isinstance(wanted, Sql):
        return compile_sql(wanted.text).matches(MessageWithBody(message.properties, lambda: message.body))
    return Subscription.of(subscriber.topic, wanted, 0).wants(message.tags)
