"""A new master tells nobody of messages that the next one may lack, nor where they are."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_parts import BrokerParts, broker_parts, caller_on
from tests.support.small_stores import append, dispatch_all

from pyromq.broker.flow import durability as module
from pyromq.broker.services.offsets import Offsets
from pyromq.broker.services.queries import Queries
from pyromq.errors import Refused
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.offsets import GetMaxOffset, SearchOffset
from pyromq.protocol.requests.pulling import QueryMessage, ViewMessage
from pyromq.remoting.slices import Slices

KEYED = b"KEYS\x01k\x02"


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[BrokerParts]:
    with broker_parts(tmp_path) as parts:
        parts.add_topic("T", queues=1)
        append(parts.store, b"m", topic="T", properties=KEYED)
        dispatch_all(parts.store)
        yield parts


def ask_everything(parts: BrokerParts) -> list[Any]:
    """The end of a queue, the place of a time, a message by its place, messages by their key."""
    offsets = Offsets(
        parts.live,
        parts.store,
        parts.tables,
        slices=Slices(parts.clock),
        on_reset=lambda _: None,
        when_readable=parts.durability.when_readable,
    )
    queries = Queries(parts.store, parts.durability)
    keyed = QueryMessage(topic="T", key="k", max_num=32, begin_timestamp=0, end_timestamp=1 << 62)
    return [
        offsets.max_offset(GetMaxOffset(topic="T", queue_id=0), caller_on()),
        offsets.search(SearchOffset(topic="T", queue_id=0, timestamp=1 << 50), caller_on()),
        queries.view(ViewMessage(offset=0), caller_on()),
        queries.query(keyed, caller_on()),
    ]


async def test_questions_to_a_new_master_wait_until_its_log_is_confirmed(parts: BrokerParts) -> None:
    expected = ask_everything(parts)
    assert all(isinstance(answer, Answer) for answer in expected), "at once"
    parts.durability.hide_unconfirmed()
    asked = ask_everything(parts)
    await asyncio.sleep(0)
    waiting = [answer for answer in asked if isinstance(answer, asyncio.Future) and not answer.done()]
    assert len(waiting) == len(expected)
    parts.durability.replicated(parts.store.log.end - 1)
    await asyncio.sleep(0)
    assert not any(answer.done() for answer in waiting)
    parts.durability.replicated(parts.store.log.end)
    assert await asyncio.gather(*waiting) == expected


async def test_who_asks_a_master_that_nobody_confirms_is_told_to_try_again(
    parts: BrokerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CONFIRMED_S", 0.0)
    parts.durability.hide_unconfirmed()
    for asked in ask_everything(parts):
        assert isinstance(asked, asyncio.Future)
        with pytest.raises(Refused, match="try again") as refused:
            await asked
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_nobody_views_a_message_by_its_place_before_the_replicas_have_it(parts: BrokerParts) -> None:
    store, queries = parts.store, Queries(parts.store, parts.durability)
    parts.durability.hide_unconfirmed()
    parts.durability.replicated(store.log.end)
    place = append(store, b"n", topic="T").log_offset
    with pytest.raises(Refused, match=f"no message begins at log offset {place}"):
        queries.view(ViewMessage(offset=place), caller_on())
    parts.durability.replicated(store.log.end)
    assert isinstance(queries.view(ViewMessage(offset=place), caller_on()), Answer)
