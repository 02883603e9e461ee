"""A consumer as brokers see it: its heartbeats, and its answers to their requests."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from pyromq.client.consumer.group.assigned_queues import AssignedQueues
from pyromq.client.consumer.reading.queue_reader import ReadingContext
from pyromq.client.session import Session
from pyromq.client.values import ReceivedMessage
from pyromq.protocol import properties as props
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import CURRENT_VERSION, version_name
from pyromq.protocol.requests.inspection import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from pyromq.protocol.requests.membership import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberKind:
    """The kind of this consumer, for brokers and operators; operators see `settings`."""

    consume_type: ConsumeType
    message_model: MessageModel
    consume_from: ConsumeFromWhere
    is_ordered: bool = False
    concurrency: int = 1
    settings: Mapping[str, str]


class Member:
    """One consumer as its session knows it; topics have the names that brokers know.

    `consume` handles a message for an operator; None where the application polls.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        kind: MemberKind,
        *,
        reading: ReadingContext,
        assigned: AssignedQueues,
        rebalance_soon: Callable[[], None],
        consume: Callable[[ReceivedMessage], Awaitable[None]] | None,
    ) -> None:
        self._session = session
        self._group = group
        self._kind = kind
        self._subscriptions = reading.subscriptions
        self._assigned = assigned
        self._stats = reading.stats
        self._rebalance_soon = rebalance_soon
        self._consume = consume
        self._started_ms = session.clock.now_ms()

    def __repr__(self) -> str:
        return f"<Member {self._group} {self._kind.consume_type} {self._assigned!r}>"

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._group,
            consume_type=self._kind.consume_type,
            message_model=self._kind.message_model,
            consume_from_where=self._kind.consume_from,
            subscription_data_set=[each.data() for each in self._subscriptions.values()],
            unit_mode=self._session.settings.unit_mode,
        )

    def topics(self) -> set[str]:
        return set(self._subscriptions)

    def members_changed(self) -> None:
        self._rebalance_soon()

    def offsets_reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        if self._kind.consume_type is ConsumeType.CONSUME_POP:
            return  # brokers continue from there by themselves
        self._assigned.begin_soon(
            {queue: offset for queue, offset in offsets.items() if queue.topic == topic}
        )

    def status(self, topic: str) -> dict[MessageQueue, int]:
        offsets = self._assigned.progress()
        return {queue: offset for queue, offset in offsets.items() if not topic or queue.topic == topic}

    def running_info(self) -> ConsumerRunningInfo:
        kind = self._kind
        return ConsumerRunningInfo(
            mq_table={
                reader.queue: reader.held.info(is_ordered=kind.is_ordered)
                for reader in sorted(self._assigned, key=lambda reader: reader.queue)
            },
            properties={
                **kind.settings,
                "consumerGroup": self._group,
                "messageModel": kind.message_model.value,
                "consumeFromWhere": kind.consume_from.value,
                "instanceName": self._session.settings.instance_name,
                "PROP_NAMESERVER_ADDR": "".join(f"{each};" for each in self._session.name_servers.addresses),
                "PROP_THREADPOOL_CORE_SIZE": str(kind.concurrency),
                "PROP_CONSUMEORDERLY": "true" if kind.is_ordered else "false",
                "PROP_CONSUME_TYPE": kind.consume_type.value,
                "PROP_CLIENT_VERSION": version_name(CURRENT_VERSION),
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            },
            status_table={topic: self._stats.of(topic).status() for topic in sorted(self._subscriptions)},
            subscription_set=[each.data() for _, each in sorted(self._subscriptions.items())],
        )

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        started = self._session.clock.monotonic()
        result, remark = CMResult.CR_SUCCESS, None
        original = message.get(props.RETRY_TOPIC)
        if original is not None:
            message = ReceivedMessage(message.stored, message.queue, self._session.unwrap(original))
        if self._consume is None:
            result, remark = CMResult.CR_THROW_EXCEPTION, "a pull consumer has no handler"
        else:
            try:
                await self._consume(message)
            except Exception as problem:
                result, remark = CMResult.CR_THROW_EXCEPTION, f"{type(problem).__name__}: {problem}"
        return ConsumeMessageDirectlyResult(
            order=self._kind.is_ordered,
            auto_commit=True,
            consume_result=result,
            remark=remark,
            spent_time_mills=round((self._session.clock.monotonic() - started) * 1000),
        )
