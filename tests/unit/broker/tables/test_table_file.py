"""Groups and topics that readers bring about exist at once, and reach the disk when it lets them."""

import asyncio
import errno
import logging
import threading
from pathlib import Path

import msgspec
import pytest
from tests.support.faulty_files import FaultyFiles

from pyromq.broker.tables.delay_offsets import DelayOffsetTable
from pyromq.broker.tables.filters import FilterTable
from pyromq.broker.tables.groups import GroupTable
from pyromq.broker.tables.topics import TopicTable
from pyromq.clock import ManualClock
from pyromq.errors import Refused
from pyromq.protocol import json_body
from pyromq.protocol.requests.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from pyromq.protocol.requests.inspection import ConsumeStats, ConsumeStatsList
from pyromq.protocol.requests.membership import SubscriptionData
from pyromq.protocol.requests.offsets import ConsumerOffsetSerializeWrapper
from pyromq.protocol.requests.topics import TopicConfig, TopicConfigSerializeWrapper, TopicList
from pyromq.store.json_table import JsonTable


@pytest.fixture
def files(tmp_path: Path) -> FaultyFiles:
    return FaultyFiles(tmp_path)


def group_table(files: FaultyFiles, directory: Path) -> GroupTable:
    return GroupTable(JsonTable(files, directory / "groups.json"), ManualClock(), lambda: True)


def topic_table(files: FaultyFiles, directory: Path) -> TopicTable:
    return TopicTable(JsonTable(files, directory / "topics.json"), ManualClock())


