"""Plain sends, and a group whose members pop: brokers divide the messages, and hide them until acknowledged.

A message that a member did not acknowledge comes again, from the group's retry topic: so it is known by its
body, and not by its place.
"""

from collections.abc import Iterator, Sequence

from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad

from pyromq import aio
from pyromq.broker.broker import Broker
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.client.consumer.reading.popping import PoppedMessage
from pyromq.protocol import properties as props
from pyromq.protocol.pop_receipt import marked_topic
from pyromq.protocol.record import decode_record

_GROUP = "poppers"
_GIVES_UP_S = 3.0
"""So long a broker waits for replicas, as it is set."""


class PoppedLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP, commits=False)
        self.sender("producer", self.produce("p"))
        for number in (1, 2):
            self.member(f"member {number}", lambda: self.consume(_GROUP, mode="pop", invisible_s=10.0))

    async def receive(self, consumer: aio.SimpleConsumer, group: str) -> Sequence[PoppedMessage]:
        """A broker hands out messages when the checkpoint of their pop is confirmed, or when it gives up."""
        broker, began_s = self.broker_of_master(), self.recorder.now_s
        role = broker.role.now if broker is not None else None
        messages = await consumer.receive(8, wait_s=2.0)
        if broker is not None and broker.role.now == role and self.recorder.now_s - began_s < _GIVES_UP_S:
            self._check_checkpoints(broker, group, messages)
        return messages

    def _check_checkpoints(self, broker: Broker, group: str, messages: Sequence[PoppedMessage]) -> None:
        store, side = broker.store, broker.replication.master
        if not isinstance(side, InSyncMaster) or side.confirmed == store.log.end:
            return
        pops = {_key_of_pop(each, group) for each in messages}
        for outline, _ in store.log.records_from(side.confirmed):
            record = store.log.record_at(outline.log_offset)
            assert record is not None
            if decode_record(record).get(props.UNIQ_KEY) in pops:
                text = f"{outline.log_offset}, confirmed is {side.confirmed}"
                self.recorder.violation("popped without a safe checkpoint", text)

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        got = {each.body for each in self.history.delivered}
        sent = [each for each in self.history.sent if each.offset is not None]
        self.history.delivered, self.history.groups = [], {}
        yield from super().judge(contents)
        for each in sent:
            if each.body not in got:
                yield "not delivered (popped)", f"{each.body!r} at {(each.queue, each.offset)}"


def _key_of_pop(message: PoppedMessage, group: str) -> str:
    """With the topic: another member may pop the same offset of the retry topic in the same millisecond."""
    receipt = message.receipt
    stored_in = marked_topic(message.topic, group, receipt.retry_mark)
    place = f"{stored_in}@{receipt.queue_id}@{receipt.checkpoint_offset}"
    return f"{place}@{group}@{receipt.pop_time_ms}@{receipt.broker_name}@ck"
