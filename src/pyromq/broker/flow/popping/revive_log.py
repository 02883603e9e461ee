"""The revive log: a topic in which checkpoints and acknowledgements wait until popped messages are due.

java: A pop writes a checkpoint, which appears in the log one second before its messages are due; an
acknowledgement appears when they are due. So whoever reads the log up to that time knows which messages were
not acknowledged.
"""

from collections.abc import Sequence

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.message_properties import pair
from pyromq.broker.tables.pop_counts import PopCounts, RecordKind
from pyromq.protocol import json_body, names
from pyromq.protocol import properties as props
from pyromq.protocol.pop_receipt import PopReceipt
from pyromq.protocol.pop_records import AckMsg, BatchAckMsg, PopCheckPoint
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult

CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
_LEAD_MS = 1000
"""A checkpoint appears so long before its messages are due."""


class ReviveLog:
    def __init__(self, store: MessageStore, appending: Appending, counts: PopCounts, cluster: str) -> None:
        self.topic = names.revive_topic(cluster)
        self._time = store.time
        self._appending = appending
        self._counts = counts

    def __repr__(self) -> str:
        return f"<ReviveLog {self.topic}>"

    def write_checkpoint(self, checkpoint: PopCheckPoint, queue_id: int) -> AppendResult:
        """Note that messages were popped; they are revived unless they are acknowledged."""
        key = (
            f"{checkpoint.topic}@{checkpoint.queue_id}@{checkpoint.start_offset}@{checkpoint.consumer_group}"
            f"@{checkpoint.pop_time}@{checkpoint.broker_name}@{CHECKPOINT_TAG}"
        )
        due_ms = checkpoint.pop_time + checkpoint.invisible_time - _LEAD_MS
        result = self._write(CHECKPOINT_TAG, key, json_body.encode(checkpoint), queue_id, due_ms)
        self._count(checkpoint.consumer_group, checkpoint.topic, "CK", result)
        return result

    def write_ack(self, topic: str, group: str, receipt: PopReceipt, offsets: Sequence[int]) -> AppendResult:
        """Note that messages of one pop were acknowledged; `topic` is the one in which they are stored."""
        is_batch = len(offsets) > 1
        ack = BatchAckMsg(ack_offset=-1) if is_batch else AckMsg(ack_offset=offsets[0])
        ack.broker_name, ack.consumer_group, ack.topic = receipt.broker_name, group, topic
        ack.pop_time, ack.queue_id = receipt.pop_time_ms, receipt.queue_id
        ack.start_offset = receipt.checkpoint_offset
        tag, acked = ACK_TAG, str(offsets[0])
        if isinstance(ack, BatchAckMsg):
            ack.ack_offset_list = list(offsets)
            tag, acked = BATCH_ACK_TAG, str(ack.ack_offset_list)
        key = f"{topic}@{ack.queue_id}@{acked}@{group}@{ack.pop_time}@{ack.broker_name}@{tag}"
        due_ms = receipt.pop_time_ms + receipt.invisible_time_ms
        result = self._write(tag, key, json_body.encode(ack), receipt.revive_queue_id, due_ms)
        self._count(group, topic, "ACK", result)
        return result

    def _write(self, tag: str, key: str, body: bytes, queue_id: int, due_ms: int) -> AppendResult:
        properties = (
            pair(props.TAGS, tag) + pair(props.UNIQ_KEY, key) + pair(props.TIMER_DELIVER_MS, str(due_ms))
        )
        now_ms, host = self._time.now_ms(), self._appending.store_host
        return self._appending.append(
            Draft(self.topic, queue_id, body, properties.encode(), now_ms, host, deliver_ms=due_ms)
        )

    def _count(self, group: str | None, topic: str | None, kind: RecordKind, result: AppendResult) -> None:
        self._counts.written[group or "", topic or "", kind, result.status.value] += 1
