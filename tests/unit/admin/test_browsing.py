"""Looks at topics: what is held of each queue while the messages of all are put in order."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyromq.admin import browsing, messages, offsets
from pyromq.admin.cluster import Cluster
from pyromq.clock import ManualClock
from pyromq.protocol.body import MessageQueue

QUEUES = [MessageQueue("Large", "broker-a", number) for number in range(4)]
IN_EACH = 100


async def looked_at(monkeypatch: pytest.MonkeyPatch, body_size: int) -> tuple[browsing.Look, list[int]]:
    """A look at four queues with messages of one size, and how many messages each read asked for."""
    asked: list[int] = []

    async def read(
        cluster: Cluster, address: str, queue: MessageQueue, begin: int, end: int, *_: object, **__: object
    ) -> AsyncIterator[Any]:
        asked.append(end - begin)
        for offset in range(begin, end):
            yield SimpleNamespace(queue_offset=offset, store_timestamp=offset, body=bytes(body_size))

    async def chosen_queues(*_: object) -> dict[MessageQueue, str]:
        return dict.fromkeys(QUEUES, "127.0.0.1:1")

    async def limits(*_: object) -> tuple[int, int]:
        return 0, IN_EACH

    monkeypatch.setattr(messages, "read", read)
    monkeypatch.setattr(offsets, "chosen_queues", chosen_queues)
    monkeypatch.setattr(offsets, "limits", limits)
    cluster = cast(Cluster, SimpleNamespace(clock=ManualClock()))
    wanted = browsing.Wanted(limits=browsing.Limits(rows=80, bytes=64_000))
    return await browsing.look(cluster, "Large", wanted), asked


async def test_large_messages_are_not_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    look, asked = await looked_at(monkeypatch, 8_000)
    assert max(asked) == 2
    assert look.stop is browsing.Stop.BYTES


async def test_small_messages_are_read_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    look, asked = await looked_at(monkeypatch, 10)
    assert (len(look.found), len(asked), max(asked)) == (80, 8, 32)
    assert look.stop is browsing.Stop.ROWS
