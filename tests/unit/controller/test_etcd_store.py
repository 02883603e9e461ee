"""A controller that leads by etcd, over an etcd in memory that can lose its data."""

import itertools
from typing import Any, cast

import pytest
from tests.simulation.etcd import EtcdData

from pyromq.clock import ManualClock
from pyromq.controller.etcd_store import EtcdStore
from pyromq.controller.groups import GroupRecord
from pyromq.controller.store import Leader, NotLeading


class _Gateway:
    def __init__(self) -> None:
        self.data = EtcdData()
        self._leases = itertools.count(1)

    async def call(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        return self.data.answer(path, asked, 0.0, next(self._leases))


def leads(store: EtcdStore) -> bool:
    return store.is_leading


async def test_a_leader_changes_nothing_after_etcd_lost_its_data_and_another_leads() -> None:
    etcd, clock = _Gateway(), ManualClock()
    first, second = (EtcdStore(cast(Any, etcd), "/", 5, clock) for _ in range(2))
    await first.open(Leader("1", "a:1"))
    term = first._term
    etcd.data.wipe()
    await second.open(Leader("2", "b:2"))
    assert second._term == term, "the second key was made at the same revision"
    assert leads(first), "the first one has not heard of it"
    with pytest.raises(NotLeading):
        await first.replace("g", GroupRecord(cluster="c", name="g"), 0)
    assert not leads(first)
    with pytest.raises(NotLeading):
        await first.read("g")
    assert await second.replace("g", GroupRecord(cluster="c", name="g"), 0)
