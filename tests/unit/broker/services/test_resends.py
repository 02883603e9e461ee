"""Resends: a send that is repeated is stored once, and answered as its first try was."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_parts import BrokerParts, broker_parts, caller_on

from pyromq.broker.flow import resends
from pyromq.broker.services.sending import Sending
from pyromq.broker.tables.role import Role
from pyromq.errors import Refused
from pyromq.protocol import names
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import StoredMessage, SysFlag
from pyromq.protocol.requests.sending import SendMessageBatch, SendMessageV2

TOPIC = "Orders"
KEY = "7F0000010001000000000001"
FIELDS: dict[str, Any] = {
    "producer_group": "producers",
    "topic": TOPIC,
    "default_topic": names.AUTO_CREATE_TOPIC,
    "default_topic_queue_nums": 4,
    "queue_id": 0,
    "sys_flag": 0,
    "born_timestamp": 1_600_000_000_000,
    "flag": 0,
    "body": b"hello",
}


class Bench:
    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        parts.add_topic(TOPIC)
        self.sending = Sending(parts.live, parts.inbound, parts.tables, parts.clock)

    def begin(
        self, *, resent: bool = False, properties: str = "", **fields: Any
    ) -> asyncio.Future[RawAnswer]:
        text = encode_properties({"UNIQ_KEY": KEY}) + properties
        request = SendMessageV2(**FIELDS | {"properties": text, "resent": resent or None} | fields)
        return asyncio.ensure_future(_answered(self.sending.send_v2(request, caller_on())))

    async def send(self, **fields: Any) -> RawAnswer:
        return await self.begin(**fields)

    async def batch(self, *bodies: str, resent: bool = False) -> RawAnswer:
        entries = [
            BatchEntry(each.encode(), encode_properties({"UNIQ_KEY": each}).encode()) for each in bodies
        ]
        fields = FIELDS | {"body": encode_batch(entries), "resent": resent or None}
        return await _answered(self.sending.send_batch(SendMessageBatch(**fields), caller_on()))

    def stored(self, topic: str = TOPIC) -> list[StoredMessage]:
        return [message for queue_id in range(4) for message in self.parts.messages(topic, queue_id)]

    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.stored()]


async def _answered(reply: RawAnswer | asyncio.Future[RawAnswer]) -> RawAnswer:
    return await reply if isinstance(reply, asyncio.Future) else reply


Make = Callable[..., Bench]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    contexts: list[Any] = []

    def build(**settings: Any) -> Bench:
        for context in contexts:
            context.__exit__(None, None, None)
        contexts[:] = [broker_parts(tmp_path, **settings)]
        return Bench(contexts[0].__enter__())

    yield build
    for context in contexts:
        context.__exit__(None, None, None)


async def test_a_resend_is_answered_as_its_first_try_and_stored_once(make: Make) -> None:
    bench = make()
    first = await bench.send()
    again = await bench.send(resent=True)
    assert (again.code, again.ext) == (first.code, first.ext)
    assert bench.bodies() == ["hello"]
    assert bench.parts.statistics.puts_of(TOPIC, 0).messages == 1


async def test_a_resend_to_another_queue_is_told_the_first_one(make: Make) -> None:
    bench = make()
    first = await bench.send(queue_id=1)
    assert (await bench.send(queue_id=3, resent=True)).ext == first.ext
    assert bench.bodies() == ["hello"]


async def test_a_resend_after_a_restart_is_stored_once(make: Make) -> None:
    bench = make()
    first = await bench.send()
    bench.stored()
    bench = make()
    assert (await bench.send(resent=True)).ext == first.ext
    assert bench.bodies() == ["hello"]


async def test_a_resend_whose_first_try_never_came_is_stored(make: Make) -> None:
    bench = make()
    first = await bench.send(resent=True)
    assert (await bench.send(resent=True)).ext == first.ext
    assert bench.bodies() == ["hello"]


async def test_a_first_try_that_comes_after_its_resend_is_not_stored(make: Make) -> None:
    bench = make()
    resent = await bench.send(resent=True)
    assert (await bench.send()).ext == resent.ext
    assert bench.bodies() == ["hello"]


async def test_the_keys_of_resends_are_forgotten_after_a_while(make: Make) -> None:
    bench = make()
    await bench.send(resent=True)
    kept = bench.parts.appending.resends
    kept.expire()
    assert KEY in kept.recent
    bench.parts.clock.advance(resends.KEPT_S)
    kept.expire()
    assert not kept.recent


async def test_no_more_than_so_many_keys_are_kept(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resends, "MAX_KEPT", 2)
    bench = make()
    for key in ("A", "B", "C"):
        await bench.send(resent=True, properties=encode_properties({"UNIQ_KEY": key}))
    assert list(bench.parts.appending.resends.recent) == ["B", "C"]


async def test_two_resends_that_wait_for_the_index_store_one_message(make: Make) -> None:
    bench = make()
    begun = [bench.begin(properties=encode_properties({"UNIQ_KEY": "other"}))]
    begun += [bench.begin(resent=True), bench.begin(resent=True), bench.begin()]
    _, first, second, late = await asyncio.gather(*begun)
    assert first.ext == second.ext == late.ext
    assert bench.bodies() == ["hello", "hello"], "the other one, and one of these"


async def test_the_answer_waits_until_the_stored_message_is_replicated(make: Make) -> None:
    bench = make()
    bench.parts.durability.replicated(0)
    first = bench.begin()
    await asyncio.sleep(0)
    again = bench.begin(resent=True)
    for _ in range(9):
        await asyncio.sleep(0)
    assert not again.done()
    bench.parts.durability.replicated(bench.parts.store.log.end)
    assert (await again).ext == (await first).ext
    assert bench.bodies() == ["hello"]


async def test_a_resend_is_refused_while_its_first_try_may_be_taken_back(make: Make) -> None:
    bench = make(broker={"replica_timeout_ms": 1})
    bench.parts.durability.replicated(0)
    begun = bench.begin()
    with pytest.raises(Refused) as refused:
        await bench.send(resent=True)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    bench.parts.durability.replicated(None)
    await begun
    assert bench.bodies() == ["hello"]


@pytest.mark.parametrize("change", [{"body": b"other"}, {"reconsume_times": 1}, {"born_timestamp": 2}])
async def test_a_message_that_only_has_the_same_key_is_stored(make: Make, change: dict[str, Any]) -> None:
    """Copies that are retried keep the key of their message, and so do rows that Spark writes again."""
    bench = make()
    await bench.send()
    await bench.send(resent=True, **change)
    assert len(bench.stored()) == 2


async def test_a_resend_to_a_topic_that_was_deleted_meanwhile_is_stored(make: Make) -> None:
    bench = make()
    await bench.send()
    bench.stored()
    bench.parts.store.topics.delete(TOPIC)
    await bench.send(resent=True)
    assert bench.bodies() == ["hello"]


@pytest.mark.parametrize(
    ("properties", "topic"),
    [
        ({"TRAN_MSG": "true", "PGROUP": "producers"}, names.HALF_TOPIC),
        ({"DELAY": "3"}, names.SCHEDULE_TOPIC),
        ({"TIMER_DELAY_SEC": "9"}, names.TIMER_TOPIC),
    ],
)
async def test_a_parked_message_is_parked_once(make: Make, properties: dict[str, str], topic: str) -> None:
    bench = make(broker={"recalls": True})
    flag = SysFlag.TRANSACTION_PREPARED if "TRAN_MSG" in properties else 0
    fields: dict[str, Any] = {"properties": encode_properties(properties), "queue_id": 2, "sys_flag": flag}
    first = await bench.send(**fields)
    again = await bench.send(resent=True, **fields)
    assert again.ext == first.ext
    assert again.ext["queueId"] == "2"
    assert len(bench.stored(topic)) == 1


async def test_a_timed_message_is_found_after_its_time(make: Make) -> None:
    bench = make()
    due = encode_properties({"TIMER_DELIVER_MS": str(bench.parts.clock.now_ms() + 5000)})
    first = await bench.send(properties=due)
    bench.parts.clock.advance(60.0)
    again = await bench.send(resent=True, properties=due)
    assert again.ext == first.ext
    assert not bench.stored()


async def test_a_batch_is_stored_once(make: Make) -> None:
    bench = make()
    first = await bench.batch("a", "b", "c")
    again = await bench.batch("a", "b", "c", resent=True)
    assert again.ext == first.ext
    assert again.ext["msgId"].count(",") == 2
    late = await bench.batch("a", "b", "c")
    assert late.ext == first.ext
    assert bench.bodies() == ["a", "b", "c"]


async def test_a_batch_of_which_a_part_is_stored_is_stored_as_a_whole(make: Make) -> None:
    """A crash may keep the first messages of a batch: the others must follow them at once, as producers
    compute their offsets."""
    bench = make()
    await bench.batch("a", "b")
    await bench.batch("a", "b", "c", resent=True)
    assert bench.bodies() == ["a", "b", "a", "b", "c"]


async def test_a_replica_does_not_answer_for_its_master(make: Make) -> None:
    bench = make()
    await bench.send()
    bench.stored()
    bench.parts.tables.role.change(Role(1))
    with pytest.raises(Refused):
        await bench.send(resent=True)


@pytest.mark.parametrize(
    "off", [{"broker": {"stores_resends_once": False}}, {"store": {"index_enabled": False}}]
)
async def test_it_can_be_turned_off(make: Make, off: dict[str, Any]) -> None:
    bench = make(**off)
    await bench.send()
    await bench.send(resent=True)
    assert bench.bodies() == ["hello", "hello"]