def test_a_group_makes_itself_while_the_disk_is_full(
    tmp_path: Path, files: FaultyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    groups = group_table(files, tmp_path)
    files.failures["write"] = errno.ENOSPC
    with caplog.at_level(logging.INFO):
        assert groups.find("billing") is not None
        groups.retry()
        groups.create_missing(["shipping"])
    assert [record.levelname for record in caplog.records] == ["WARNING"], "told once"
    assert "groups.json" in caplog.text
    assert "No space left" in caplog.text
    assert group_table(files, tmp_path).get("billing") is None
    files.failures.clear()
    groups.retry()
    assert group_table(files, tmp_path).get("billing") is not None
    assert group_table(files, tmp_path).get("shipping") is not None


def test_a_retry_topic_is_made_and_told_while_the_disk_is_full(tmp_path: Path, files: FaultyFiles) -> None:
    topics = topic_table(files, tmp_path)
    told: list[str] = []
    topics.on_change(lambda configs: told.extend(config.topic_name for config in configs))
    files.failures["write"] = errno.ENOSPC
    topics.create_missing([TopicConfig(topic_name="%RETRY%billing")])
    assert told == ["%RETRY%billing"]
    assert "%RETRY%billing" in topics
    files.failures.clear()
    topics.persist()
    assert "%RETRY%billing" in topic_table(files, tmp_path)


def test_a_change_by_an_operator_fails_if_it_cannot_be_written(tmp_path: Path, files: FaultyFiles) -> None:
    groups, topics = group_table(files, tmp_path), topic_table(files, tmp_path)
    files.failures["write"] = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        groups.update(SubscriptionGroupConfig(group_name="billing"))
    with pytest.raises(OSError, match="No space"):
        topics.update(TopicConfig(topic_name="Orders"))
    with pytest.raises(OSError, match="No space"):
        groups.persist()


# ---------------------------------------------------------------------- beside a loop


class Gate:
    """Holds the threads that write tables, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []
        save = JsonTable.save_from_thread

        def save_slowly(file: JsonTable, value: msgspec.Struct) -> None:
            self.threads.append(threading.current_thread())
            self.began.set()
            self.may_end.wait(60)
            save(file, value)

        monkeypatch.setattr(JsonTable, "save_from_thread", save_slowly)

    async def reached(self) -> None:
        await asyncio.to_thread(self.began.wait, 60)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


async def test_threads_write_and_changes_meanwhile_are_written_together(
    tmp_path: Path, files: FaultyFiles, gate: Gate
) -> None:
    topics = topic_table(files, tmp_path)
    topics.write_in_threads()
    topics.update(TopicConfig(topic_name="First"))
    await gate.reached()
    for number in range(20):
        topics.update(TopicConfig(topic_name=f"Later{number}"))
    assert not topics.is_written("First")
    gate.may_end.set()
    await topics.saved()
    assert topics.is_written("First")
    assert topics.is_written("Later19")
    assert len(gate.threads) == 2
    assert threading.current_thread() not in gate.threads
    assert "Later19" in topic_table(files, tmp_path)


async def test_what_threads_cannot_write_is_an_error_for_those_who_wait_and_tried_again(
    tmp_path: Path, files: FaultyFiles
) -> None:
    topics = topic_table(files, tmp_path)
    topics.write_in_threads()
    files.failures["write"] = errno.ENOSPC
    topics.update(TopicConfig(topic_name="Orders"))
    with pytest.raises(Refused, match="No space"):
        await topics.saved()
    assert not topics.is_written("Orders")
    with pytest.raises(Refused, match="No space"):
        await topics.saved()
    files.failures.clear()
    await topics.saved()
    assert topics.is_written("Orders")
    assert "Orders" in topic_table(files, tmp_path)


async def test_a_change_of_a_topic_does_not_make_it_unwritten(
    tmp_path: Path, files: FaultyFiles, gate: Gate
) -> None:
    topics = topic_table(files, tmp_path)
    topics.update(TopicConfig(topic_name="Orders"))
    topics.write_in_threads()
    topics.update(TopicConfig(topic_name="Orders", perm=4))
    assert topics.is_written("Orders")
    gate.may_end.set()
    await topics.saved()


@pytest.mark.parametrize("end", ["persist", "abandon"])
async def test_after_the_end_no_thread_writes(
    tmp_path: Path, files: FaultyFiles, gate: Gate, end: str
) -> None:
    topics = topic_table(files, tmp_path)
    topics.write_in_threads()
    topics.update(TopicConfig(topic_name="First"))
    await gate.reached()
    topics.update(TopicConfig(topic_name="Second"))
    threading.Timer(0.05, gate.may_end.set).start()
    getattr(topics, end)()
    names_then = topic_table(files, tmp_path).all().keys()
    topics.update(TopicConfig(topic_name="Third"))
    with pytest.raises(Refused, match="the broker stops"):
        await topics.saved()
    assert topic_table(files, tmp_path).all().keys() == names_then
    assert ("Second" in names_then) is (end == "persist")


@pytest.mark.parametrize("count", [0, 1, 49, 50, 51, 120])
def test_a_table_encoded_in_pieces_has_the_same_bytes(count: int) -> None:
    groups = SubscriptionGroupWrapper(
        subscription_group_table={
            f'g"{n}': SubscriptionGroupConfig(group_name=f"é{n}") for n in range(count)
        },
        forbidden_table={f"g{n}": {"T": 1} for n in range(count)},
    )
    topics = TopicConfigSerializeWrapper(
        topic_config_table={f"T{n}": TopicConfig(topic_name=f"T{n}") for n in range(count)}
    )
    offsets = ConsumerOffsetSerializeWrapper(offset_table={f"T@{n}": {n: 1, 7: 2} for n in range(count)})
    names = TopicList(broker_addr="a:1", topic_list=[f'T"é{n}' for n in range(count)])
    lags = ConsumeStatsList(consume_stats_list=[{f"g{n}": [ConsumeStats()]} for n in range(count)])
    for table in (groups, topics, offsets, names, lags):
        pieces = list(json_body.encode_in_pieces(table))
        assert b"".join(pieces) == json_body.encode(table)
    assert len(list(json_body.encode_in_pieces(topics))) >= count // 50


async def test_threads_write_filters_and_the_end_writes_what_is_left(
    tmp_path: Path, files: FaultyFiles, gate: Gate
) -> None:
    def table() -> FilterTable:
        return FilterTable(JsonTable(files, tmp_path / "filters.json"), ManualClock(), lambda: 1 << 60)

    def subscription(topic: str) -> SubscriptionData:
        return SubscriptionData(topic=topic, sub_string="a = 1", expression_type="SQL92", sub_version=1)

    filters = table()
    filters.write_in_threads()
    filters.register("g", [subscription("First")])
    filters.persist()
    await gate.reached()
    assert threading.current_thread() not in gate.threads
    filters.register("h", [subscription("Second")])
    threading.Timer(0.05, gate.may_end.set).start()
    filters.close()
    again = table()
    assert again.get("First", "g") is not None
    assert again.get("Second", "h") is not None


async def test_a_thread_writes_the_progress_of_delayed_messages_and_never_over_what_is_newer(
    tmp_path: Path, files: FaultyFiles, gate: Gate
) -> None:
    def table() -> DelayOffsetTable:
        return DelayOffsetTable(JsonTable(files, tmp_path / "delayOffset.json"), ManualClock())

    offsets = table()
    offsets.write_in_threads()
    offsets.advance(1, 5)
    offsets.save(offsets.take())
    await gate.reached()
    assert threading.current_thread() not in gate.threads
    offsets.advance(1, 6)
    threading.Timer(0.05, gate.may_end.set).start()
    offsets.save_now(offsets.take())
    assert table().get(1) == 6
    offsets.advance(1, 7)
    offsets.abandon()
    offsets.save(offsets.take())
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        await task
    assert table().get(1) == 6
