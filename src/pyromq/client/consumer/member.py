"""What a consumer tells brokers about itself, and what it does when they ask."""

import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from pyromq.client.consumer.figures import Figures
from pyromq.client.consumer.offsets import on_the_wire
from pyromq.client.consumer.settings import PullSettings, PushSettings
from pyromq.client.consumer.share import Share
from pyromq.client.consumer.subscriptions import Subscription
from pyromq.client.session import Session
from pyromq.client.values import ReceivedMessage
from pyromq.protocol import properties as props
from pyromq.protocol.bodies.consumers import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from pyromq.protocol.bodies.heartbeat import ConsumerData, ConsumeType, MessageModel
from pyromq.protocol.bodies.queues import MessageQueue
from pyromq.protocol.codes import CURRENT_VERSION, version_name


class Member:
    """One consumer as its session knows it; `subscriptions` are by topic, as brokers name them."""

    def __init__(
        self,
        session: Session,
        group: str,
        settings: PushSettings | PullSettings,
        *,
        subscriptions: dict[str, Subscription],
        share: Share,
        figures: Figures,
        rebalance_soon: Callable[[], None],
        consume: Callable[[ReceivedMessage], Awaitable[None]] | None,
    ) -> None:
        self._session = session
        self._group = group
        is_pushed = isinstance(settings, PushSettings)
        self._consume_type = ConsumeType.CONSUME_PASSIVELY if is_pushed else ConsumeType.CONSUME_ACTIVELY
        self._model = MessageModel.BROADCASTING if settings.broadcast else MessageModel.CLUSTERING
        self._start_from = on_the_wire(settings.start_from)
        self._subscriptions = subscriptions
        self._share = share
        self._figures = figures
        self._rebalance_soon = rebalance_soon
        self._consume = consume
        self._is_ordered = isinstance(settings, PushSettings) and settings.ordered
        self._concurrency = settings.concurrency if isinstance(settings, PushSettings) else 1
        self._settings = settings
        self._started_ms = session.clock.now_ms()

    def __repr__(self) -> str:
        return f"<Member {self._group} {self._consume_type} {self._share!r}>"

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._group,
            consume_type=self._consume_type,
            message_model=self._model,
            consume_from_where=self._start_from,
            subscription_data_set=[each.data() for each in self._subscriptions.values()],
            unit_mode=self._session.settings.unit_mode,
        )

    def topics(self) -> set[str]:
        return set(self._subscriptions)

    def members_changed(self) -> None:
        self._rebalance_soon()

    def offsets_reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        self._share.begin_soon({queue: offset for queue, offset in offsets.items() if queue.topic == topic})

    def status(self, topic: str) -> dict[MessageQueue, int]:
        offsets = self._share.progress()
        return {queue: offset for queue, offset in offsets.items() if not topic or queue.topic == topic}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            jstack=_stacks(),
            mq_table={
                reader.queue: reader.held.info(is_ordered=self._is_ordered)
                for reader in sorted(self._share, key=lambda reader: reader.queue)
            },
            properties={
                **{name: str(value) for name, value in _shown(self._settings).items()},
                "consumerGroup": self._group,
                "messageModel": self._model.value,
                "consumeFromWhere": self._start_from.value,
                "instanceName": self._session.settings.instance_name,
                "PROP_NAMESERVER_ADDR": "".join(f"{each};" for each in self._session.name_servers.addresses),
                "PROP_THREADPOOL_CORE_SIZE": str(self._concurrency),
                "PROP_CONSUMEORDERLY": "true" if self._is_ordered else "false",
                "PROP_CONSUME_TYPE": self._consume_type.value,
                "PROP_CLIENT_VERSION": version_name(CURRENT_VERSION),
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            },
            status_table={topic: self._figures.of(topic).status() for topic in sorted(self._subscriptions)},
            subscription_set=[each.data() for _, each in sorted(self._subscriptions.items())],
        )

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        started = self._session.clock.monotonic()
        result, remark = CMResult.CR_SUCCESS, None
        original = message.get(props.RETRY_TOPIC)
        if original is not None:
            message = ReceivedMessage(message.stored, message.queue, self._session.unwrap(original))
        if self._consume is None:
            result, remark = CMResult.CR_THROW_EXCEPTION, "this consumer polls: it has no handler"
        else:
            try:
                await self._consume(message)
            except Exception as problem:
                result, remark = CMResult.CR_THROW_EXCEPTION, f"{type(problem).__name__}: {problem}"
        return ConsumeMessageDirectlyResult(
            order=self._is_ordered,
            auto_commit=True,
            consume_result=result,
            remark=remark,
            spent_time_mills=round((self._session.clock.monotonic() - started) * 1000),
        )


def _shown(settings: PushSettings | PullSettings) -> dict[str, Any]:
    shown: dict[str, Any] = {f"pyromq.{name}": value for name, value in asdict(settings).items()}
    if not isinstance(settings, PushSettings):
        return shown
    # java: the names under which tools show them
    return {
        **shown,
        "consumeThreadMin": settings.concurrency,
        "consumeThreadMax": settings.concurrency,
        "consumeMessageBatchMaxSize": settings.batch_size or 1,
        "consumeConcurrentlyMaxSpan": settings.queue_span,
        "maxReconsumeTimes": -1 if settings.max_retries is None else settings.max_retries,
        "pullBatchSize": settings.pull_batch_size,
        "pullInterval": round(settings.pull_interval_s * 1000),
        "pullThresholdForQueue": settings.queue_messages,
        "pullThresholdSizeForQueue": settings.queue_bytes // (1024 * 1024),
        "pullThresholdForTopic": settings.topic_messages or -1,
        "consumeTimeout": round(settings.handler_timeout_s / 60),
        "suspendCurrentQueueTimeMillis": round(settings.suspend_s * 1000),
        "allocateMessageQueueStrategy": settings.assignment.name,
    }


def _stacks() -> str:
    """What every thread of this process does."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n" + "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()
    )
