"""Replicas that ask a master for changes of its tables."""

import asyncio
from pathlib import Path

from tests.support.broker_parts import broker_parts, caller_on

from pyromq.broker.replication.master import Master
from pyromq.broker.replication.table_changes import TableChanges
from pyromq.protocol.requests.replication import WatchTables
from pyromq.remoting.access.keeping import AccessRules
from pyromq.remoting.slices import Slices


async def test_a_replica_that_has_a_promise_already_waits_for_the_next_change(tmp_path: Path) -> None:
    with broker_parts(tmp_path) as parts:
        live, store, tables, clock = parts.live, parts.store, parts.tables, parts.clock
        master = Master(live, store, parts.durability, tables.role, clock)
        access = AccessRules(live.now, clock, directory=tmp_path)
        changes = TableChanges(live, store, tables, Slices(clock), access, master)
        first = await changes.watch(WatchTables(seen="", wait_millis=0), caller_on())
        waiting = asyncio.create_task(
            changes.watch(WatchTables(seen=first.ext["seen"], wait_millis=50), caller_on())
        )
        await asyncio.sleep(0)
        await tables.offsets.at_replicas()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done(), "others did not get a turn until its time was over"
        parts.add_topic("Orders")
        answer = await waiting
        assert answer.ext["seen"] != first.ext["seen"]
