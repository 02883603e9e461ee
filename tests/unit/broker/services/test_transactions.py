"""Transactions: a message is delivered once if it is committed, and never if it is rolled back."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ErrorLogs
from tests.support.faulty_files import FaultyFiles
from tests.support.transactions import (
    COMMIT,
    HALF,
    OPS,
    PRODUCERS,
    ROLLBACK,
    TOPIC,
    UNKNOWN,
    Half,
    transaction_bench,
)

from pyromq.broker.flow import open_transactions
from pyromq.broker.flow.durability import Durability
from pyromq.broker.tables.role import Role
from pyromq.clock import ManualClock
from pyromq.errors import Refused
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.record import SysFlag, decode_record


class TestEnds:
    async def test_a_half_message_is_hidden_until_it_is_committed(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1")
            assert bench.delivered() == []
            bench.end(half, COMMIT)
            assert bench.delivered() == ["A1"]

    async def test_a_rolled_back_message_is_never_delivered(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1")
            bench.end(half, ROLLBACK)
            assert bench.refused(half, COMMIT).code == ResponseCode.ILLEGAL_OPERATION
            await bench.check(after_s=3600)
            assert (bench.delivered(), bench.asked()) == ([], [])

    async def test_a_half_message_is_stored_as_apache_stores_it(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            bench.prepare("A1")
            (half,) = bench.messages(HALF, 0)
            found = half.property_map()
            assert found[props.REAL_TOPIC] == TOPIC
            assert found[props.REAL_QUEUE_ID] == "2"
            assert found[props.TRANSACTION_ID] == "A1"
            assert found[props.TRANSACTION_PREPARED] == "true"
            assert half.sys_flag & SysFlag.TRANSACTION_MASK == 0

    async def test_a_committed_message_is_the_one_that_was_sent(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1", colour="red")
            born_ms = bench.clock.now_ms()
            bench.clock.advance(1)
            bench.end(half, COMMIT)
            (prepared,), (message,) = bench.messages(HALF, 0), bench.messages()
            assert message.properties == prepared.properties
            assert (message.get("TAGS"), message.get("KEYS"), message.get("colour")) == ("t", "k", "red")
            assert (message.flag, message.born_timestamp) == (7, born_ms)
            assert message.born_host == prepared.born_host
            assert message.prepared_transaction_offset == half.log_offset
            assert message.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT

    async def test_a_committed_message_waits_for_its_delay_level(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1", DELAY="3")
            assert len(bench.messages(HALF, 0)) == 1
            bench.end(half, COMMIT)
            (parked,) = bench.messages(names.SCHEDULE_TOPIC, 2)
            assert (parked.get(props.REAL_TOPIC), parked.get(props.REAL_QUEUE_ID)) == (TOPIC, "2")
            assert bench.delivered() == []

    async def test_a_committed_message_waits_for_its_time(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path, transaction_check_max=1) as bench:
            deliver_ms = str(bench.clock.now_ms() + 3_600_000)
            half = bench.prepare("A1", TIMER_DELIVER_MS=deliver_ms)
            bench.prepare("A2", TIMER_DELIVER_MS=deliver_ms)
            bench.end(half, COMMIT)
            (parked,) = bench.messages(names.TIMER_TOPIC, 0)
            assert (parked.get(props.REAL_TOPIC), parked.get(props.REAL_QUEUE_ID)) == (TOPIC, "2")
            bench.end(half, COMMIT)
            for _ in range(2):
                await bench.check(after_s=7)
            (kept,) = bench.given_up()
            assert (kept.body, kept.get(props.REAL_TOPIC)) == (b"A2", TOPIC)
            assert len(bench.messages(names.TIMER_TOPIC, 0)) == 1

    async def test_a_time_that_is_not_accepted_is_refused_before_the_transaction(
        self, tmp_path: Path
    ) -> None:
        async with transaction_bench(tmp_path) as bench:
            with pytest.raises(Refused, match="timerMaxDelaySec"):
                bench.prepare("A1", TIMER_DELAY_SEC=str(10**6))
            assert len(bench.open.halves) == 0

    async def test_unknown_leaves_the_transaction_open(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1")
            bench.end(half, UNKNOWN)
            assert len(bench.open.halves) == 1
            bench.end(half, COMMIT)
            assert bench.delivered() == ["A1"]

    @pytest.mark.parametrize("is_dispatched", [True, False])
    async def test_a_repeated_commit_is_one_message(self, tmp_path: Path, is_dispatched: bool) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1")
            bench.end(half, COMMIT, oneway=True)
            if is_dispatched:
                bench.dispatch()
            bench.end(half, COMMIT)
            assert bench.refused(half, ROLLBACK).code == ResponseCode.ILLEGAL_OPERATION
            assert bench.delivered() == ["A1"]

    async def test_an_end_must_match_the_half_message(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1")
            for changes, text in (
                ({"producer_group": "others"}, "wrong producer group others: the half message has tills"),
                ({"tran_state_table_offset": 5}, "wrong queue offset 5: the half message has 0"),
                ({"commit_log_offset": 1}, "there is no half message at log offset 1"),
            ):
                for state in (COMMIT, ROLLBACK):
                    refused = bench.refused(half, state, **changes)
                    assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, text)
            assert (len(bench.open.halves), bench.delivered()) == (1, [])

    async def test_only_a_half_message_can_be_committed(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1")
            bench.end(half, COMMIT)
            (message,) = bench.messages()
            again = Half("A1", message.log_offset, message.queue_offset)
            assert "no half message" in (bench.refused(again, COMMIT).remark or "")

    async def test_a_replica_ends_no_transaction(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1")
            bench.parts.tables.role.change(Role(1, epoch=1))
            assert bench.refused(half, COMMIT).code == ResponseCode.SLAVE_NOT_AVAILABLE
            await bench.check(after_s=3600)
            assert bench.asked() == []
            bench.parts.tables.role.change(Role(0, epoch=2))
            await bench.open.rebuild()
            bench.end(half, COMMIT)
            assert bench.delivered() == ["A1"]

    async def test_the_time_of_the_message_itself_ends_the_time_for_uncalled_ends(
        self, tmp_path: Path
    ) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1", CHECK_IMMUNITY_TIME_IN_SECONDS="10")
            bench.clock.advance(11)
            assert bench.refused(half, COMMIT).code == ResponseCode.ILLEGAL_OPERATION
            bench.end(half, COMMIT, from_transaction_check=True)
            assert bench.delivered() == ["A1"]

    async def test_transactions_can_be_forbidden(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path, reject_transaction_messages=True) as bench:
            with pytest.raises(Refused, match="rejectTransactionMessage is on") as refused:
                bench.prepare("A1")
            assert refused.value.code == ResponseCode.NO_PERMISSION


class TestOps:
    async def test_ends_are_recorded_together(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            halves = [bench.prepare(f"A{number}") for number in range(3)]
            for half in halves:
                bench.end(half, COMMIT, oneway=True)
            bench.checks.record()
            assert bench.messages(OPS, 0) == [], "a power loss could take the messages and leave the record"
            bench.parts.store.flushes.flush_log()
            bench.checks.record()
            (op,) = bench.messages(OPS, 0)
            assert (op.body, op.get("TAGS")) == (b"0,1,2,", "d")

    async def test_a_single_end_is_recorded_as_brokers_before_5_0_do(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            bench.end(bench.prepare("A1"), ROLLBACK)
            (op,) = bench.messages(OPS, 0)
            assert op.body == b"0"

    async def test_a_full_op_message_is_written_at_once(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path, transaction_op_max_bytes=4) as bench:
            for number in range(4):
                bench.end(bench.prepare(f"A{number}"), ROLLBACK, oneway=True)
            assert [op.body for op in bench.messages(OPS, 0)] == [b"0,1,", b"2,3,"]

    async def test_the_saved_position_is_that_of_the_first_open_transaction(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            halves = [bench.prepare(f"A{number}") for number in range(4)]
            for half in (halves[0], halves[2]):
                bench.end(half, ROLLBACK)
            bench.open.save_now()
            group = "CID_RMQ_SYS_TRANS"
            assert bench.parts.offsets.query(group, HALF, 0) == 1
            assert bench.parts.offsets.query(group, OPS, 0) == 1

    async def test_the_position_is_saved_only_after_the_copies_that_it_relies_on_are_flushed(
        self, tmp_path: Path
    ) -> None:
        async with transaction_bench(tmp_path, files=FaultyFiles(tmp_path)) as bench:
            bench.prepare("A1")
            await bench.check(after_s=7)

            def saved() -> int:
                bench.checks.record()
                return bench.parts.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0)

            assert saved() == -1
            bench.parts.store.flushes.flush_log()
            assert saved() == 1

    async def test_the_position_waits_until_the_next_master_has_the_copies(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with transaction_bench(tmp_path) as bench:
            bench.prepare("A1")
            await bench.check(after_s=7)
            bench.parts.store.flushes.flush_log()
            with monkeypatch.context() as patched:
                patched.setattr(Durability, "readable_offset", property(lambda _: 0))
                bench.checks.record()
                assert bench.parts.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == -1
            bench.checks.record()
            assert bench.parts.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 1


class TestChecks:
    async def test_producers_are_asked_when_the_time_is_over_and_not_before(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            bench.prepare("A1")
            await bench.check(after_s=5.9)
            assert bench.asked() == []
            await bench.check(after_s=0.2)
            (question,) = bench.asked()
            assert (question.msg_id, question.transaction_id, question.topic) == ("A1", "A1", TOPIC)
            bench.answer(question, COMMIT)
            assert bench.delivered() == ["A1"]
            await bench.check(after_s=3600)
            assert bench.asked() == []

    async def test_any_connected_producer_of_the_group_is_asked(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            bench.prepare("A1")
            bench.producer.is_open = False
            other, stranger = bench.connect("p2"), bench.connect("p3", "others")
            await bench.check(after_s=7)
            assert len(bench.asked(other)) == 1
            assert bench.asked(stranger) == bench.asked() == []

    async def test_a_producer_that_does_not_read_is_asked_later(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            bench.prepare("A1")
            bench.producer.is_blocked = True
            await bench.check(after_s=7)
            assert len(bench.messages(HALF, 0)) == 1, "it does not count"
            bench.producer.is_blocked = False
            await bench.check(after_s=7)
            assert len(bench.asked()) == 1

    async def test_a_check_without_any_producer_counts(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            bench.prepare("A1")
            bench.producer.is_open = False
            await bench.check(after_s=7)
            times = [half.get(props.TRANSACTION_CHECK_TIMES) for half in bench.messages(HALF, 0)]
            assert times == [None, "1"]

    async def test_a_message_without_room_for_one_more_property_does_not_hold_up_others(
        self, tmp_path: Path
    ) -> None:
        async with transaction_bench(tmp_path) as bench:
            for length in range(32_767, 32_000, -1):
                with suppress(Refused):
                    bench.prepare("A1", padding="x" * length)
                    break
            bench.prepare("A2")
            for _ in range(2):
                await bench.check(after_s=7)
                first, second = bench.asked()
                assert (first.msg_id, second.msg_id) == ("A1", "A2")
            assert [half.body for half in bench.messages(HALF, 0)] == [b"A1", b"A2", b"A2", b"A2"]
            bench.answer(first, COMMIT)
            assert bench.delivered() == ["A1"]
            bench.prepare("A3", padding="x" * length)
            await bench.check(after_s=72 * 3600)
            assert [message.body for message in bench.given_up()] == [b"A2"]
            await bench.check(after_s=1)
            assert [message.body for message in bench.given_up()] == [b"A2", b"A3"]

    async def test_each_check_is_counted_in_a_new_copy(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            bench.prepare("A1")
            await bench.check(after_s=7)
            await bench.check(after_s=7)
            times = [half.get(props.TRANSACTION_CHECK_TIMES) for half in bench.messages(HALF, 0)]
            assert times == [None, "1", "2"]
            assert len(bench.open.halves) == 1

    async def test_the_first_end_counts_whichever_copy_it_names(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1")
            await bench.check(after_s=7)
            (first,) = bench.asked()
            await bench.check(after_s=7)
            (second,) = bench.asked()
            bench.end(half, COMMIT, oneway=True)
            bench.dispatch()
            bench.answer(first, COMMIT)
            bench.answer(second, ROLLBACK)
            assert bench.delivered() == ["A1"]

    async def test_a_transaction_that_is_checked_too_often_is_kept_for_operators(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with transaction_bench(tmp_path, transaction_check_max=2) as bench:
            bench.prepare("A1")
            for _ in range(4):
                await bench.check(after_s=7)
            assert len(bench.asked()) == 2
            (kept,) = bench.given_up()
            assert kept.body == b"A1"
            assert len(bench.open.halves) == 0
            assert "transaction given up topic=Orders message=A1" in caplog.text

    async def test_a_transaction_older_than_the_logs_files_is_given_up(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path, store={"file_reserved_hours": 2}) as bench:
            bench.prepare("A1")
            await bench.check(after_s=2 * 3600 + 1)
            assert len(bench.given_up()) == 1

    async def test_a_commit_after_the_checks_gave_up_is_delivered_once(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path, transaction_check_max=1) as bench:
            half = bench.prepare("A1")
            await bench.check(after_s=7)
            await bench.check(after_s=7)
            assert len(bench.given_up()) == 1
            bench.end(half, COMMIT)
            bench.end(half, COMMIT)
            bench.dispatch()
            bench.end(half, COMMIT)
            assert bench.delivered() == ["A1"]

    async def test_an_operator_can_have_a_given_up_transaction_checked_again(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path, transaction_check_max=1) as bench:
            bench.prepare("A1")
            await bench.check(after_s=7)
            await bench.check(after_s=7)
            bench.asked()
            (kept,) = bench.given_up()
            message_id = encode_offset_message_id(kept.store_host, kept.log_offset)
            bench.parts.change(transactionCheckMax="15")
            await bench.resume(message_id)
            with pytest.raises(Refused, match="it is checked already"):
                await bench.resume(message_id)
            await bench.check(after_s=7)
            (question,) = bench.asked()
            bench.answer(question, COMMIT)
            bench.dispatch()
            with pytest.raises(Refused, match="it was committed"):
                await bench.resume(message_id)
            with pytest.raises(Refused, match="no message with the id"):
                await bench.resume(encode_offset_message_id(kept.store_host, question.commit_log_offset))
            assert bench.delivered() == ["A1"]

    async def test_a_message_may_ask_for_a_later_check(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
            bench.prepare("A2")
            await bench.check(after_s=50)
            assert [question.msg_id for question in bench.asked()] == ["A2"]
            copies = [each for each in bench.messages(HALF, 0) if each.body == b"A1"]
            assert [copy.get(props.TRANSACTION_PREPARED_QUEUE_OFFSET) for copy in copies] == [None, "0"]
            bench.end(half, COMMIT)
            assert bench.delivered() == ["A1"]
            await bench.check(after_s=100)
            assert [question.msg_id for question in bench.asked()] == ["A2"]

    async def test_a_check_brings_the_message_under_its_real_topic(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            bench.prepare("A1")
            await bench.check(after_s=7)
            (question,) = bench.asked()
            message = decode_record(question.body)
            assert (message.topic, message.queue_id, message.body) == (TOPIC, 2, b"A1")
            assert message.get(props.PRODUCER_GROUP) == PRODUCERS
            assert message.log_offset == question.commit_log_offset


class TestRestarts:
    @pytest.mark.parametrize("crash", [False, True])
    async def test_open_transactions_are_open_after_a_restart(self, tmp_path: Path, crash: bool) -> None:
        clock = ManualClock()
        async with transaction_bench(tmp_path, clock, crash=crash) as bench:
            bench.prepare("A1")
            bench.end(bench.prepare("A2"), ROLLBACK)
            bench.end(bench.prepare("A3"), COMMIT)
        async with transaction_bench(tmp_path, clock) as bench:
            assert bench.parts.tables.transaction_counts.open == {TOPIC: 1}
            await bench.check(after_s=7)
            (question,) = bench.asked()
            bench.answer(question, COMMIT)
            assert bench.delivered() == ["A3", "A1"]

    async def test_a_commit_without_op_message_is_not_repeated_after_a_crash(self, tmp_path: Path) -> None:
        clock = ManualClock()
        async with transaction_bench(tmp_path, clock, crash=True) as bench:
            half = bench.prepare("A1")
            bench.end(half, COMMIT, oneway=True)
            assert bench.messages(OPS, 0) == []
        async with transaction_bench(tmp_path, clock) as bench:
            await bench.check(after_s=7)
            assert bench.asked() == []
            bench.end(half, COMMIT)
            assert bench.delivered() == ["A1"]
            assert [op.body for op in bench.messages(OPS, 0)] == [b"0"]

    async def test_without_an_index_the_log_says_how_a_transaction_ended(self, tmp_path: Path) -> None:
        clock, store = ManualClock(), {"index_enabled": False}
        async with transaction_bench(tmp_path, clock, store=store) as bench:
            committed, rolled_back = bench.prepare("A1"), bench.prepare("A2")
            bench.end(committed, COMMIT)
            bench.end(rolled_back, ROLLBACK)
        async with transaction_bench(tmp_path, clock, store=store) as bench:
            await bench.end_later(committed, COMMIT)
            await bench.end_later(rolled_back, ROLLBACK)
            assert "was committed" in (bench.refused(committed, ROLLBACK).remark or "")
            assert "was rolled back" in (bench.refused(rolled_back, COMMIT).remark or "")
            assert bench.delivered() == ["A1"]

    async def test_a_commit_that_names_an_earlier_copy_is_not_repeated_either(self, tmp_path: Path) -> None:
        clock = ManualClock()
        async with transaction_bench(tmp_path, clock, crash=True) as bench:
            half = bench.prepare("A1")
            await bench.check(after_s=7)
            bench.parts.store.flushes.flush_log()
            bench.checks.record()
            bench.dispatch()
            assert [op.body for op in bench.messages(OPS, 0)] == [b"0"]  # only of the first copy
            bench.end(half, COMMIT, oneway=True)
        async with transaction_bench(tmp_path, clock) as bench:
            assert bench.parts.tables.transaction_counts.open.total() == 0
            await bench.check(after_s=7)
            assert bench.asked() == []
            assert bench.delivered() == ["A1"]

    async def test_a_delayed_commit_without_op_message_is_not_repeated_either(self, tmp_path: Path) -> None:
        clock = ManualClock()
        async with transaction_bench(tmp_path, clock, crash=True) as bench:
            half = bench.prepare("A1", DELAY="3")
            bench.end(half, COMMIT, oneway=True)
        async with transaction_bench(tmp_path, clock) as bench:
            bench.end(half, COMMIT)
            assert len(bench.messages(names.SCHEDULE_TOPIC, 2)) == 1

    @pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
    async def test_copies_are_one_transaction_also_after_a_crash(self, tmp_path: Path, state: int) -> None:
        clock = ManualClock()
        async with transaction_bench(tmp_path, clock, crash=True) as bench:
            bench.prepare("A1")
            bench.prepare("A2", CHECK_IMMUNITY_TIME_IN_SECONDS="8")
            await bench.check(after_s=7)
            (first,) = bench.asked()
            await bench.check(after_s=7)
            assert len(bench.asked()) == 2
            bench.answer(first, state)
            bench.checks.record()
            bench.parts.offsets.remove_group("CID_RMQ_SYS_TRANS")  # as if it had not been saved
        async with transaction_bench(tmp_path, clock) as bench:
            assert len(bench.open.halves) == 1
            await bench.check(after_s=7)
            assert [question.msg_id for question in bench.asked()] == ["A2"]
            assert bench.delivered() == (["A1"] if state == COMMIT else [])

    async def test_the_copies_of_an_immune_message_end_together(self, tmp_path: Path) -> None:
        clock = ManualClock()
        async with transaction_bench(tmp_path, clock, crash=True) as bench:
            half = bench.prepare("A1", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
            await bench.check(after_s=7)
            await bench.check(after_s=7)
            assert len(bench.messages(HALF, 0)) == 3
            bench.end(half, ROLLBACK)
            (op,) = bench.messages(OPS, 0)
            assert op.body == b"0,2,"
        async with transaction_bench(tmp_path, clock) as bench:
            assert len(bench.open.halves) == 0

    async def test_a_disk_error_while_the_log_is_read_is_not_the_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error_logs: ErrorLogs
    ) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1")
            bench.parts.tables.role.change(Role(1, epoch=1))
            bench.parts.tables.role.change(Role(0, epoch=2))
            monkeypatch.setattr(open_transactions, "_RETRY_S", 0)
            sound_units, failures = bench.parts.store.queues.sound_units, [OSError("read error")]

            def failing_once(*arguments: Any) -> Any:
                if failures:
                    raise failures.pop()
                return sound_units(*arguments)

            monkeypatch.setattr(bench.parts.store.queues, "sound_units", failing_once)
            bench.dispatch()
            running = asyncio.create_task(bench.open.run())
            await bench.open.settled()
            running.cancel()
            bench.end(half, COMMIT)
            assert bench.delivered() == ["A1"]
            error_logs.expect("open transactions could not be read")

    async def test_ends_that_wait_are_refused_when_the_broker_becomes_a_replica(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1")
            bench.parts.tables.role.change(Role(1, epoch=1))
            bench.parts.tables.role.change(Role(0, epoch=2))
            waiting = asyncio.ensure_future(bench.end_later(half, COMMIT))
            await asyncio.sleep(0)
            bench.parts.tables.role.change(Role(1, epoch=3))
            with pytest.raises(Refused, match="this broker is replica 1"):
                await waiting

    async def test_ends_wait_until_the_open_transactions_are_known(self, tmp_path: Path) -> None:
        async with transaction_bench(tmp_path) as bench:
            half = bench.prepare("A1")
            bench.parts.tables.role.change(Role(1, epoch=1))
            bench.parts.tables.role.change(Role(0, epoch=2))
            other = bench.prepare("A2")
            waiting = asyncio.ensure_future(bench.end_later(half, COMMIT))
            await asyncio.sleep(0)
            assert bench.delivered() == []
            assert bench.open.figures() == {}
            await bench.open.rebuild()
            assert bench.open.figures()["halfMessageCount"] == "2"
            await waiting
            bench.end(other, COMMIT)
            assert bench.delivered() == ["A1", "A2"]
