"""Old messages leave the disk for the tier, and every consumer still reads all of them, once and in order."""

import asyncio
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.conftest import ErrorLogs
from tests.support.broker_cluster import (
    BROKER_NAME,
    CLUSTER,
    GROUP,
    TOPIC,
    BrokerClient,
    consumer,
    running_broker,
    topic_creation,
)
from tests.support.killable_broker import start_killable_broker
from tests.support.loop import turn_until
from tests.support.model_objects import ModelObjects

from pyromq.admin.tier import status_of
from pyromq.broker.broker import Broker
from pyromq.broker.services import tiering as service
from pyromq.broker.settings import BrokerSettings
from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.clock import TravellingClock
from pyromq.errors import ConfigError, Refused
from pyromq.filesystem import Space
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.record import decode_record, decode_records
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.offsets import (
    GetEarliestStoreTime,
    GetMinOffset,
    QueryConsumerOffset,
    ResetOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from pyromq.protocol.requests.popping import PopMessage
from pyromq.protocol.requests.pulling import QueryMessage, ViewMessage
from pyromq.protocol.requests.sending import SendMessageAnswer
from pyromq.protocol.requests.topics import DeleteTopicFromBroker
from pyromq.store.log.log_time import CONFIRMED_AFTER_S
from pyromq.tier import upkeep
from pyromq.tier.manifests import Manifests
from pyromq.tier.offloading import hidden_before
from pyromq.tier.segment_format import TAIL_BYTES, parse_footer, parse_tail, unpack_block
from pyromq.tier.uploading import OwnUploader

QUEUES, MESSAGES = 2, 60
READ = 5
SEGMENT_BYTES = 16 * 1024
SMALL_FILES = {"log_segment_bytes": SEGMENT_BYTES}
KILLED_FILES = {"log_segment_bytes": 128 * 1024, "queue_file_bytes": 4000}
"""Those of a broker in a process of its own."""


def body(number: int) -> bytes:
    return b"message %05d " % number + b"x" * 900


@asynccontextmanager
async def tiered(
    root: Path, store: Mapping[str, Any] = SMALL_FILES, **settings: Any
) -> AsyncIterator[tuple[Broker, BrokerClient]]:
    store = {"file_reserved_hours": 0, "disk_max_used_percent": 95, **store}
    chosen = {"tier_level": "NOT_IN_DISK", "tier_place": str(root / "lake")} | settings
    async with (
        running_broker(root / "store", store=store, **chosen) as broker,
        BrokerClient(broker.address) as client,
    ):
        yield broker, client


async def send_all(client: BrokerClient, begin: int = 0, **fields: Any) -> None:
    for number in range(begin, begin + MESSAGES):
        await client.send(body(number), queue_id=number % QUEUES, **fields)


async def uploaded(broker: Broker) -> int:
    """Return when all closed files are in the tier; where the last one ends."""
    tier, store = broker.tiering, broker.store
    assert tier is not None
    file_bytes = store.settings.log_segment_bytes
    closed = store.log.end // file_bytes * file_bytes
    await turn_until(lambda: tier.manifest is not None and tier.manifest.end >= closed)
    return closed


async def offloaded(broker: Broker) -> None:
    """Return when all closed files are in the tier, and the disk has only the last one."""
    store, closed = broker.store, await uploaded(broker)

    def cleaned() -> bool:
        store.clean(on_demand=True)
        return store.log.start >= closed

    await turn_until(cleaned)


async def read_all(
    client: BrokerClient, queue_id: int, end: int, offset: int = 0, **fields: Any
) -> list[bytes]:
    """What a consumer gets that begins at an offset, and goes on where each answer says."""
    found: list[bytes] = []
    async with asyncio.timeout(100):
        while offset < end:
            pulled = await client.pull(offset, queue_id=queue_id, **fields)
            assert pulled.answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)
            if pulled.answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and not pulled.messages:
                assert pulled.answer.next_begin_offset >= offset
            found += pulled.bodies
            assert [each.queue_offset for each in pulled.messages] == list(
                range(offset, offset + len(pulled.messages))
            )
            offset = pulled.answer.next_begin_offset
    return found


def sent(queue_id: int, end: int = MESSAGES) -> list[bytes]:
    return [body(number) for number in range(queue_id, end, QUEUES)]


@pytest.fixture
def store_in_memory(monkeypatch: pytest.MonkeyPatch) -> ModelObjects:
    """The broker's object store, which a test can make fail."""
    objects = ModelObjects()
    monkeypatch.setattr(service, "open_objects", lambda *_, **__: objects)
    monkeypatch.setattr(service, "ChildUploader", lambda: OwnUploader(objects))
    return objects


