"""A table that comes in pages is copied as one, and never as a mixture of two versions."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from pyromq.broker.replication.table_sync import TableSync
from pyromq.protocol import json_body
from pyromq.protocol.body import DataVersion
from pyromq.protocol.requests.groups import (
    GetAllGroupConfigs,
    GetAllGroupConfigsAnswer,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from pyromq.protocol.requests.topics import (
    GetAllTopicConfigs,
    GetAllTopicConfigsAnswer,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)

PAGE = 2


@dataclass
class Master:
    """Answers as Apache's brokers do: a page of another version is the first one."""

    names: list[str]
    knows_pages: bool = True
    change_after: int | None = None
    asked: list[int] = field(default_factory=list)
    version: DataVersion = field(default_factory=lambda: DataVersion(counter=1))

    async def call(self, _: str, request: GetAllTopicConfigs | GetAllGroupConfigs, __: float) -> object:
        is_topics = isinstance(request, GetAllTopicConfigs)
        start = (request.topic_seq if isinstance(request, GetAllTopicConfigs) else request.group_seq) or 0
        self.asked.append(start)
        if len(self.asked) == self.change_after:
            self.version = DataVersion(counter=2)
            self.names = [f"new-{name}" for name in self.names]
        if start and request.data_version != json_body.encode(self.version).decode():
            start = 0
        page = self.names[start : start + PAGE] if self.knows_pages else self.names
        total = len(self.names) if self.knows_pages else None
        if is_topics:
            topics = {name: TopicConfig(topic_name=name) for name in page}
            table = TopicConfigAndMappingSerializeWrapper(
                data_version=self.version, topic_config_table=topics
            )
            return GetAllTopicConfigsAnswer(total_topic_num=total, body=table)
        groups = SubscriptionGroupWrapper(
            data_version=self.version,
            subscription_group_table={name: SubscriptionGroupConfig(group_name=name) for name in page},
            forbidden_table={name: {"topic": 1} for name in page},
        )
        return GetAllGroupConfigsAnswer(total_group_num=total, body=groups)


def copied(master: Master, what: str) -> list[list[str]]:
    """The names in each table of the copy."""
    sync = cast(Any, TableSync.__new__(TableSync))
    sync._dialer = master
    if what == "topics":
        return [list(asyncio.run(sync._all_topics("m"))[0].topic_config_table)]
    found = asyncio.run(sync._all_groups("m"))
    return [list(found.subscription_group_table), list(found.forbidden_table)]


@pytest.mark.parametrize("what", ["topics", "groups"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7])
def test_all_pages_make_the_table(what: str, count: int) -> None:
    names = [f"n{number}" for number in range(count)]
    master = Master(names)
    assert all(each == names for each in copied(master, what))
    assert master.asked == list(range(0, max(count, 1), PAGE))


@pytest.mark.parametrize("what", ["topics", "groups"])
def test_a_master_without_pages_is_asked_once(what: str) -> None:
    master = Master(["a", "b", "c"], knows_pages=False)
    assert all(each == ["a", "b", "c"] for each in copied(master, what))
    assert master.asked == [0]


@pytest.mark.parametrize("what", ["topics", "groups"])
@pytest.mark.parametrize("change_after", [1, 2, 3])
def test_a_table_that_changes_meanwhile_is_copied_from_its_beginning(what: str, change_after: int) -> None:
    master = Master(["a", "b", "c", "d", "e"], change_after=change_after)
    assert all(each == [f"new-{name}" for name in "abcde"] for each in copied(master, what))
