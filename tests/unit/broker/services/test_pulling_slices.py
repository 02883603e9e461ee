"""Pulls with filters: how many messages one turn of the loop looks at, whoever asks and however often."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.broker_parts import at_once, broker_parts
from tests.support.pulls import GROUP, TOPIC, Pulls, bodies

from pyromq.broker.services.pulling import COMMIT_FLAG, SUBSCRIPTION_FLAG, SUSPEND_FLAG
from pyromq.filtering.sql_parser import SqlFilter
from pyromq.protocol.codes import ResponseCode

PER_SLICE = 4
"""A test of a message takes 0.15 ms here, and a slice lasts 0.5 ms."""


class SlowFilters:
    """Filters that take time, and count what they are asked."""

    def __init__(self, pulls: Pulls, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pulls = pulls
        self.asked = 0
        matches = SqlFilter.matches

        def slowly(filter_: SqlFilter, properties: dict[str, str]) -> bool:
            self.asked += 1
            pulls.parts.clock.advance(0.00015)
            return matches(filter_, properties)

        monkeypatch.setattr(SqlFilter, "matches", slowly)

    def taken(self) -> int:
        asked, self.asked = self.asked, 0
        return asked


@pytest.fixture
async def pulls(tmp_path: Path) -> AsyncIterator[Pulls]:
    with broker_parts(tmp_path) as parts:
        parts.live.update({"enablePropertyFilter": "true"})
        yield Pulls(parts)


@pytest.fixture
def slow(pulls: Pulls, monkeypatch: pytest.MonkeyPatch) -> SlowFilters:
    return SlowFilters(pulls, monkeypatch)


def use_up_a_slice(pulls: Pulls) -> None:
    """And put messages of which none matches."""
    pulls.subscribe("n = 99", kind="SQL92")
    for number in range(20):
        pulls.put(f"m{number}", n=str(number))

    def work() -> bool:
        pulls.parts.clock.advance(0.00055)
        return True

    pulls.slices.run(work)


async def next_slice() -> None:
    """Between two slices there is a turn for others."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_a_filter_that_finds_nothing_in_its_slice_continues_in_the_next_ones(
    pulls: Pulls, slow: SlowFilters
) -> None:
    pulls.subscribe("n = 9", kind="SQL92")
    for number in range(10):
        pulls.put(f"m{number}", n=str(number))
    answer = pulls.pull(0)
    assert isinstance(answer, asyncio.Future)
    for examined in (PER_SLICE, PER_SLICE, 2):
        assert slow.taken() == examined
        assert answer.done() == (examined == 2)
        await next_slice()
    assert bodies(await answer) == ["m9"]