@pytest.mark.parametrize("hold_ms", [0, 15_000])
async def test_every_message_is_read_once_from_the_tier_and_then_from_the_disk(
    tmp_path: Path, hold_ms: int
) -> None:
    async with tiered(tmp_path) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await client.heartbeat(consumer())
        await send_all(client)
        await offloaded(broker)
        for queue_id in range(QUEUES):
            assert broker.store.queues.min_offset(TOPIC, queue_id) == 0
            answer = await client.call(GetMinOffset(topic=TOPIC, queue_id=queue_id))
            assert answer.offset == 0
            found = await read_all(client, queue_id, MESSAGES // QUEUES, hold_ms=hold_ms)
            assert found == sent(queue_id)
        assert broker.tiering is not None
        assert broker.tiering.history.messages_out > MESSAGES // 2
        assert broker.tiering.lag_bytes == 0
    async with tiered(tmp_path) as (broker, client):
        assert await read_all(client, 0, MESSAGES // QUEUES) == sent(0)
        await send_all(client, MESSAGES)
        await offloaded(broker)
        assert await read_all(client, 1, MESSAGES) == sent(1, 2 * MESSAGES)


async def test_unread_messages_are_kept_in_the_tier_and_do_not_fill_the_disk(
    tmp_path: Path, store_in_memory: ModelObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {**SMALL_FILES, "file_reserved_hours": 72, "keep_unread": True, "disk_clean_forcibly_percent": 85}
    async with tiered(tmp_path, kept) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await client.heartbeat(consumer())
        await send_all(client)
        await client.call(
            UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=READ)
        )
        closed = await uploaded(broker)
        store = broker.store
        unread_at = store.queues.log_offset(TOPIC, 0, READ)
        assert unread_at is not None
        assert not store.clean().segments_removed
        monkeypatch.setattr(store.files, "space", lambda path: Space(100, 5, read_only=False))

        def cleaned() -> bool:
            assert not store.clean().is_kept_for_groups
            return store.log.start >= closed

        await turn_until(cleaned)
        assert store.log.start > unread_at
        assert await read_all(client, 0, MESSAGES // QUEUES, READ) == sent(0)[READ:]


async def test_a_filter_by_tag_or_sql_finds_the_same_messages_in_the_tier(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    async with tiered(tmp_path) as (broker, client):
        await client.create_topic(queues=QUEUES)
        for number in range(MESSAGES):
            properties = {"TAGS": "even" if number % 4 == 0 else "odd", "n": str(number)}
            await client.send(body(number), queue_id=0, properties=properties)
        await offloaded(broker)
        expressions: list[dict[str, Any]] = [
            {"subscription": "even"},
            {"subscription": "TAGS = 'even'", "expression_type": "SQL92"},
        ]
        for fields in expressions:
            found, offset = list[bytes](), 0
            while offset < MESSAGES - 1:
                pulled = await client.pull(offset, **fields)
                found += pulled.bodies
                assert pulled.answer.next_begin_offset >= offset
                offset = pulled.answer.next_begin_offset
            assert found == [body(number) for number in range(0, MESSAGES, 4)]


async def test_pops_take_old_messages_and_get_them_again_until_they_are_acknowledged(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    async with tiered(tmp_path) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await client.heartbeat(consumer())
        await send_all(client)
        await offloaded(broker)
        seen = Counter[bytes]()
        while len(seen) < MESSAGES or min(seen.values()) < 2:
            answer = await client.call(
                PopMessage(
                    consumer_group=GROUP,
                    topic=TOPIC,
                    queue_id=-1,
                    max_msg_nums=32,
                    invisible_time=1000,
                    poll_time=1000,
                    born_time=broker.store.time.now_ms(),
                    init_mode=0,
                )
            )
            seen.update(each.body for each in decode_records(answer.body))
        assert seen.keys() == {body(number) for number in range(MESSAGES)}
        assert broker.tiering is not None
        assert broker.tiering.history.messages_out > 0


async def test_a_new_group_that_wants_new_messages_gets_none_of_the_tier(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    asked = QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0)
    end = MESSAGES // QUEUES
    async with tiered(tmp_path) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await client.heartbeat(consumer())
        await send_all(client)
        assert (await client.call(asked)).offset == 0  # all messages are on the disk, as with RocketMQ
        await offloaded(broker)
        assert broker.store.queues.min_offset(TOPIC, 0) == 0
        for _ in ("before its first message is fetched", "after that"):
            refused = await client.refusal(asked)
            assert refused.code == ResponseCode.QUERY_NOT_FOUND  # so the consumer decides
            assert (await client.pull(0)).messages
        answer = await client.call(
            PopMessage(
                consumer_group=GROUP,
                topic=TOPIC,
                queue_id=0,
                max_msg_nums=32,
                invisible_time=60_000,
                poll_time=0,
                born_time=broker.store.time.now_ms(),
                init_mode=1,
            )
        )
        assert [each.queue_offset for each in decode_records(answer.body)] == [end - 1]


async def test_readers_wait_while_the_tier_is_away_and_skip_nothing(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    objects = store_in_memory
    async with tiered(tmp_path, tier_read_timeout_ms=20) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await offloaded(broker)
        objects.fails = lambda operation, name: "before"
        for hold_ms in (0, 20):
            pulled = await client.pull(0, hold_ms=hold_ms)
            assert pulled.answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert pulled.answer.next_begin_offset == 0
        waiting = asyncio.create_task(client.pull(0, hold_ms=60_000))
        await client.send(b"the tail is not disturbed", queue_id=1)
        last = await client.pull(MESSAGES // QUEUES, queue_id=1)
        assert last.bodies == [b"the tail is not disturbed"]
        assert not waiting.done()
        objects.fails = lambda operation, name: None
        assert (await waiting).bodies[0] == body(0)


async def test_a_damaged_block_is_not_passed_over(
    tmp_path: Path, store_in_memory: ModelObjects, error_logs: ErrorLogs
) -> None:
    objects = store_in_memory
    async with tiered(tmp_path, tier_read_timeout_ms=50) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await offloaded(broker)
        whole = dict(objects.content)
        for name, content in whole.items():
            if name.startswith("segments/"):
                objects.content[name] = content[:40] + b"rubbish" + content[47:]
        pulled = await client.pull(0)
        assert pulled.answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert pulled.answer.next_begin_offset == 0
        error_logs.expect_repeatedly("old messages cannot be read, their readers wait: the model/segments/")
        objects.content.update(whole)
        assert await read_all(client, 0, MESSAGES // QUEUES) == sent(0)


async def test_files_stay_while_their_upload_fails_and_sends_go_on(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    objects = store_in_memory
    objects.fails = lambda operation, name: "before"
    async with tiered(tmp_path) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        tier = broker.tiering
        assert tier is not None
        await turn_until(lambda: tier.problem)
        await turn_until(lambda: broker.store.clean(on_demand=True).is_kept_for_tier)
        assert broker.store.log.start == 0
        assert tier.lag_bytes >= SEGMENT_BYTES
        assert tier.lag_s >= 0
        assert "failed before" in tier.figures()["tierProblem"]
        objects.fails = lambda operation, name: None
        await offloaded(broker)
        assert tier.lag_bytes == 0
        assert await read_all(client, 0, MESSAGES // QUEUES) == sent(0)


async def test_a_damaged_file_is_not_uploaded_and_stays_until_an_operator_decides(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    objects = store_in_memory
    objects.fails = lambda operation, name: "before"
    async with tiered(tmp_path) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        tier, store = broker.tiering, broker.store
        assert tier is not None
        for number in range(MESSAGES):
            damaged = bytes(store.log.bytes_at(SEGMENT_BYTES, SEGMENT_BYTES)).find(body(number))
            if damaged >= 0:
                store.scrubbing.put_back(SEGMENT_BYTES + damaged, b"M")
                break
        objects.fails = lambda operation, name: None
        await turn_until(lambda: "is damaged and not uploaded: log offset" in tier.problem)
        assert tier.figures()["tierProblem"] == tier.problem
        await turn_until(lambda: broker.replication.repair.damage)

        def has_only_what_is_not_uploaded() -> bool:
            return store.clean(on_demand=True).is_kept_for_tier and store.log.start == SEGMENT_BYTES

        await turn_until(has_only_what_is_not_uploaded)
        assert tier.manifest is not None
        assert tier.manifest.end == SEGMENT_BYTES
    path = tmp_path / "store" / "commitlog" / f"{SEGMENT_BYTES:020d}"
    content = path.read_bytes()
    path.unlink()
    async with tiered(tmp_path) as (broker, client):
        await offloaded(broker)
        for queue_id in range(QUEUES):
            found = await read_all(client, queue_id, MESSAGES // QUEUES)
            assert found == [each for each in sent(queue_id) if each[1:] not in content]
            assert 2 < len(found) < MESSAGES // QUEUES


async def test_a_new_topic_of_a_deleted_name_shows_no_old_messages(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    async with tiered(tmp_path) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await client.call(DeleteTopicFromBroker(topic=TOPIC))
        await client.create_topic(queues=QUEUES)
        await send_all(client, 1000)
        await offloaded(broker)
    async with tiered(tmp_path) as (broker, client):
        assert await read_all(client, 0, MESSAGES // QUEUES) == [
            body(number) for number in range(1000, 1000 + MESSAGES, QUEUES)
        ]


KEYED = 6
"""One message in so many has the key that is looked for."""


async def send_keyed(client: BrokerClient, clock: TravellingClock) -> list[SendMessageAnswer]:
    """A message a second, in turn in each queue."""
    answers = []
    for number in range(MESSAGES):
        clock.advance(1)
        properties = {
            "KEYS": f"key{number} {'wanted' if number % KEYED == 0 else 'other'}",
            "UNIQ_KEY": f"id{number}",
        }
        answers.append(await client.send(body(number), queue_id=number % QUEUES, properties=properties))
    return answers


def by_key(key: str, **fields: Any) -> QueryMessage:
    asked = {"max_num": 64, "begin_timestamp": 0, "end_timestamp": (1 << 63) - 1, **fields}
    return QueryMessage(topic=TOPIC, key=key, **asked)


async def bodies_of(client: BrokerClient, request: QueryMessage) -> list[bytes]:
    return [each.body for each in decode_records((await client.call(request)).body)]


async def test_queries_by_time_key_and_place_find_what_is_only_in_the_tier(tmp_path: Path) -> None:
    clock = TravellingClock()
    async with tiered(tmp_path, clock=clock, tier_read_timeout_ms=60_000) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await client.heartbeat(consumer())
        answers = await send_keyed(client, clock)
        await offloaded(broker)
        first_here = broker.store.log.start
        places = [decode_offset_message_id(each.msg_id).log_offset for each in answers]
        assert places[MESSAGES // 2] < first_here < places[-1]

        times = []
        for number, place in enumerate(places):
            viewed = await client.call(ViewMessage(topic=TOPIC, offset=place))
            record = decode_record(viewed.body)
            assert (record.body, record.log_offset) == (body(number), place)
            times.append(record.store_timestamp)
        assert (await client.call(ViewMessage(offset=places[1]))).body
        refused = await client.refusal(ViewMessage(topic=TOPIC, offset=places[0] + 1))
        assert "no message begins at log offset" in str(refused)

        earliest = await client.call(GetEarliestStoreTime(topic=TOPIC, queue_id=1))
        assert earliest.timestamp == times[1]
        for number, stored_ms in enumerate(times):
            queue_id, offset = number % QUEUES, number // QUEUES
            for timestamp, boundary in (
                (stored_ms, None),
                (stored_ms - 1, "LOWER"),
                (stored_ms + 1, "UPPER"),
            ):
                search = SearchOffset(
                    topic=TOPIC, queue_id=queue_id, timestamp=timestamp, boundary_type=boundary
                )
                assert (await client.call(search)).offset == offset
        reset = ResetOffset(topic=TOPIC, group=GROUP, timestamp=times[4], is_force=True)
        await client.call(reset)
        assert (await client.pull(0, queue_id=0)).answer.next_begin_offset == 2

        wanted = [body(number) for number in range(0, MESSAGES, KEYED)]
        assert await bodies_of(client, by_key("wanted")) == wanted
        assert await bodies_of(client, by_key("wanted", max_num=8)) == wanted[-8:]
        some = by_key("wanted", begin_timestamp=times[KEYED], end_timestamp=times[2 * KEYED])
        assert await bodies_of(client, some) == wanted[1:3]
        assert await bodies_of(client, by_key("id3", is_unique_key=True)) == [body(3)]
        refused = await client.refusal(by_key("nobody"))
        assert refused.code == ResponseCode.QUERY_NOT_FOUND


async def test_queries_say_that_the_tier_is_away_instead_of_not_found(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    objects, clock = store_in_memory, TravellingClock()
    async with tiered(tmp_path, clock=clock, tier_read_timeout_ms=60_000) as (broker, client):
        await client.create_topic(queues=QUEUES)
        answers = await send_keyed(client, clock)
        await offloaded(broker)
        await client.send(b"new", queue_id=0, properties={"KEYS": "wanted"})
        await turn_until(lambda: broker.store.queues.max_offset(TOPIC, 0) > MESSAGES // QUEUES)
        place = decode_offset_message_id(answers[2].msg_id).log_offset
        first_ms = broker.store.queues.earliest_time(TOPIC, 0)
        search = SearchOffset(topic=TOPIC, queue_id=0, timestamp=first_ms + 4500)
        view, unique = ViewMessage(topic=TOPIC, offset=place), by_key("id2", is_unique_key=True)

        objects.fails = lambda operation, name: "before" if name.startswith("segments/") else None
        for request in (search, view, unique):
            refused = await client.refusal(request)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "failed before" in str(refused)
        partly = await client.call(by_key("wanted"))
        assert "there may be more messages: segments/" in (partly.remark or "")
        assert decode_records(partly.body)[-1].body == b"new"
        # What this disk has is found as ever.
        assert await bodies_of(client, by_key("wanted", max_num=1)) == [b"new"]
        last = SearchOffset(topic=TOPIC, queue_id=1, timestamp=broker.store.time.now_ms() + 1)
        assert (await client.call(last)).offset == MESSAGES // QUEUES

        objects.fails = lambda operation, name: None
        assert (await client.call(search)).offset == 3
        assert decode_record((await client.call(view)).body).body == body(2)
        assert await bodies_of(client, unique) == [body(2)]
    forget_footers(tmp_path)
    objects.fails = lambda operation, name: "before"
    async with tiered(tmp_path, clock=clock, tier_read_timeout_ms=60_000) as (broker, client):
        earliest = GetEarliestStoreTime(topic=TOPIC, queue_id=0)
        for question in (search, view, unique, earliest):
            refused = await client.refusal(question)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "it is not known yet what the tier has" in str(refused)


async def test_a_query_that_the_store_does_not_answer_ends_before_its_caller_gives_up(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    objects, clock = store_in_memory, TravellingClock()
    async with tiered(tmp_path, clock=clock, tier_read_timeout_ms=100) as (broker, client):
        await client.create_topic(queues=QUEUES)
        answers = await send_keyed(client, clock)
        await offloaded(broker)
        objects.gate.clear()
        try:
            place = decode_offset_message_id(answers[0].msg_id).log_offset
            for request in (ViewMessage(offset=place), by_key("id2", is_unique_key=True)):
                refused = await client.refusal(request)
                assert refused.code == ResponseCode.SYSTEM_ERROR
                assert "the tier did not answer within 80 ms" in str(refused)
        finally:
            objects.gate.set()


async def test_a_deleted_message_is_not_found_in_the_tier(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    clock = TravellingClock()
    async with tiered(tmp_path, clock=clock, tier_read_timeout_ms=60_000) as (broker, client):
        await client.create_topic(queues=QUEUES)
        answers = await send_keyed(client, clock)
        await offloaded(broker)
        await client.call(DeleteTopicFromBroker(topic=TOPIC))
        await client.create_topic(queues=QUEUES)
        for answer in answers[:3]:
            place = decode_offset_message_id(answer.msg_id).log_offset
            refused = await client.refusal(ViewMessage(topic=TOPIC, offset=place))
            assert "no message begins at log offset" in str(refused)
        assert (await client.refusal(by_key("wanted"))).code == ResponseCode.QUERY_NOT_FOUND
        unique = by_key("id1", is_unique_key=True)
        assert (await client.refusal(unique)).code == ResponseCode.QUERY_NOT_FOUND


def forget_footers(root: Path) -> None:
    """As if the broker had never read its tier."""
    shutil.rmtree(root / "store" / "tier")


def segments(objects: ModelObjects) -> list[str]:
    return sorted(name for name in objects.content if name.startswith("segments/"))


async def test_a_footer_that_cannot_be_read_stops_its_readers_alone_and_only_until_it_is_back(
    tmp_path: Path, store_in_memory: ModelObjects, error_logs: ErrorLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_POLL_S", 0.05)
    objects = store_in_memory
    async with tiered(tmp_path) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await offloaded(broker)
    forget_footers(tmp_path)
    name = segments(objects)[1]
    content = objects.content.pop(name)
    async with tiered(tmp_path, tier_read_timeout_ms=50) as (broker, client):
        tier = broker.tiering
        assert tier is not None
        await turn_until(lambda: tier.damaged)
        assert tier.damaged == {name: f"the model/{name}: it is missing"}
        found = [await client.pull(offset, queue_id=0) for offset in range(MESSAGES // QUEUES)]
        codes = {each.answer.code for each in found}
        assert codes == {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY}
        for offset, pulled in enumerate(found):
            if pulled.answer.code == ResponseCode.SUCCESS:
                assert pulled.messages[0].queue_offset == offset
            else:
                assert pulled.answer.next_begin_offset == offset
        await send_all(client, MESSAGES)
        await offloaded(broker)  # uploads go on
        objects.content[name] = content
        await turn_until(lambda: not tier.damaged)
        assert await read_all(client, 0, MESSAGES) == sent(0, 2 * MESSAGES)
    error_logs.expect_repeatedly("a segment cannot be read, its readers wait: the model/segments/")


async def test_nobody_begins_behind_messages_that_cannot_be_seen(
    tmp_path: Path, store_in_memory: ModelObjects, error_logs: ErrorLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_POLL_S", 0.05)
    objects = store_in_memory
    async with tiered(tmp_path) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await offloaded(broker)
    forget_footers(tmp_path)
    objects.fails = lambda operation, name: "before"
    async with tiered(tmp_path, tier_read_timeout_ms=50) as (broker, client):
        tier = broker.tiering
        assert tier is not None
        await turn_until(lambda: tier.problem)
        answer = await client.call(GetMinOffset(topic=TOPIC, queue_id=0))
        assert answer.offset == 0
        assert (await client.pull(0)).answer.next_begin_offset == 0
        name = segments(objects)[0]
        content = objects.content.pop(name)
        objects.fails = lambda operation, name: None
        await turn_until(lambda: tier.damaged)
        answer = await client.call(GetMinOffset(topic=TOPIC, queue_id=0))
        assert answer.offset == 0
        objects.content[name] = content
        assert await read_all(client, 0, MESSAGES // QUEUES) == sent(0)
    error_logs.expect_repeatedly("a segment cannot be read, its readers wait: the model/segments/")


async def test_a_missing_segment_is_uploaded_again_while_its_file_is_on_the_disk(
    tmp_path: Path, store_in_memory: ModelObjects, error_logs: ErrorLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_POLL_S", 0.05)
    objects = store_in_memory
    kept = SMALL_FILES | {"file_reserved_hours": 72}
    async with tiered(tmp_path, kept) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await uploaded(broker)
    forget_footers(tmp_path)
    name = segments(objects)[0]
    del objects.content[name]
    async with tiered(tmp_path) as (broker, client):
        await offloaded(broker)
        assert name in objects.content
        assert await read_all(client, 0, MESSAGES // QUEUES) == sent(0)
    error_logs.expect_repeatedly("a segment cannot be read, its readers wait: the model/segments/")


async def test_a_deletion_is_in_the_tier_before_its_answer(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    objects = store_in_memory
    async with tiered(tmp_path, tier_read_timeout_ms=50) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await offloaded(broker)
        objects.fails = lambda operation, name: "before"
        with pytest.raises(Refused, match="the tier does not know it yet"):
            await client.call(DeleteTopicFromBroker(topic=TOPIC))
        objects.fails = lambda operation, name: None

    async with tiered(tmp_path, tier_read_timeout_ms=60_000) as (broker, client):
        end = broker.store.log.end
        await client.call(DeleteTopicFromBroker(topic=TOPIC))
        newest = Manifests(objects, CLUSTER, BROKER_NAME, "reader").read_newest()
        assert newest is not None
        assert hidden_before(newest, TOPIC) == end


async def test_a_deleted_topic_leaves_the_tier_with_all_its_bytes(
    tmp_path: Path, store_in_memory: ModelObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "GRACE_MS", 0)
    objects = store_in_memory
    async with tiered(tmp_path, tier_upkeep_interval_ms=1) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await offloaded(broker)
        manifests = Manifests(objects, CLUSTER, BROKER_NAME, "reader")
        newest = manifests.read_newest()
        assert newest is not None
        size_bytes = newest.size_bytes
        await client.call(DeleteTopicFromBroker(topic=TOPIC))

        def is_gone() -> bool:
            found = manifests.read_newest()
            assert found is not None
            named = {each.name for each in found.segments}
            return found.size_bytes < size_bytes / 2 and set(segments(objects)) == named

        await turn_until(is_gone)
        for name, content in objects.content.items():
            if name.startswith("segments/"):
                tail = parse_tail(content[-TAIL_BYTES:], len(content))
                footer = parse_footer(tail, content[tail.footer_at : -TAIL_BYTES])
                assert TOPIC not in {run.topic for run in footer.runs}
                assert b"message 0" not in b"".join(
                    unpack_block(each, content[each.position : each.position + each.size_bytes])
                    for each in footer.blocks
                )
        # Uploads continue where they were.
        await client.create_topic(queues=QUEUES)
        await send_all(client, 1000)
        await offloaded(broker)
        assert await read_all(client, 0, MESSAGES // QUEUES) == [
            body(number) for number in range(1000, 1000 + MESSAGES, QUEUES)
        ]


async def test_messages_that_have_expired_are_not_read_from_the_tier_and_leave_it(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    clock = TravellingClock()
    async with tiered(tmp_path, clock=clock) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await offloaded(broker)
        assert await read_all(client, 0, MESSAGES // QUEUES) == sent(0)
        clock.advance(2 * 3600)
        await send_all(client, MESSAGES)
        assert broker.store.queues.min_offset(TOPIC, 0) == 0
        limited = topic_creation(queues=QUEUES)
        limited.attributes = "+reserve.time=1"
        await client.call(limited)
        assert broker.store.queues.min_offset(TOPIC, 0) == MESSAGES // QUEUES
        moved = await client.pull(0)
        assert (len(moved.messages), moved.answer.next_begin_offset) == (0, MESSAGES // QUEUES)
        assert (await client.pull(MESSAGES // QUEUES)).messages
    async with tiered(tmp_path, clock=clock, tier_upkeep_interval_ms=1) as (broker, client):
        tier = broker.tiering
        assert tier is not None
        await turn_until(lambda: tier.removed_segments + tier.rewritten_segments > 2)
        await offloaded(broker)
        found = await read_all(client, 0, MESSAGES, MESSAGES // QUEUES)
        assert found == sent(0, 2 * MESSAGES)[MESSAGES // QUEUES :]


async def test_all_messages_are_kept_for_ever_or_for_some_hours(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    clock = TravellingClock()
    async with tiered(tmp_path, clock=clock) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await offloaded(broker)
    clock.advance(1000 * 3600)
    for hours, begins_at_0 in ((0, True), (999, False)):
        settings: dict[str, Any] = {"tier_reserved_hours": hours, "tier_upkeep_interval_ms": 1}
        async with tiered(tmp_path, clock=clock, **settings) as (broker, _):
            tier = broker.tiering
            assert tier is not None
            # The clock is believed only when it has been the same for a while.
            await turn_until(lambda tier=tier: tier.rounds > 1)  # type: ignore[misc]
            assert broker.store.queues.min_offset(TOPIC, 0) == 0
            clock.advance(CONFIRMED_AFTER_S)
            if not begins_at_0:
                await turn_until(lambda tier=tier: tier.removed_segments)  # type: ignore[misc]
            await turn_until(lambda tier=tier, rounds=tier.rounds: tier.rounds > rounds + 1)  # type: ignore[misc]
            assert (broker.store.queues.min_offset(TOPIC, 0) == 0) is begins_at_0
            assert tier.segments


@pytest.mark.parametrize("found", [None, b"shorter"])
async def test_no_file_goes_whose_object_vanished_after_its_footer_was_kept(
    tmp_path: Path,
    store_in_memory: ModelObjects,
    error_logs: ErrorLogs,
    found: bytes | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "_POLL_S", 0.05)
    objects = store_in_memory
    async with tiered(tmp_path, SMALL_FILES | {"file_reserved_hours": 72}) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await uploaded(broker)
    name = min(segments(objects))
    whole = objects.content.pop(name)
    if found is not None:
        objects.replace(name, found)
    async with tiered(tmp_path) as (broker, client):
        await offloaded(broker)
        assert objects.content[name] == whole  # from the file
        assert broker.tiering is not None
        assert not broker.tiering.damaged
        assert await read_all(client, 0, MESSAGES // QUEUES) == sent(0)
    error_logs.expect_repeatedly("a segment cannot be read, its readers wait: the model/segments/")


async def test_nothing_becomes_too_old_of_a_topic_that_the_table_lacks(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    clock = TravellingClock()
    async with tiered(tmp_path, clock=clock) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await uploaded(broker)
    before = set(segments(store_in_memory))
    for path in (tmp_path / "store/config").glob("topics.json*"):
        path.unlink()
    clock.advance(100 * 3600)
    settings: dict[str, Any] = {"tier_reserved_hours": 72, "tier_upkeep_interval_ms": 1}
    async with tiered(tmp_path, clock=clock, **settings) as (broker, client):
        tier = broker.tiering
        assert tier is not None
        await turn_until(lambda: tier.rounds > 0)
        clock.advance(CONFIRMED_AFTER_S)
        rounds = tier.rounds
        await turn_until(lambda: tier.rounds > rounds + 1)
        assert set(segments(store_in_memory)) == before
        await client.create_topic(queues=QUEUES)
        await turn_until(lambda: tier.removed_segments)


async def test_a_clock_that_is_years_ahead_at_the_start_removes_and_hides_nothing(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    clock = TravellingClock()
    limited = topic_creation(queues=QUEUES)
    limited.attributes = "+reserve.time=48"
    async with tiered(tmp_path, clock=clock) as (broker, client):
        await client.call(limited)
        await send_all(client)
        await offloaded(broker)
    before = set(segments(store_in_memory))
    clock.advance(3 * 365 * 86_400)
    settings: dict[str, Any] = {"tier_reserved_hours": 24 * 365, "tier_upkeep_interval_ms": 1}
    async with tiered(tmp_path, clock=clock, **settings) as (broker, client):
        tier = broker.tiering
        assert tier is not None
        await turn_until(lambda: tier.rounds > 1)
        assert (tier.removed_segments, tier.rewritten_segments) == (0, 0)
        assert set(segments(store_in_memory)) == before
        assert await read_all(client, 0, MESSAGES // QUEUES) == sent(0)


async def test_of_two_brokers_that_believe_to_be_the_master_one_writes_and_the_other_keeps_its_files(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    one_root, other_root = tmp_path / "one", tmp_path / "other"
    lake = str(tmp_path / "lake")
    async with tiered(one_root, tier_place=lake) as (one, one_client):
        assert one.tiering is not None
        first = one.tiering
        await turn_until(lambda: first.manifest is not None)
        async with tiered(other_root, tier_place=lake) as (other, other_client):
            assert other.tiering is not None
            second = other.tiering
            await turn_until(lambda: second.manifest is not None)  # the tier is its own now
            for client in (one_client, other_client):
                await client.create_topic(queues=QUEUES)
            await send_all(one_client)
            await turn_until(lambda: first.is_fenced)
            await send_all(other_client, 1000)
            await offloaded(other)
            one.store.clean(on_demand=True)
            assert one.store.log.start == 0
            assert await read_all(one_client, 0, MESSAGES // QUEUES) == sent(0)
            found = await read_all(other_client, 0, MESSAGES // QUEUES)
            assert found == [body(number) for number in range(1000, 1000 + MESSAGES, QUEUES)]
    # It starts again, and finds that the tier is of another log.
    async with tiered(one_root, tier_place=lake) as (one, one_client):
        assert one.tiering is not None
        again = one.tiering
        await turn_until(lambda: "do two brokers with one name" in again.problem)
        one.store.clean(on_demand=True)
        assert one.store.log.start == 0
        assert await read_all(one_client, 1, MESSAGES // QUEUES) == sent(1)
    error_logs.expect_repeatedly("nothing is uploaded to the tier any more: ")


async def pulled_waits(client: BrokerClient) -> None:
    pulled = await client.pull(0, hold_ms=20)
    assert pulled.answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert pulled.answer.next_begin_offset == 0


async def test_a_directory_that_is_not_mounted_is_not_a_new_tier_and_may_come_back(
    tmp_path: Path, error_logs: ErrorLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_MAX_PAUSE_S", 0.05)
    lake, away = tmp_path / "lake", tmp_path / "away"
    async with tiered(tmp_path) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await offloaded(broker)
        start = broker.store.log.start
    lake.rename(away)
    lake.mkdir()
    async with tiered(tmp_path, tier_read_timeout_ms=20) as (broker, client):
        tier = broker.tiering
        assert tier is not None
        await turn_until(lambda: tier.problem)
        assert "mount or bring back that one" in tier.problem
        await pulled_waits(client)
        await send_all(client, MESSAGES)
        broker.store.clean(on_demand=True)
        assert broker.store.log.start == start
        failures = tier.failures
        await turn_until(lambda: tier.failures > failures + 1)
        assert broker.store.log.start == start
        assert not [each for each in lake.rglob("*") if each.is_file()]
        shutil.rmtree(lake)
        away.rename(lake)
        await offloaded(broker)
        assert not tier.problem
        for queue_id in range(QUEUES):
            assert await read_all(client, queue_id, MESSAGES) == sent(queue_id, 2 * MESSAGES)
    error_logs.expect_repeatedly("nothing is uploaded to the tier any more: ")
    error_logs.expect_repeatedly("old messages cannot be read, their readers wait: ")


async def test_readers_wait_if_the_tier_cannot_be_used_and_may_have_their_messages(
    tmp_path: Path, store_in_memory: ModelObjects, error_logs: ErrorLogs
) -> None:
    objects = store_in_memory
    async with tiered(tmp_path) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await offloaded(broker)
    whole = dict(objects.content)
    objects.content.clear()
    min((tmp_path / "store/tier").glob("*.footer")).unlink()
    async with tiered(tmp_path, tier_read_timeout_ms=20) as (broker, client):
        tier = broker.tiering
        assert tier is not None
        await turn_until(lambda: tier.problem)
        assert tier.history.index.unknown
        await pulled_waits(client)
        assert (await client.call(GetMinOffset(topic=TOPIC, queue_id=0))).offset == 0
    # The same without what is kept: only the tier of another broker cannot have the messages of this log.
    shutil.rmtree(tmp_path / "store/tier")
    objects.content["format"] = whole["format"].replace(BROKER_NAME.encode(), b"another")
    async with tiered(tmp_path) as (broker, client):
        again = broker.tiering
        assert again is not None
        await turn_until(lambda: again.problem)
        assert again.history.is_known
        assert broker.store.queues.min_offset(TOPIC, 0) > 0
    error_logs.expect_repeatedly("nothing is uploaded to the tier any more: ")


async def test_a_killed_broker_goes_on_with_its_tier(tmp_path: Path) -> None:
    settings = {"tier_level": "NOT_IN_DISK", "tier_place": str(tmp_path / "lake")}
    process, address = await start_killable_broker(tmp_path / "store", "SYNC_FLUSH", **settings)
    count = 400
    async with BrokerClient(address) as client:
        await client.create_topic(queues=QUEUES)
        for number in range(count):
            await client.send(body(number), queue_id=number % QUEUES)
        manifests = tmp_path / "lake" / CLUSTER / BROKER_NAME / "manifest"
        await turn_until(lambda: manifests.is_dir() and any(manifests.iterdir()))
        process.kill()
        await process.wait()
    async with tiered(tmp_path, KILLED_FILES) as (broker, client):
        await offloaded(broker)
        for queue_id in range(QUEUES):
            assert await read_all(client, queue_id, count // QUEUES) == sent(queue_id, count)


async def test_operators_see_what_is_where_and_what_it_costs(tmp_path: Path) -> None:
    clock = TravellingClock()
    async with tiered(tmp_path, clock=clock) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await offloaded(broker)
        assert await read_all(client, 0, MESSAGES // QUEUES) == sent(0)
        table = (await client.call(GetBrokerRuntimeInfo())).body.table
        status, tier = status_of(table), broker.tiering
        assert status is not None
        assert tier is not None
        manifest = tier.manifest
        assert manifest is not None
        assert (status.log_start, status.log_end) == (broker.store.log.start, broker.store.log.end)
        assert (status.tier_begin, status.tier_end) == (0, broker.store.log.start)
        assert status.segments == len(manifest.segments) == status.log_bytes // SEGMENT_BYTES
        assert status.packed_bytes == manifest.size_bytes < status.log_bytes
        assert (status.lag_bytes, status.lag_s, status.problem) == (0, 0, "")
        assert status.is_owner
        assert status.writer.startswith(f"{BROKER_NAME} ")
        # A segment, its manifest and the hint; and what readers fetched.
        assert status.writes >= 3 * status.segments
        assert status.written_bytes > status.packed_bytes
        assert status.reads > 2 * status.segments
        assert status.read_bytes > 0
        words = ["tierStatus", "-b", broker.advertised_address, "--timeout", "60"]
        shown = await asyncio.to_thread(CliRunner().invoke, mqadmin, words)
        assert shown.exit_code == 0, shown.output
        assert f"log in the tier         : 0 to {status.tier_end:,}\n" in shown.stdout
        assert "written by              : " in shown.stdout
        assert ", this broker\n" in shown.stdout
        assert re.search(r"problem +: none\n", shown.stdout)


async def test_the_lag_is_the_time_that_a_closed_file_has_waited(
    tmp_path: Path, store_in_memory: ModelObjects
) -> None:
    objects, clock = store_in_memory, TravellingClock()
    objects.fails = lambda operation, name: "before"
    async with tiered(tmp_path, clock=clock) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        clock.advance(3600)
        tier = broker.tiering
        assert tier is not None
        await turn_until(lambda: tier.problem)
        await turn_until(lambda: tier.lag_bytes)
        assert 3600 <= tier.lag_s < 3700
        objects.fails = lambda operation, name: None
        await uploaded(broker)
        assert tier.lag_s == 0


def test_a_tier_without_a_place_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tieredStoreFilePath=: expected a directory or the URI"):
        BrokerSettings(tier_level="NOT_IN_DISK")
