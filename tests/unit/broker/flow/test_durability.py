"""Senders wait for what settings demand: this broker's disk, enough replicas, both, or neither."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker_parts import BrokerParts, broker_parts

from pyromq.broker.flow.draft import Draft
from pyromq.store.results import AppendResult, AppendStatus

OK, LATE = AppendStatus.PUT_OK, AppendStatus.FLUSH_SLAVE_TIMEOUT


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[BrokerParts]:
    with broker_parts(tmp_path) as parts:
        yield parts


def append(parts: BrokerParts) -> AppendResult:
    return parts.appending.append(Draft("T", 0, b"body", b"", 0, bytes(8)))


async def test_without_replicas_and_with_asynchronous_flush_nobody_waits(parts: BrokerParts) -> None:
    assert parts.durability.is_immediate
    told: list[AppendStatus] = []
    parts.durability.when_safe(append(parts), told.append)
    assert told == [OK]


async def test_senders_wait_for_replicas_once_there_are_any(parts: BrokerParts) -> None:
    parts.durability.replicated(0)
    assert not parts.durability.is_immediate
    told: list[AppendStatus] = []
    first, second = append(parts), append(parts)
    for result in (first, second):
        assert not parts.durability.is_safe_enough(result, b"")
        parts.durability.when_safe(result, told.append)
    parts.durability.replicated(first.end_offset)
    assert told == [OK]
    parts.durability.replicated(second.end_offset)
    assert told == [OK, OK]


async def test_a_sender_whose_replicas_are_late_is_told_so(parts: BrokerParts) -> None:
    parts.durability.replicated(0)
    told: list[AppendStatus] = []
    parts.durability.when_safe(append(parts), told.append)
    parts.clock.advance(4.9)
    parts.durability.expire()
    assert told == []
    parts.clock.advance(0.2)
    parts.durability.expire()
    assert told == [LATE]


async def test_readers_see_nothing_that_a_sender_still_waits_for(parts: BrokerParts) -> None:
    parts.durability.replicated(0)
    first, second = append(parts), append(parts)
    assert parts.durability.readable_offset == 0
    parts.durability.replicated(first.end_offset)
    assert parts.durability.readable_offset == first.end_offset
    parts.store.dispatch(10, parts.durability.readable_offset)
    assert parts.store.queues.max_offset("T", 0) == 1
    parts.durability.replicated(second.end_offset + 1000)
    assert parts.durability.readable_offset == second.end_offset


async def test_waiting_ends_when_replicas_are_no_longer_waited_for(parts: BrokerParts) -> None:
    parts.durability.replicated(0)
    told: list[AppendStatus] = []
    parts.durability.when_safe(append(parts), told.append)
    parts.durability.replicated(None)
    assert (told, parts.durability.is_immediate) == ([OK], True)


async def test_with_synchronous_flush_disk_and_replicas_are_both_waited_for(tmp_path: Path) -> None:
    with broker_parts(tmp_path, store={"flush_disk_type": "SYNC_FLUSH"}) as parts:
        parts.durability.replicated(0)
        told: list[AppendStatus] = []
        result = append(parts)
        parts.durability.when_safe(result, told.append)
        parts.durability.replicated(result.end_offset)
        assert told == []
        parts.store.flushes.wait(result)
        parts.store.flushes.settle()
        assert told == [OK]


async def test_senders_do_not_wait_while_too_few_replicas_can_be_reached(parts: BrokerParts) -> None:
    parts.durability.replicated(0, is_reachable=False)
    told: list[AppendStatus] = []
    result = append(parts)
    parts.durability.when_safe(result, told.append)
    assert told == [AppendStatus.SLAVE_NOT_AVAILABLE]
    assert parts.durability.readable_offset == result.end_offset


async def test_readers_see_a_message_once_its_sender_was_told_that_replicas_are_late(
    parts: BrokerParts,
) -> None:
    parts.durability.replicated(0)
    told: list[AppendStatus] = []
    first = append(parts)
    parts.durability.when_safe(first, told.append)
    append(parts)
    parts.clock.advance(10)
    parts.durability.expire()
    assert told == [LATE]
    assert parts.durability.readable_offset == first.end_offset


async def test_who_waits_already_still_waits_when_a_replica_is_lost(parts: BrokerParts) -> None:
    parts.durability.replicated(0)
    told: list[AppendStatus] = []
    result = append(parts)
    parts.durability.when_safe(result, told.append)
    parts.durability.replicated(0, is_reachable=False)
    assert told == []
    assert parts.durability.readable_offset == 0
    parts.durability.replicated(result.end_offset)
    assert told == [OK]


async def test_a_sender_whose_broker_is_not_master_any_more_is_not_told_that_all_is_well(
    parts: BrokerParts,
) -> None:
    parts.durability.replicated(0)
    told: list[AppendStatus] = []
    result = append(parts)
    parts.durability.when_safe(result, told.append)
    parts.durability.give_up()
    assert told == [LATE]
    parts.durability.replicated(result.end_offset)
    assert told == [LATE]


async def test_under_a_controller_readers_see_nothing_that_replicas_lack_even_if_nobody_waits(
    parts: BrokerParts,
) -> None:
    parts.durability.hide_unconfirmed()
    parts.durability.replicated(0)
    told: list[AppendStatus] = []
    result = append(parts)
    parts.durability.when_safe(result, told.append)
    parts.clock.advance(5.1)
    parts.durability.expire()
    assert told == [LATE]
    assert parts.durability.readable_offset == 0
    parts.durability.replicated(result.end_offset)
    assert parts.durability.readable_offset == result.end_offset
