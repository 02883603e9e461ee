"""Nobody is promised anything about a topic that is not on disk, and the loop never writes a table itself."""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.broker_parts import BrokerParts, broker_parts, caller_on

from pyromq.broker.services.groups import Groups
from pyromq.broker.services.retries import Retries
from pyromq.broker.services.sending import Sending
from pyromq.broker.services.topics import Topics
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.role import Role
from pyromq.errors import Refused
from pyromq.protocol import names
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, DeleteGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.sending import SendMessageBack, SendMessageV2
from pyromq.protocol.requests.topics import CreateOrUpdateTopic, DeleteTopicFromBroker, TopicConfig
from pyromq.remoting.slices import Slices
from pyromq.store.deletions import Deletions
from pyromq.store.json_table import JsonTable
from pyromq.store.queues.all_queues import Queues

TOPIC = "Fresh"
CREATION = CreateOrUpdateTopic(
    topic=TOPIC,
    default_topic="",
    read_queue_nums=1,
    write_queue_nums=1,
    perm=6,
    topic_filter_type="SINGLE_TAG",
    order=False,
)


async def _forget_nothing(topic: str) -> None:
    pass


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[BrokerParts]:
    with broker_parts(tmp_path) as made:
        yield made


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens to files, in order; each with where it ran."""
    taken: list[str] = []

    def watch(owner: type, method: str, what: str) -> None:
        plain = getattr(owner, method)

        def watched(self: Any, *arguments: Any) -> Any:
            result = plain(self, *arguments)
            try:
                asyncio.get_running_loop()
                where = "loop"
            except RuntimeError:
                where = "thread"
            name = self.path.name if isinstance(self, JsonTable) else what
            taken.append(f"{name} {where}")
            return result

        monkeypatch.setattr(owner, method, watched)

    watch(JsonTable, "save", "")
    watch(JsonTable, "save_from_thread", "")
    watch(Deletions, "mark", "mark")
    watch(Queues, "remove_topic", "queues")
    watch(Deletions, "finish", "finish")
    return taken


def send(topic: str = TOPIC, **changes: Any) -> SendMessageV2:
    request = SendMessageV2(
        producer_group="p",
        topic=topic,
        default_topic=names.AUTO_CREATE_TOPIC,
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        body=b"x",
    )
    return msgspec.structs.replace(request, **changes)


async def test_the_first_message_of_a_topic_is_stored_when_the_topic_is_on_disk(
    parts: BrokerParts, steps: list[str]
) -> None:
    sending = Sending(parts.live, parts.inbound, parts.tables, parts.clock)
    parts.tables.write_in_threads()
    first, second = sending.send_v2(send(), caller_on()), sending.send_v2(send(body=b"y"), caller_on())
    assert isinstance(first, asyncio.Future)
    assert isinstance(second, asyncio.Future)
    assert not parts.messages(TOPIC)
    assert (await first).code == 0
    assert steps == ["topics.json thread"]
    assert (await second).code == 0
    assert [message.body for message in parts.messages(TOPIC)] == [b"x", b"y"]
    assert not isinstance(sending.send_v2(send(), caller_on()), asyncio.Future), "from now on at once"


def refuse(file: JsonTable, value: msgspec.Struct) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_no_message_is_taken_for_a_topic_that_cannot_be_written(
    parts: BrokerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending = Sending(parts.live, parts.inbound, parts.tables, parts.clock)
    parts.tables.write_in_threads()
    with monkeypatch.context() as full:
        full.setattr(JsonTable, "save_from_thread", refuse)
        for _ in range(2):
            answer = sending.send_v2(send(), caller_on())
            assert isinstance(answer, asyncio.Future)
            with pytest.raises(Refused, match="No space"):
                await answer
        assert not parts.messages(TOPIC)
    answer = sending.send_v2(send(), caller_on())
    assert isinstance(answer, asyncio.Future)
    assert (await answer).code == 0


async def test_a_message_given_back_waits_for_its_retry_topic_and_the_dead_letters(
    parts: BrokerParts, steps: list[str]
) -> None:
    parts.add_topic(TOPIC)
    sending = Sending(parts.live, parts.inbound, parts.tables, parts.clock)
    retries = Retries(parts.live, parts.store, parts.tables, parts.inbound)
    sending.send_v2(send(), caller_on())
    [message] = parts.messages(TOPIC)
    parts.tables.write_in_threads()
    steps.clear()
    request = SendMessageBack(
        offset=message.log_offset, group="g", delay_level=-1, origin_topic=TOPIC, max_reconsume_times=16
    )
    answer = retries.send_back(request, caller_on())
    assert isinstance(answer, asyncio.Future)
    assert (await answer).code == 0
    assert steps.count("topics.json thread") == 2
    assert not [step for step in steps if step.endswith("loop")]
    assert len(parts.messages(names.dlq_topic("g"))) == 1


async def test_an_operator_is_answered_when_the_topic_is_on_disk(
    parts: BrokerParts, steps: list[str], tmp_path: Path
) -> None:
    topics = Topics(parts.live, parts.store, parts.tables, _forget_nothing, Slices(parts.clock))
    parts.tables.write_in_threads()
    await topics.create_or_update(
        CreateOrUpdateTopic(
            topic=TOPIC,
            default_topic="",
            read_queue_nums=4,
            write_queue_nums=4,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        ),
        caller_on(),
    )
    assert steps == ["topics.json thread"]
    assert parts.topics.is_written(TOPIC)


async def test_a_deletion_is_marked_then_queues_go_then_tables_and_then_it_is_finished(
    parts: BrokerParts, steps: list[str]
) -> None:
    parts.topics.update(TopicConfig(topic_name=TOPIC))
    parts.offsets.commit("g", TOPIC, 0, 1)
    topics = Topics(parts.live, parts.store, parts.tables, _forget_nothing, Slices(parts.clock))
    parts.tables.write_in_threads()
    steps.clear()
    await topics.delete(DeleteTopicFromBroker(topic=TOPIC), caller_on())
    assert steps == [
        "mark loop",
        "queues loop",
        "topics.json thread",
        "consumerOffset.json thread",
        "finish thread",
    ]
    assert not parts.store.topics.unfinished_deletions()


async def test_a_master_that_is_replaced_while_it_deletes_a_topic_does_not_promise_it(
    parts: BrokerParts,
) -> None:
    role = parts.tables.role
    parts.topics.update(TopicConfig(topic_name=TOPIC))
    topics = Topics(parts.live, parts.store, parts.tables, _forget_nothing, Slices(parts.clock))
    parts.tables.write_in_threads()

    def begin() -> Callable[[], Awaitable[None]]:
        began = role.now

        async def copied() -> None:
            if role.now is not began:
                raise Refused(1, "no longer the master")

        return copied

    parts.topics.copied = begin
    asyncio.get_running_loop().call_soon(role.change, Role(broker_id=2, epoch=2))
    with pytest.raises(Refused, match="no longer the master"):
        await topics.delete(DeleteTopicFromBroker(topic=TOPIC), caller_on())


async def test_a_master_that_is_replaced_while_others_change_topics_changes_none(parts: BrokerParts) -> None:
    topics = Topics(parts.live, parts.store, parts.tables, _forget_nothing, Slices(parts.clock))
    async with topics._changing:
        waiting = asyncio.ensure_future(topics.create_or_update(CREATION, caller_on()))
        await asyncio.sleep(0)
        parts.tables.role.change(Role(broker_id=2, epoch=2))
    with pytest.raises(Refused, match="copies of its master's"):
        await waiting
    assert parts.topics.get(TOPIC) is None


async def test_a_topic_made_during_its_deletion_waits_for_the_end_of_it(
    parts: BrokerParts, steps: list[str]
) -> None:
    topics = Topics(parts.live, parts.store, parts.tables, _forget_nothing, Slices(parts.clock))
    parts.topics.update(TopicConfig(topic_name=TOPIC))
    parts.tables.write_in_threads()
    await asyncio.gather(
        topics.delete(DeleteTopicFromBroker(topic=TOPIC), caller_on()),
        topics.create_or_update(CREATION, caller_on()),
    )
    assert steps.index("finish thread") < len(steps) - 1 - steps[::-1].index("topics.json thread")
    assert TOPIC in parts.topics
    assert not parts.store.topics.unfinished_deletions()


async def test_a_change_that_the_disk_refuses_is_refused_and_written_later(
    parts: BrokerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = Slices(parts.clock)
    topics = Topics(parts.live, parts.store, parts.tables, _forget_nothing, slices)
    groups = Groups(parts.tables, lambda _: None, slices)
    parts.tables.write_in_threads()
    with monkeypatch.context() as full:
        full.setattr(JsonTable, "save_from_thread", refuse)
        with pytest.raises(Refused, match=r"topics\.json cannot be written: .*No space.*tries again"):
            await topics.create_or_update(CREATION, caller_on())
        creation = CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name="g"))
        with pytest.raises(Refused, match=r"subscriptionGroup\.json cannot be written: .*No space"):
            await groups.create_or_update(creation, caller_on())
        with pytest.raises(Refused, match=r"subscriptionGroup\.json cannot be written: .*No space"):
            await groups.delete(DeleteGroup(group_name="g", clean_offset=True), caller_on())
    assert TOPIC in parts.topics
    assert parts.groups.get("g") is None
    parts.topics.retry()
    parts.groups.retry()
    await parts.topics.saved()
    await parts.groups.saved()
    again = Tables.open(parts.live, parts.store, parts.clock)
    assert TOPIC in again.topics
    assert again.groups.get("g") is None


async def test_a_topic_stays_that_is_made_after_the_disk_refused_the_end_of_its_deletion(
    parts: BrokerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = Topics(parts.live, parts.store, parts.tables, _forget_nothing, Slices(parts.clock))
    parts.topics.update(TopicConfig(topic_name=TOPIC))
    parts.tables.write_in_threads()
    with monkeypatch.context() as full:
        full.setattr(JsonTable, "save_from_thread", refuse)
        with pytest.raises(Refused, match=f"topic {TOPIC} cannot be deleted: .*No space.*the next start"):
            await topics.delete(DeleteTopicFromBroker(topic=TOPIC), caller_on())
    assert parts.store.topics.unfinished_deletions() == [TOPIC]
    await topics.create_or_update(CREATION, caller_on())
    topics.finish_deletions()  # as the next start does
    assert TOPIC in parts.topics
