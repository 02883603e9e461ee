"""A broker is killed in the middle of transactions, again and again: the totals are right in the end."""

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_cluster import BrokerClient, message
from tests.support.killable_broker import start_killable_broker
from tools import campaign

from pyromq.errors import CallTimeout, Refused, TransportError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.pushes import CheckTransactionState
from pyromq.protocol.requests.sending import SendMessageAnswer
from pyromq.protocol.requests.transactions import EndTransaction

ROUNDS = campaign.rounds(8)
LANES = 8
MAX_PREPARED = 250
PRODUCERS = "tills"
COMMIT, ROLLBACK = SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK
SETTINGS = {
    "transaction_timeout_ms": 100,
    "transaction_check_interval_ms": 50,
    "transaction_op_interval_ms": 40,
    "transaction_op_max_bytes": 200,
    "transaction_check_max": 1_000_000,
    "flush_offsets_ms": 200,
}


class Books:
    """What the producers' databases say; the name of a transaction tells its decision."""

    def __init__(self) -> None:
        self.prepared: set[str] = set()
        self.committed: set[str] = set()
        """Those whose commit was acknowledged."""
        self.enough = asyncio.Event()
        self._wanted = 0

    def want(self, more: int) -> None:
        self.enough.clear()
        self._wanted = len(self.prepared) + more

    def prepare(self, name: str) -> None:
        self.prepared.add(name)
        if len(self.prepared) >= self._wanted:
            self.enough.set()


def decision(name: str) -> int:
    return COMMIT if name.startswith("commit") else ROLLBACK


async def produce(client: BrokerClient, lane: int, books: Books, choice: random.Random) -> None:
    """Transactions until the broker is gone: ended, ended twice, or left to the checks."""
    for number in range(1_000_000):
        name = f"{choice.choice(('commit', 'rollback'))}-{client.client_id}-{lane}-{number}"
        try:
            await one_transaction(client, name, books, choice)
        except CallTimeout:
            continue  # a busy machine
        except Refused as refused:
            if refused.code != ResponseCode.SYSTEM_BUSY:
                raise
        except TransportError:
            return


async def one_transaction(client: BrokerClient, name: str, books: Books, choice: random.Random) -> None:
    pairs = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "UNIQ_KEY": name}
    sent = await client.call(message(name.encode(), properties=pairs, sys_flag=SysFlag.TRANSACTION_PREPARED))
    books.prepare(name)
    for way in choice.choice(("wait", "oneway", "oneway wait", "wait wait", "")).split():
        if way == "oneway":
            await client.send_oneway(ending(name, sent))
        else:
            await client.call(ending(name, sent))
            if decision(name) == COMMIT:
                books.committed.add(name)


def ending(name: str, sent: SendMessageAnswer) -> EndTransaction:
    return EndTransaction(
        producer_group=PRODUCERS,
        tran_state_table_offset=sent.queue_offset,
        commit_log_offset=decode_offset_message_id(sent.msg_id).log_offset,
        commit_or_rollback=decision(name),
        msg_id=name,
    )


async def answer_checks(client: BrokerClient) -> None:
    try:
        while True:
            check = await client.pushed.get()
            if not isinstance(check, CheckTransactionState) or check.msg_id is None:
                continue
            await client.send_oneway(
                EndTransaction(
                    producer_group=PRODUCERS,
                    tran_state_table_offset=check.tran_state_table_offset,
                    commit_log_offset=check.commit_log_offset,
                    commit_or_rollback=decision(check.msg_id),
                    from_transaction_check=True,
                    msg_id=check.msg_id,
                )
            )
    except TransportError:
        pass


async def while_running(work: Coroutine[Any, Any, Any], others: Iterable[asyncio.Task[None]]) -> None:
    """Do some work that cannot end without the others: if one of them ends first, that is a failure."""
    needed = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({needed, *others}, return_when=asyncio.FIRST_COMPLETED)
    if needed not in done:
        needed.cancel()
        raise AssertionError(f"the connection was lost while the broker ran: {done}")
    needed.result()


async def delivered(client: BrokerClient) -> Counter[str]:
    found: Counter[str] = Counter()
    offset = 0
    while True:
        pulled = await client.pull(offset)
        if pulled.answer.code == ResponseCode.PULL_NOT_FOUND:
            return found
        for each in pulled.messages:
            found[each.body.decode()] += 1
        offset = pulled.answer.next_begin_offset


async def wait_until_all_have_ended(client: BrokerClient) -> None:
    while True:
        info = (await client.call(GetBrokerRuntimeInfo())).body
        assert info is not None
        if info.table.get("halfMessageCount") == "0":  # it is missing while the broker reads its log
            return


@pytest.mark.timeout(600)  # each round starts a process, which a busy machine makes wait
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_one_commit_is_one_message_however_often_the_broker_is_killed(
    tmp_path: Path, flush: str
) -> None:
    choice = campaign.chance(flush)
    books = Books()
    for round_number in range(ROUNDS):
        process, address = await start_killable_broker(tmp_path, flush, **SETTINGS)
        try:
            async with BrokerClient(address, HeaderForm(round_number % 2), f"p{round_number}") as client:
                await client.create_topic(queues=1)
                await client.heartbeat(producers=(PRODUCERS,))
                books.want(choice.randrange(MAX_PREPARED))
                async with asyncio.TaskGroup() as tasks:
                    answering = tasks.create_task(answer_checks(client))
                    lanes = [tasks.create_task(produce(client, lane, books, choice)) for lane in range(LANES)]
                    await while_running(books.enough.wait(), lanes)
                    process.kill()
                    await process.wait()
                    answering.cancel()
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
    process, address = await start_killable_broker(tmp_path, flush, **SETTINGS)
    try:
        async with BrokerClient(address) as client, asyncio.TaskGroup() as tasks:
            await client.heartbeat(producers=(PRODUCERS,))
            answering = tasks.create_task(answer_checks(client))
            await while_running(wait_until_all_have_ended(client), [answering])
            # Messages can be read when they are flushed, and this answer comes after that.
            await client.create_topic("Other", 1)
            await client.send(b"the last", "Other")
            found = await delivered(client)
            answering.cancel()
    finally:
        process.kill()
        await process.wait()
    wanted = {name for name in books.prepared if decision(name) == COMMIT}
    assert books.committed <= wanted <= found.keys()
    assert not [name for name in found if decision(name) == ROLLBACK]
    assert found.most_common(1)[0][1] == 1
    assert len(books.prepared) > len(wanted) > 0
