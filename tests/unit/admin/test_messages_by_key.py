"""Messages with a key, page by page: a broker tells its newest, and its index knows seconds only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.admin import messages
from pyromq.admin.cluster import Cluster
from pyromq.admin.messages import newest_by_key
from pyromq.protocol.requests.pulling import QueryMessage

LIMIT = 4


@dataclass(frozen=True)
class Stored:
    store_timestamp: int
    keys: str = "k"

    def get(self, name: str) -> str:
        return self.keys


def told_by(brokers: Sequence[Sequence[Stored]]) -> Any:
    async def told(cluster: Cluster, question: QueryMessage) -> list[tuple[int, list[Stored]]]:
        limit, end_ms = question.max_num, question.end_timestamp
        found = []
        for stored in brokers:
            newest = sorted(stored, key=lambda each: -each.store_timestamp)
            matching = [each for each in newest if each.store_timestamp // 1000 * 1000 <= end_ms][:limit]
            if matching:
                found.append((len(matching), matching))
        return found

    return told


async def every_page(brokers: Sequence[Sequence[Stored]]) -> tuple[list[int], bool]:
    """All that paging finds, and whether it came to the end."""
    found: list[int] = []
    end_ms = messages.FOREVER_MS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "_told", told_by(brokers))
        while True:
            look = await newest_by_key(cast(Cluster, None), "t", "k", LIMIT, end_ms)
            found += [each.store_timestamp for each in look.found]
            if look.next_end_ms is None:
                return found, look.is_whole
            assert look.next_end_ms < end_ms
            end_ms = look.next_end_ms


@given(st.lists(st.lists(st.integers(0, 40), unique=True, max_size=20), max_size=3))
async def test_paging_finds_every_message_once_and_newest_first(seconds: list[list[int]]) -> None:
    stored = [[Stored(second * 1000 + place) for second in broker] for place, broker in enumerate(seconds)]
    found, is_whole = await every_page(stored)
    assert is_whole
    assert found == sorted((each.store_timestamp for broker in stored for each in broker), reverse=True)


@given(st.lists(st.lists(st.integers(0, 5000), max_size=20), max_size=3))
async def test_what_the_index_cannot_tell_apart_is_said_to_be_missing(times: list[list[int]]) -> None:
    stored = [[Stored(at) for at in broker] for broker in times]
    found, is_whole = await every_page(stored)
    every = sorted((each.store_timestamp for broker in stored for each in broker), reverse=True)
    assert found == sorted(found, reverse=True)
    assert is_whole <= (found == every)


async def test_messages_whose_key_only_looks_alike_are_left_out_and_count_as_told() -> None:
    stored = [Stored(1000 * number, "other" if number % 2 else "k") for number in range(8)]
    assert await every_page([stored]) == ([6000, 4000, 2000, 0], True)
    stored = [Stored(1000 * number, "other" if number > 1 else "k") for number in range(20)]
    assert await every_page([stored]) == ([1000, 0], True)
