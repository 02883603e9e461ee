"""Long tables are encoded beside the loop, and no part of it takes long."""

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_parts import broker_parts, caller_on

from pyromq.broker.services.groups import Groups
from pyromq.protocol import json_body
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.requests.groups import (
    GetAllGroupConfigs,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from pyromq.protocol.requests.topics import TopicList
from pyromq.remoting.long_answers import written
from pyromq.remoting.slices import Slices


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int]]:
    """What was encoded at once: whether on the loop's thread, and how many entries."""
    found: list[tuple[bool, int]] = []
    encode, loop_thread = json_body.encode, threading.get_ident()

    def noting(value: Any) -> bytes:
        entries = len(value) if isinstance(value, list | dict) else 1
        found.append((threading.get_ident() == loop_thread, entries))
        return encode(value)

    monkeypatch.setattr(json_body, "encode", noting)
    return found


async def test_a_short_table_is_encoded_at_once(encoded: list[tuple[bool, int]]) -> None:
    await written(TopicList(topic_list=["t"]), 1)
    assert encoded == [(True, 1)]


async def test_a_long_list_is_encoded_in_a_thread_a_few_entries_at_a_time(
    encoded: list[tuple[bool, int]],
) -> None:
    topics = TopicList(topic_list=[f"t{number}" for number in range(10_000)])
    answer = await written(topics, 10_000)
    assert json_body.decode(answer.body, TopicList) == topics
    assert all(not is_on_loop and entries <= 50 for is_on_loop, entries in encoded)


async def test_all_groups_are_listed_that_way(encoded: list[tuple[bool, int]], tmp_path: Path) -> None:
    configs = [SubscriptionGroupConfig(group_name=f"g{number}") for number in range(1_000)]
    with broker_parts(tmp_path) as parts:
        groups = Groups(parts.tables, lambda _: None, Slices(parts.clock))
        parts.groups.update(*configs)
        await parts.groups.saved()
        encoded.clear()
        answer = await groups.get_all(GetAllGroupConfigs(), caller_on())
    assert isinstance(answer, RawAnswer)
    assert all(not is_on_loop and entries <= 50 for is_on_loop, entries in encoded)
    table = json_body.decode(answer.body, SubscriptionGroupWrapper)
    assert {f"g{number}" for number in range(1_000)} <= table.subscription_group_table.keys()
