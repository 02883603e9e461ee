"""Traces of consumed messages: one record before the handler, one after it, with the same request id."""

from collections.abc import Sequence

from pyromq.client.consumer.handling.outcomes import RetryLater
from pyromq.client.session import Session
from pyromq.client.trace_records import ConsumedRecord, ConsumingRecord
from pyromq.client.tracing import Tracing
from pyromq.client.values import ReceivedMessage
from pyromq.protocol import names
from pyromq.protocol import properties as props

_SUCCEEDED, _RAISED, _FAILED = 0, 2, 4


class ConsumeTracing:
    def __init__(self, session: Session, group: str, topic: str) -> None:
        self._session = session
        self._group = group
        self._tracing = Tracing(session, group, "CONSUME", topic)

    def __repr__(self) -> str:
        return f"<ConsumeTracing {self._tracing!r}>"

    def begin(self, messages: Sequence[ReceivedMessage]) -> str:
        """Record that these are about to be handled; returns the id for `end`."""
        now_ms = self._session.clock.now_ms()
        request_id = self._session.unique_keys.next(now_ms)
        for message in filter(self._is_traced, messages):
            record = ConsumingRecord(
                at_ms=now_ms,
                region=message.get(props.MSG_REGION) or names.DEFAULT_REGION,
                group=self._group,
                request_id=request_id,
                message_id=message.message_id,
                retries=message.reconsume_times,
                keys=message.get(props.KEYS),
            )
            self._tracing.report(record.text(), (message.message_id, *message.keys))
        return request_id

    def end(
        self,
        request_id: str,
        messages: Sequence[ReceivedMessage],
        problem: BaseException | None,
        spent_s: float,
    ) -> None:
        outcome = _SUCCEEDED if problem is None else _FAILED if isinstance(problem, RetryLater) else _RAISED
        now_ms = self._session.clock.now_ms()
        for message in filter(self._is_traced, messages):
            record = ConsumedRecord(
                at_ms=now_ms,
                group=self._group,
                request_id=request_id,
                message_id=message.message_id,
                cost_ms=round(spent_s * 1000 / len(messages)),
                is_ok=problem is None,
                keys=message.get(props.KEYS),
                outcome=outcome,
            )
            self._tracing.report(record.text(), (message.message_id, *message.keys))

    def _is_traced(self, message: ReceivedMessage) -> bool:
        return message.topic != self._tracing.topic and message.get(props.TRACE_ON) != "false"

    async def close(self) -> None:
        await self._tracing.close()
