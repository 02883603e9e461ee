"""Groups and topics that readers bring about exist at once, and reach the disk when it lets them."""

import errno
import logging
from pathlib import Path

import pytest
from tests.support.faulty_files import FaultyFiles

from pyromq.broker.tables.groups import GroupTable
from pyromq.broker.tables.topics import TopicTable
from pyromq.clock import ManualClock
from pyromq.protocol.bodies.groups import SubscriptionGroupConfig
from pyromq.protocol.bodies.topics import TopicConfig
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
        groups.make_missing(["shipping"])
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
    topics.make_missing([TopicConfig(topic_name="%RETRY%billing")])
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
