"""Transactions over sockets, in both header forms, with our own producer and with bare requests."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_cluster import TOPIC, Bench, message

from pyromq.broker.tables.role import Role
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.record import SysFlag, decode_record
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.pushes import CheckTransactionState
from pyromq.protocol.requests.sending import SendMessageAnswer
from pyromq.protocol.requests.transactions import EndTransaction

PRODUCERS = "tills"
COMMIT, ROLLBACK = SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK
AT_ONCE: dict[str, Any] = {
    "transaction_timeout_ms": 0,
    "transaction_check_interval_ms": 20,
    "transaction_op_interval_ms": 20,
}
"""Nothing waits: each round checks what is there."""


@pytest.fixture(params=[HeaderForm.JSON, HeaderForm.BINARY], ids=["json", "binary"])
def form(request: pytest.FixtureRequest) -> HeaderForm:
    return HeaderForm(request.param)


@pytest.fixture
async def bench(tmp_path: Path, form: HeaderForm) -> AsyncIterator[Bench]:
    async with Bench(tmp_path, form) as found:
        await found.client.create_topic()
        yield found


async def prepare(bench: Bench, body: bytes, **fields: Any) -> SendMessageAnswer:
    pairs = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "UNIQ_KEY": body.decode()}
    return await bench.client.call(
        message(body, properties=pairs, sys_flag=SysFlag.TRANSACTION_PREPARED, queue_id=1, **fields)
    )


def ending(half: SendMessageAnswer, state: int, **changes: Any) -> EndTransaction:
    fields: dict[str, Any] = {
        "producer_group": PRODUCERS,
        "tran_state_table_offset": half.queue_offset,
        "commit_log_offset": decode_offset_message_id(half.msg_id).log_offset,
        "commit_or_rollback": state,
        "msg_id": half.transaction_id,
        "transaction_id": half.transaction_id,
    }
    return EndTransaction(**fields | changes)


async def next_check(bench: Bench) -> CheckTransactionState:
    while True:
        pushed = await bench.client.pushed.get()
        if isinstance(pushed, CheckTransactionState):
            return pushed


def answer_to(check: CheckTransactionState, state: int) -> EndTransaction:
    return EndTransaction(
        producer_group=PRODUCERS,
        topic=check.topic,
        tran_state_table_offset=check.tran_state_table_offset,
        commit_log_offset=check.commit_log_offset,
        commit_or_rollback=state,
        from_transaction_check=True,
        msg_id=check.msg_id or "",
        transaction_id=check.transaction_id,
    )


async def test_only_committed_messages_are_delivered(bench: Bench) -> None:
    halves = [await prepare(bench, body) for body in (b"one", b"two", b"three")]
    assert [half.queue_id for half in halves] == [1, 1, 1]
    assert (await bench.client.pull(queue_id=1)).bodies == []
    await bench.client.call(ending(halves[2], COMMIT))
    await bench.client.call(ending(halves[1], ROLLBACK))
    await bench.client.call(ending(halves[0], COMMIT))
    assert (await bench.client.pull(queue_id=1)).bodies == [b"three", b"one"]


async def test_a_oneway_end_wakes_the_consumers_that_wait(bench: Bench) -> None:
    half = await prepare(bench, b"one")
    waiting = asyncio.create_task(bench.client.pull(queue_id=1, hold_ms=30_000))
    await bench.client.send_oneway(ending(half, COMMIT))
    assert (await waiting).bodies == [b"one"]


async def test_wrong_ends_are_refused(bench: Bench) -> None:
    half = await prepare(bench, b"one")
    for changes in ({"producer_group": "x"}, {"tran_state_table_offset": 9}, {"commit_log_offset": 9}):
        refused = await bench.client.refusal(ending(half, COMMIT, **changes))
        assert refused.code == ResponseCode.SYSTEM_ERROR
    await bench.client.call(ending(half, ROLLBACK))
    assert (await bench.client.refusal(ending(half, COMMIT))).code == ResponseCode.ILLEGAL_OPERATION
    assert (await bench.client.pull(queue_id=1)).bodies == []


async def test_the_broker_tells_how_many_transactions_are_open(bench: Bench) -> None:
    half = await prepare(bench, b"one")
    await prepare(bench, b"two", born_timestamp=1_600_000_000_000)
    await bench.client.call(ending(half, COMMIT))
    table = (await bench.client.call(GetBrokerRuntimeInfo())).body
    assert table is not None
    assert table.table["halfMessageCount"] == "1"
    assert int(table.table["halfMessageOldestAgeMs"]) > 3_600_000


async def test_a_producer_on_a_new_connection_answers_the_check(tmp_path: Path, form: HeaderForm) -> None:
    async with Bench(tmp_path, form, **AT_ONCE) as bench:
        await bench.client.create_topic()
        await prepare(bench, b"one")
        await bench.client.heartbeat(producers=(PRODUCERS,))
        await next_check(bench)
        (await bench.client.connection()).close()
        await bench.client.heartbeat(producers=(PRODUCERS,))
        check = await next_check(bench)
        shown = decode_record(check.body)
        assert (shown.topic, shown.queue_id, shown.body) == (TOPIC, 1, b"one")
        await bench.client.send_oneway(answer_to(check, COMMIT))
        assert (await bench.client.pull(queue_id=1, hold_ms=30_000)).bodies == [b"one"]


@pytest.mark.parametrize("crash", [True, False])
async def test_transactions_outlive_the_broker(tmp_path: Path, form: HeaderForm, crash: bool) -> None:
    async with Bench(tmp_path, form) as bench:
        await bench.client.create_topic()
        halves = [await prepare(bench, body) for body in (b"one", b"two", b"three")]
        await bench.client.call(ending(halves[0], COMMIT))
        await bench.client.call(ending(halves[1], ROLLBACK))
        if crash:
            await bench.broker.abandon()
    async with Bench(tmp_path, form, **AT_ONCE) as bench:
        await bench.client.call(ending(halves[0], COMMIT))
        with pytest.raises(Refused):
            await bench.client.call(ending(halves[1], COMMIT))
        await bench.client.heartbeat(producers=(PRODUCERS,))
        check = await next_check(bench)
        assert check.msg_id == "three"
        await bench.client.call(answer_to(check, COMMIT))
        assert (await bench.client.pull(queue_id=1)).bodies == [b"one", b"three"]


async def test_a_replica_that_becomes_master_begins_to_check(tmp_path: Path, form: HeaderForm) -> None:
    async with Bench(tmp_path, form) as bench:
        await bench.client.create_topic()
        half = await prepare(bench, b"one")
        await bench.client.heartbeat(producers=(PRODUCERS,))
        bench.broker.role.change(Role(1, epoch=1))
        refused = await bench.client.refusal(ending(half, COMMIT))
        assert refused.code == ResponseCode.SLAVE_NOT_AVAILABLE
        bench.broker.role.change(Role(0, epoch=2))
        await bench.client.call(ending(half, COMMIT))
        assert (await bench.client.pull(queue_id=1)).bodies == [b"one"]
