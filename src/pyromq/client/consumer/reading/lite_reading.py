"""Popping from lite topics: as from a topic, but the broker knows which of them this client reads."""

from collections.abc import Iterable

from pyromq.client.consumer.reading.popping import ANY_QUEUE, PoppedMessage, PopReading
from pyromq.client.consumer.reading.subscriptions import Subscription
from pyromq.client.values import MessageQueue
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message import open_message
from pyromq.protocol.popped import lite_records
from pyromq.protocol.requests.lite import PopLiteMessage, PopLiteMessageAnswer
from pyromq.protocol.requests.popping import AckMessage, ChangeInvisibleTime


class LitePopReading(PopReading):
    async def pop(
        self,
        broker_name: str,
        subscription: Subscription,
        limit: int,
        invisible_s: float,
        wait_s: float,
        queue_id: int = ANY_QUEUE,
        attempt_id: str | None = None,
    ) -> list[PoppedMessage]:
        """Messages of each lite topic are in order: the next ones come when these are acknowledged."""
        request = PopLiteMessage(
            client_id=self._session.client_id,
            consumer_group=self._group,
            topic=subscription.topic,
            max_msg_num=limit,
            invisible_time=round(invisible_s * 1000),
            poll_time=round(wait_s * 1000),
            born_time=self._session.clock.now_ms(),
            attempt_id=attempt_id,
            target_broker_name=broker_name,
        )
        answer = await self._session.call(self._address(broker_name), request, wait_s + self._timeout_s)
        return self._popped(broker_name, subscription, answer) if answer.code == ResponseCode.SUCCESS else []

    def _popped(
        self, broker_name: str, subscription: Subscription, answer: PopLiteMessageAnswer
    ) -> list[PoppedMessage]:
        shown, found = self._session.unwrap(subscription.topic), list[PoppedMessage]()
        queue = MessageQueue(topic=subscription.topic, broker_name=broker_name, queue_id=0)
        for record, _, receipt in lite_records(answer, broker_name):
            (opened,) = open_message(record)
            found.append(PoppedMessage(opened, queue, shown, receipt))
        return found

    def _ack_request(self, message: PoppedMessage) -> AckMessage:
        asked = super()._ack_request(message)
        asked.lite_topic = message.lite_topic
        return asked

    def _change_request(self, message: PoppedMessage, seconds: float) -> ChangeInvisibleTime:
        asked = super()._change_request(message, seconds)
        asked.lite_topic = message.lite_topic
        return asked

    async def suspend(self, message: PoppedMessage, seconds: float) -> None:
        """Hide all that was popped of its lite topic; the attempt does not count."""
        asked = self._change_request(message, seconds)
        asked.suspend = True
        await self._change(message, asked)

    async def acknowledge_together(self, broker_name: str, messages: Iterable[PoppedMessage]) -> None:
        """java: brokers take no acknowledgements of several messages of lite topics"""
        for message in messages:
            await self.acknowledge(message)
