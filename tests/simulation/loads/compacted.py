"""A compacted topic, which keeps the newest message of each key.

The newest acknowledged value of a key stays readable whatever happens, and none that it replaced comes back.
A key that was removed, by a message without a body, has its removal or nothing. If no other load needs them,
files of the log go when snapshots have what they have.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from tests.simulation.cluster import BROKER_PORT, Server
from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad
from tests.support.small_stores import messages_in

from pyromq import Message, PyroError
from pyromq.admin import topics
from pyromq.admin.cluster import Cluster
from pyromq.broker.broker import Broker
from pyromq.protocol import properties as props
from pyromq.protocol.record import StoredMessage, decode_record
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.store.compacted.snapshot import QueueSnapshot

_TIMEOUT_S = 2.0
_QUEUES = 2
_KEYS = tuple(f"key-{number}" for number in range(6))
_REMOVALS = 0.25
_PADDING = "-" + 1000 * "x"
"""A few messages fill a file."""
_LONGEST_EMPTY_S = 3.0


class _Value(NamedTuple):
    offset: int
    body: str
    """Empty: the key was removed."""


class CompactedLoad(RunningLoad):
    def start(self) -> None:
        self._newest: dict[tuple[int, str], _Value] = {}
        """By queue and key: what was acknowledged last."""
        self._doubtful: Counter[tuple[str, str]] = Counter()
        """Keys and bodies that are not acknowledged, and may be stored, also behind what was sent later."""
        self._looked_at: dict[tuple[str, int], QueueSnapshot] = {}
        self.sender("producer", self._make_and_produce())
        if self.cluster.plan.removes_files:
            self._cleaning = asyncio.create_task(self.clean_now_and_then())

    def next_body(self, producer: str) -> str:
        return super().next_body(producer) + _PADDING

    async def _make_and_produce(self) -> None:
        wanted = TopicConfig(topic_name=self.topic, read_queue_nums=_QUEUES, write_queue_nums=_QUEUES)
        clock = self.cluster.loop.clock
        async with Cluster(self.cluster.name_server_address, timeout_s=_TIMEOUT_S, clock=clock) as cluster:
            while not self.is_over:
                if (master := self.cluster.master()) is not None:
                    with suppress(PyroError):
                        address = f"{master.host.address}:{BROKER_PORT}"
                        await topics.put(cluster, [address], wanted, "+cleanup.policy=COMPACTION")
                        break
                await self.pause(has_failed=True)
        await asyncio.sleep(self.chance.uniform(0.0, _LONGEST_EMPTY_S))
        async with self.producer("p") as producer:
            while not self.is_over:
                key, body, result = self.chance.choice(_KEYS), self.next_body("p"), None
                if self.chance.random() < _REMOVALS:
                    body = ""
                self._doubtful[key, body] += 1
                with suppress(PyroError):
                    message = Message(self.topic, body.encode(), keys=key)
                    result = await producer.send(message, sharding_key=key)
                if result is not None and result.is_ok:
                    self._doubtful[key, body] -= 1
                    self._newest[result.queue.queue_id, key] = _Value(result.queue_offset, body)
                    self.acknowledged("p")
                else:
                    self.recorder.totals.unacknowledged += 1
                await self.pause(has_failed=result is None or not result.is_ok)

    def look(self) -> None:
        """Snapshots of brokers that may be master, when there are new ones."""
        group = self.cluster.recorded_group()
        for server in self.cluster.candidates(group) if group is not None else ():
            broker = self.cluster.broker(server)
            for queue in range(_QUEUES) if broker is not None else ():
                snapshot = broker.store.compacting.snapshots.find(self.topic, queue) if broker else None
                if snapshot is not None and self._looked_at.get((server.host.name, queue)) is not snapshot:
                    self._looked_at[server.host.name, queue] = snapshot
                    for invariant, text in self._wrong_in(snapshot, queue):
                        self.recorder.violation(invariant, f"{server.host.name}: {text}")

    def _wrong_in(self, snapshot: QueueSnapshot, queue: int) -> Iterator[tuple[str, str]]:
        entries = list(snapshot.entries(0, snapshot.count))
        for key, count in Counter(each.key for each in entries).items():
            if count > 1:
                yield "compacted, but not unique", f"queue {queue} has {count} messages of {key.hex()}"
        found = list[StoredMessage]()
        for each in entries:
            record = snapshot.record(each)
            if record is None:
                yield "a damaged snapshot", f"queue {queue} has no record at {each}"
            else:
                found.append(decode_record(record))
        yield from self._missing(found, queue, snapshot.end.queue_offset)

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        for server in self.cluster.brokers:
            if (broker := self.cluster.broker(server)) is not None:
                yield from self._judge(server, broker)

    def _judge(self, server: Server, broker: Broker) -> Iterator[tuple[str, str]]:
        for queue in range(_QUEUES):
            found = list[StoredMessage]()
            end = broker.store.queues.max_offset(self.topic, queue)
            offset = 0
            while offset < end:
                result = broker.store.read(self.topic, queue, offset)
                found += messages_in(result)
                if result.next_offset <= offset:
                    break
                offset = result.next_offset
            for invariant, text in self._missing(found, queue, 1 << 62):
                yield invariant, f"{server.host.name}: {text}"

    def _missing(self, found: list[StoredMessage], queue: int, end: int) -> Iterator[tuple[str, str]]:
        """What a reader of the whole queue up to here would have wrong."""
        last = {each.get(props.KEYS): _Value(each.queue_offset, each.body.decode()) for each in found}
        for (of_queue, key), newest in self._newest.items():
            if of_queue != queue or newest.offset >= end:
                continue
            value = last.get(key)
            if value is None:
                is_right = not newest.body or self._doubtful[key, ""] > 0
            else:
                is_later = value.offset > newest.offset and self._doubtful[key, value.body] > 0
                is_right = value == newest or is_later
            if not is_right:
                now = f"{value.offset} {value.body[:20]!r}" if value is not None else "nothing"
                text = f"{key} in queue {queue}: {now}, acknowledged {newest.offset} {newest.body[:20]!r}"
                yield "not the newest value of a key", text