async def test_a_search_ends_after_800_messages_and_says_where_to_continue(
    pulls: Pulls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def matches(*_: object) -> bool:
        pulls.parts.clock.advance(0.001)
        return False

    monkeypatch.setattr(SqlFilter, "matches", matches)
    pulls.subscribe("n = 99", kind="SQL92")
    for number in range(900):
        pulls.put(f"m{number}", n="1")
    answer = pulls.pull(50)
    assert isinstance(answer, asyncio.Future)
    assert (await answer).code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert (await answer).ext["nextBeginOffset"] == "850"


async def test_a_search_commits_what_its_pull_commits_once(pulls: Pulls, slow: SlowFilters) -> None:
    pulls.subscribe("n = 9", kind="SQL92")
    for number in range(10):
        pulls.put(f"m{number}", n=str(number))
    answer = pulls.pull(0, sys_flag=COMMIT_FLAG, commit_offset=3)
    offsets = pulls.parts.tables.offsets
    assert offsets.query(GROUP, TOPIC, 0) == 3
    offsets.commit(GROUP, TOPIC, 0, 5)
    assert isinstance(answer, asyncio.Future)
    await answer
    assert offsets.query(GROUP, TOPIC, 0) == 5


async def test_a_search_that_reaches_the_end_is_answered_as_ever(pulls: Pulls, slow: SlowFilters) -> None:
    pulls.subscribe("n = 99", kind="SQL92")
    for number in range(10):
        pulls.put(f"m{number}", n=str(number))
    answer = pulls.pull(0, sys_flag=SUSPEND_FLAG)
    assert isinstance(answer, asyncio.Future)
    assert (await answer).code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert (await answer).ext["nextBeginOffset"] == "10"


async def test_a_filter_that_finds_something_in_its_slice_answers_with_that(
    pulls: Pulls, slow: SlowFilters
) -> None:
    pulls.subscribe("n > 1", kind="SQL92")
    for number in range(20):
        pulls.put(f"m{number}", n=str(number))
    answer = at_once(pulls.pull(0))
    assert bodies(answer) == ["m2", "m3"]
    assert answer.ext["nextBeginOffset"] == str(PER_SLICE)


async def test_a_pull_for_very_many_messages_looks_at_a_bounded_number(pulls: Pulls) -> None:
    pulls.subscribe("TagA")
    pulls.put("m", TAGS="TagB")
    answer = at_once(pulls.pull(0, max_msg_nums=2**31 - 1))
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY


async def test_pulls_with_filters_wait_for_each_other_and_share_one_slice(
    pulls: Pulls, slow: SlowFilters
) -> None:
    use_up_a_slice(pulls)
    waiting = [pulls.pull(16) for _ in range(3)]
    assert all(isinstance(each, asyncio.Future) and not each.done() for each in waiting)
    assert slow.taken() == 0
    for _ in waiting:
        await next_slice()
        assert slow.taken() == PER_SLICE
    for each in waiting:
        assert isinstance(each, asyncio.Future)
        assert (await each).ext["nextBeginOffset"] == "20"


async def test_a_long_list_of_tags_that_comes_with_the_pull_waits_like_a_filter(pulls: Pulls) -> None:
    use_up_a_slice(pulls)
    tags = "||".join(f"tag{number}" for number in range(2000))
    later = pulls.pull(0, sys_flag=SUBSCRIPTION_FLAG, subscription=tags, expression_type="TAG")
    assert isinstance(later, asyncio.Future)
    assert (await later).code == ResponseCode.PULL_RETRY_IMMEDIATELY
    short = pulls.pull(0, sys_flag=SUBSCRIPTION_FLAG, subscription="*", expression_type="TAG")
    assert len(bodies(at_once(short))) == 20


async def test_a_pull_that_waits_for_its_slice_is_refused_like_any_other(pulls: Pulls) -> None:
    use_up_a_slice(pulls)
    later = pulls.pull(0, sys_flag=SUBSCRIPTION_FLAG, subscription="n =", expression_type="SQL92")
    assert isinstance(later, asyncio.Future)
    with pytest.raises(Exception, match="incomplete"):
        await later


async def test_a_pull_whose_connection_closes_while_it_waits_for_its_slice_is_forgotten(
    pulls: Pulls, slow: SlowFilters
) -> None:
    use_up_a_slice(pulls)
    later = pulls.pull(0)
    pulls.connection.is_open = False
    await next_slice()
    assert isinstance(later, asyncio.Future)
    assert later.cancelled()
    assert slow.taken() == 0


async def test_held_pulls_woken_by_one_message_share_the_slices(pulls: Pulls, slow: SlowFilters) -> None:
    pulls.subscribe("n = 99", kind="SQL92")
    held = [pulls.pull(0, sys_flag=SUSPEND_FLAG) for _ in range(10)]
    pulls.put("no", n="1")
    for examined in (PER_SLICE, PER_SLICE, 2):
        assert slow.taken() == examined
        await next_slice()
    pulls.put("yes", n="99")
    for each in held:
        assert isinstance(each, asyncio.Future)
        assert bodies(await each) == ["yes"]


async def test_a_held_pull_goes_on_where_its_slice_ended_until_it_has_seen_everything(
    pulls: Pulls, slow: SlowFilters
) -> None:
    pulls.subscribe("n = 99", kind="SQL92")
    held = pulls.pull(0, sys_flag=SUSPEND_FLAG)
    assert isinstance(held, asyncio.Future)
    for number in range(10):
        pulls.put(f"m{number}", n=str(number))
    for _ in range(5):
        await next_slice()
    assert pulls.slices.waiting == 0
    assert slow.taken() == 10, "each message is looked at once"
    pulls.put("yes", n="99")
    assert bodies(await held) == ["yes"]


async def test_pulls_whose_time_is_over_at_once_share_the_slices(pulls: Pulls, slow: SlowFilters) -> None:
    pulls.subscribe("n = 99", kind="SQL92")
    held = [pulls.pull(0, sys_flag=SUSPEND_FLAG) for _ in range(10)]
    for each in held:
        assert isinstance(each, asyncio.Future)
    pulls.held_pulls.release_all()
    for each in held:
        assert isinstance(each, asyncio.Future)
        assert (await each).code == ResponseCode.PULL_NOT_FOUND
    assert pulls.held_pulls.held_count == 0
