"""Delayed messages: delivered when due, not before, and after every kind of stop."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ErrorLogs
from tests.support.broker_parts import BrokerParts, broker_parts
from tests.support.loop import turn_until
from tests.support.small_stores import BORN_HOST, append

from pyromq.broker.flow.draft import Draft
from pyromq.broker.services.delays import Delays
from pyromq.broker.table_fitting import fit_to_cut
from pyromq.broker.tables.delay_offsets import DelayOffsetTable
from pyromq.clock import ManualClock
from pyromq.protocol import names
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import StoredMessage
from pyromq.store.faults import Fault
from pyromq.store.queues import mending

TOPIC = "Orders"
SCHEDULE = names.SCHEDULE_TOPIC


class Bench:
    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        self.clock = parts.clock
        self.statistics = parts.statistics
        self.offsets = parts.tables.delay_offsets
        self.delays = Delays(parts.store, parts.appending, parts.tables, parts.clock)

    def park(self, body: bytes, level: int, **changes: Any) -> None:
        pairs = {"KEYS": "k", "TAGS": "t", "DELAY": str(level)}
        draft = Draft(TOPIC, 2, body, encode_properties(pairs).encode(), 1_600_000_000_000, BORN_HOST, flag=5)
        draft.delay_level = level
        for name, value in changes.items():
            setattr(draft, name, value)
        assert self.parts.appending.append(draft).is_ok
        while self.parts.store.dispatch():
            pass

    def deliver(self) -> float | None:
        return self.delays.deliver_due()

    def delivered(self, topic: str = TOPIC, queue_id: int = 2) -> list[bytes]:
        return [message.body for message in self.messages(topic, queue_id)]

    def messages(self, topic: str = TOPIC, queue_id: int = 2) -> list[StoredMessage]:
        return self.parts.messages(topic, queue_id)


@contextmanager
def opened(root: Path, clock: ManualClock | None = None, **store: Any) -> Iterator[Bench]:
    with broker_parts(root, clock=clock, store=store) as parts:
        yield Bench(parts)


class TestDelivery:
    @pytest.mark.parametrize(("level", "seconds"), [(1, 1), (2, 5), (3, 10), (14, 600), (18, 7200)])
    async def test_a_message_is_delivered_when_its_level_is_over_and_not_before(
        self, tmp_path: Path, level: int, seconds: int
    ) -> None:
        with opened(tmp_path) as bench:
            bench.park(b"later", level)
            bench.deliver()
            bench.clock.advance(seconds - 0.001)
            bench.deliver()
            assert bench.delivered() == []
            bench.clock.advance(0.001)
            bench.deliver()
            assert bench.delivered() == [b"later"]

    async def test_a_delivered_message_is_the_one_that_was_sent(self, tmp_path: Path) -> None:
        with opened(tmp_path) as bench:
            bench.park(b"body", 1, reconsume_times=3, sys_flag=1)
            bench.clock.advance(1)
            bench.deliver()
            (message,) = bench.messages()
            assert (message.flag, message.sys_flag, message.reconsume_times) == (5, 1, 3)
            assert (message.born_timestamp, message.born_host.pack()) == (1_600_000_000_000, BORN_HOST)
            assert message.store_timestamp == bench.clock.now_ms()
            assert message.property_map() == {
                "KEYS": "k",
                "TAGS": "t",
                "DELAY": "1",
                "REAL_TOPIC": TOPIC,
                "REAL_QID": "2",
            }

    async def test_it_is_not_delivered_if_its_topic_was_deleted_meanwhile(self, tmp_path: Path) -> None:
        with opened(tmp_path) as bench:
            bench.park(b"old", 1)
            bench.parts.store.topics.delete(TOPIC)
            bench.park(b"new", 1)
            bench.clock.advance(1)
            bench.deliver()
            assert bench.delivered() == [b"new"]
            assert bench.offsets.get(1) == 2

    async def test_consumers_find_it_by_its_tag(self, tmp_path: Path) -> None:
        with opened(tmp_path) as bench:
            bench.park(b"body", 1)
            bench.clock.advance(1)
            bench.deliver()
            bench.messages()
            assert bench.parts.store.read(TOPIC, 2, 0, tag_codes={ord("t")}).message_count == 1

    async def test_it_says_how_long_there_is_nothing_to_do(self, tmp_path: Path) -> None:
        with opened(tmp_path, message_delay_levels="1s 500d") as bench:
            assert bench.deliver() is None
            bench.park(b"1", 1)
            assert bench.deliver() == 1
            bench.clock.advance(0.75)
            assert bench.deliver() == 0.25
            bench.clock.advance(0.25)
            assert bench.deliver() is None
            bench.park(b"2", 2)
            # Not longer than this, because the wall clock may be set.
            assert bench.deliver() == 1

    async def test_many_messages_are_delivered_in_rounds_and_in_order(self, tmp_path: Path) -> None:
        with opened(tmp_path) as bench:
            bodies = [str(number).encode() for number in range(600)]
            for body in bodies:
                bench.park(body, 1)
            bench.park(b"other level", 2, queue_id=3)
            bench.clock.advance(5)
            assert bench.deliver() == 0
            assert bench.delivered(queue_id=3) == [b"other level"]
            while bench.deliver() == 0:
                pass
            assert bench.delivered() == bodies
            assert bench.delays.progress() == {1: (600, 600), 2: (1, 1)}

    async def test_a_level_above_the_highest_is_the_highest(self, tmp_path: Path) -> None:
        with opened(tmp_path, message_delay_levels="1s 2s") as bench:
            bench.park(b"body", 7)
            bench.clock.advance(2)
            bench.deliver()
            assert bench.messages()[0].get("DELAY") == "2"

    async def test_deliveries_are_counted(self, tmp_path: Path) -> None:
        with opened(tmp_path) as bench:
            bench.park(b"body", 1)
            bench.clock.advance(1)
            bench.deliver()
            bench.clock.advance(10)
            bench.statistics.sample()
            got = bench.statistics.data("GROUP_GET_NUMS", f"{SCHEDULE}@SCHEDULE_CONSUMER")
            put = bench.statistics.data("TOPIC_PUT_NUMS", TOPIC)
            assert got is not None
            assert put is not None
            assert got.stats_minute == put.stats_minute
            assert bench.statistics.put_messages == 1


class TestTrouble:
    async def test_a_store_that_takes_nothing_is_asked_again_a_second_later(self, tmp_path: Path) -> None:
        with opened(tmp_path) as bench:
            bench.park(b"body", 1)
            bench.clock.advance(1)
            bench.parts.store._faults.refuse(Fault.DISK_FULL, "the disk is full")
            assert bench.deliver() == 1
            bench.parts.store._faults.clear(Fault.DISK_FULL)
            bench.clock.advance(1)
            assert bench.deliver() is None
            assert bench.delivered() == [b"body"]

    @pytest.mark.parametrize(
        ("pairs", "why"),
        [
            ({"DELAY": "1"}, "REAL_TOPIC and REAL_QID are missing"),
            ({"DELAY": "1", "REAL_TOPIC": TOPIC, "REAL_QID": "x"}, "invalid literal"),
            ({"DELAY": "1", "REAL_TOPIC": names.HALF_TOPIC, "REAL_QID": "0"}, "transaction"),
        ],
    )
    async def test_a_message_without_a_place_to_go_stops_no_others(
        self, tmp_path: Path, error_logs: ErrorLogs, pairs: dict[str, str], why: str
    ) -> None:
        with opened(tmp_path) as bench:
            append(bench.parts.store, b"lost", topic=SCHEDULE, properties=encode_properties(pairs).encode())
            bench.park(b"found", 1)
            bench.clock.advance(1)
            bench.deliver()
            assert bench.delivered() == [b"found"]
            error_logs.expect(why)

    async def test_a_level_that_was_made_shorter_is_shorter_at_once(self, tmp_path: Path) -> None:
        with opened(tmp_path, message_delay_levels="1h") as bench:
            bench.park(b"body", 1)
            clock = bench.clock
        with opened(tmp_path, clock, message_delay_levels="10s") as bench:
            bench.deliver()
            assert bench.delivered() == [b"body"]

    async def test_a_level_that_was_removed_still_delivers_what_waits_on_it(self, tmp_path: Path) -> None:
        with opened(tmp_path, message_delay_levels="1s 5s") as bench:
            bench.park(b"body", 2)
            clock = bench.clock
        with opened(tmp_path, clock, message_delay_levels="1s") as bench:
            clock.advance(4)
            bench.deliver()
            assert bench.delivered() == []
            clock.advance(1)
            bench.deliver()
            assert bench.delivered() == [b"body"]

    @pytest.mark.parametrize("offset", [-5, 99])
    async def test_an_offset_outside_the_queue_is_moved_into_it(self, tmp_path: Path, offset: int) -> None:
        with opened(tmp_path) as bench:
            bench.park(b"1", 1)
            bench.offsets.advance(1, offset)
            bench.clock.advance(1)
            bench.deliver()
            assert bench.offsets.get(1) == 1
            bench.park(b"2", 1)
            bench.clock.advance(1)
            bench.delays._due_ms.clear()
            bench.deliver()
            assert bench.delivered() == [b"1", b"2"][offset > 0 :]


class TestClocks:
    """Whatever happens to the clock, a message waits as long as its level, and hardly longer."""

    def wait(self, bench: Bench, seconds: float) -> None:
        """Let time pass as it does: with a look at the clocks now and then."""
        for _ in range(int(seconds * 10)):
            bench.clock.advance(0.1)
            bench.parts.store.time.look()
        bench.deliver()

    @pytest.mark.parametrize("step_s", [-7200, -5, -1, 3, 59, 3600, 5 * 86_400])
    async def test_a_message_that_waits_while_the_clock_is_set_waits_its_time(
        self, tmp_path: Path, step_s: int
    ) -> None:
        with opened(tmp_path) as bench:
            bench.park(b"later", 2)
            bench.deliver()
            self.wait(bench, 2)
            bench.clock.set_ahead(step_s)
            self.wait(bench, 2.9)
            assert bench.delivered() == []
            self.wait(bench, 0.5)
            assert bench.delivered() == [b"later"]

    @pytest.mark.parametrize("step_s", [-7200, -5, -1, 3, 59, 3600, 5 * 86_400])
    async def test_messages_parked_after_the_clock_was_set_wait_their_time(
        self, tmp_path: Path, step_s: int
    ) -> None:
        with opened(tmp_path) as bench:
            bench.park(b"before", 1)
            bench.clock.set_ahead(step_s)
            self.wait(bench, 30)
            for number in range(3):
                bench.park(b"%d" % number, 2)
                bench.delays._due_ms.clear()
                self.wait(bench, 4.9)
                assert len(bench.delivered()) == 1 + number
                self.wait(bench, 0.5)
                assert len(bench.delivered()) == 2 + number

    async def test_a_leap_that_is_believed_at_last_is_no_waiting(self, tmp_path: Path) -> None:
        with opened(tmp_path) as bench:
            bench.park(b"two hours", 18)
            bench.deliver()
            bench.clock.set_ahead(86_400)
            self.wait(bench, 1000)
            assert bench.parts.store.time.leap_count == 1
            assert bench.parts.store.time.now_ms() == bench.clock.now_ms()
            assert bench.delivered() == []
            self.wait(bench, 7200 - 1000 - 0.2)
            assert bench.delivered() == []
            self.wait(bench, 0.3)
            assert bench.delivered() == [b"two hours"]

    async def test_after_a_restart_with_a_clock_behind_the_log_nothing_leaves_early(
        self, tmp_path: Path
    ) -> None:
        with opened(tmp_path) as bench:
            bench.park(b"later", 2)
            clock = bench.clock
        clock.set_ahead(-7200)
        with opened(tmp_path, clock) as bench:
            bench.deliver()
            self.wait(bench, 4.9)
            assert bench.delivered() == []
            self.wait(bench, 0.5)
            assert bench.delivered() == [b"later"]


class TestRestart:
    async def test_after_a_clean_stop_nothing_is_delivered_twice(self, tmp_path: Path) -> None:
        with opened(tmp_path) as bench:
            bench.park(b"1", 1)
            bench.park(b"2", 2)
            bench.clock.advance(1)
            bench.deliver()
            bench.delays.save_now()
            clock = bench.clock
        with opened(tmp_path, clock) as bench:
            clock.advance(4)
            bench.deliver()
            assert bench.delivered() == [b"1", b"2"]

    async def test_after_a_crash_messages_come_again_and_none_is_missing(self, tmp_path: Path) -> None:
        with opened(tmp_path) as bench:
            for number in range(4):
                bench.park(str(number).encode(), 1)
            bench.clock.advance(1)
            bench.deliver()
            bench.parts.store.flushes.flush()
            clock = bench.clock
            bench.parts.store.abandon()
        with opened(tmp_path, clock) as bench:
            bench.deliver()
            assert bench.delivered() == [b"0", b"1", b"2", b"3"] * 2

    async def test_offsets_are_saved_every_ten_seconds(self, tmp_path: Path) -> None:
        with opened(tmp_path) as bench:
            path = bench.offsets._file.path
            bench.park(b"1", 1)
            bench.clock.advance(9)
            bench.deliver()
            bench.parts.store.flushes.flush()
            bench.delays.save_if_due()
            assert not path.exists()
            bench.clock.advance(1)
            bench.delays.save_if_due()
            assert b"1:1" in path.read_bytes()

    async def test_offsets_are_not_saved_before_their_messages_are_safe(self, tmp_path: Path) -> None:
        with opened(tmp_path) as bench:
            bench.parts.store._flusher.stop()
            path = bench.offsets._file.path
            bench.park(b"1", 1)
            bench.clock.advance(10)
            bench.deliver()
            bench.delays.save_if_due()
            assert not path.exists()
            bench.parts.store.flushes.flush()
            bench.park(b"2", 1)
            bench.clock.advance(1)
            bench.delays._due_ms.clear()
            bench.deliver()
            bench.delays.save_if_due()
            # The first delivery is safe and saved; the second is neither.
            assert b"1:1" in path.read_bytes()

    async def test_a_delivery_that_was_cut_off_the_log_happens_again(self, tmp_path: Path) -> None:
        """Neither the table in memory nor the file goes beyond what the next master has."""
        with opened(tmp_path) as bench:
            durability = bench.parts.appending.durability
            durability.hide_unconfirmed()
            bench.park(b"1", 1)
            durability.replicated(bench.parts.store.log.end)
            bench.parts.store.flushes.flush()
            bench.clock.advance(10)
            bench.deliver()
            bench.parts.store.flushes.flush()
            bench.delays.save_if_due()
            assert (bench.offsets.get(1), bench.offsets._file.path.exists()) == (1, False)
            bench.delays.save_now()
            bench.parts.store.cutting.cuts += 1
            fit_to_cut(bench.parts.store, bench.parts.tables)
            durability.replicated(bench.parts.store.log.end)
            bench.delays.save_if_due()
            assert (bench.offsets.get(1), bench.offsets._file.path.exists()) == (0, False)

    async def test_progress_that_is_taken_while_the_log_is_being_cut_is_never_saved(
        self, tmp_path: Path
    ) -> None:
        """It counts deliveries that are cut off, although it was taken after the cut began."""
        with opened(tmp_path) as bench:
            store, durability = bench.parts.store, bench.parts.appending.durability
            durability.hide_unconfirmed()
            bench.park(b"1", 1)
            parked_end = store.log.end
            durability.replicated(parked_end)
            store.flushes.flush()
            bench.clock.advance(10)
            bench.deliver()
            store.cutting.begin(parked_end).next()
            bench.delays.save_if_due()
            store.cutting.finish()
            fit_to_cut(store, bench.parts.tables)
            assert (store.log.end, bench.offsets.get(1)) == (parked_end, 0)
            bench.park(b"2", 1)
            bench.park(b"3", 1)
            durability.replicated(store.log.end)
            store.flushes.flush()
            bench.delays.save_if_due()
            assert not bench.offsets._file.path.exists()

    async def test_the_file_is_the_one_that_apache_writes(self, tmp_path: Path) -> None:
        with opened(tmp_path) as bench:
            bench.offsets.advance(3, 17)
            bench.offsets.save(bench.offsets.take())
            text = bench.offsets._file.path.read_text()
        assert json.loads(text.replace("3:17", '"3":17'))["offsetTable"] == {"3": 17}

    async def test_the_version_advances_now_and_then(self, tmp_path: Path) -> None:
        with opened(tmp_path) as bench:
            table = DelayOffsetTable(
                bench.parts.store.table("other.json"), bench.clock, deliveries_per_version=3
            )
            for offset in range(7):
                table.advance(1, offset)
            assert table.data_version.counter == 2
            assert (table.get(1), table.get(2)) == (6, 0)


class TestRunning:
    async def test_a_running_service_is_woken_by_messages_and_saves_what_it_delivered(
        self, tmp_path: Path
    ) -> None:
        with opened(tmp_path) as bench:
            running = asyncio.create_task(bench.delays.run())
            await asyncio.sleep(0)
            draft = Draft(TOPIC, 2, b"1", b"", 1, BORN_HOST, delay_level=1)
            bench.parts.appending.append(draft)
            await turn_until(lambda: bench.delays._due_ms.get(0, 0) == bench.clock.now_ms() + 1000)
            bench.clock.advance(1)
            # The clock of this test does not wake anyone; another message does.
            bench.parts.appending.append(Draft(TOPIC, 2, b"2", b"", 1, BORN_HOST, delay_level=2))
            await turn_until(lambda: bench.offsets.get(1) == 1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert bench.delivered() == [b"1"]
            assert not bench.offsets._file.path.exists()
            bench.delays.save_now()
            assert b"1:1" in bench.offsets._file.path.read_bytes()

    async def test_messages_behind_one_that_is_not_due_wake_nobody(self, tmp_path: Path) -> None:
        with opened(tmp_path) as bench:
            bench.park(b"1", 3)
            bench.deliver()
            bench.delays._woken.clear()
            bench.parts.appending.append(Draft(TOPIC, 2, b"2", b"", 1, BORN_HOST, delay_level=3))
            bench.parts.appending._dispatch()
            assert not bench.delays._woken.is_set()
            bench.parts.appending.append(Draft(TOPIC, 2, b"3", b"", 1, BORN_HOST, delay_level=1))
            bench.parts.appending._dispatch()
            assert bench.delays._woken.is_set()


class TestDamagedQueues:
    async def test_a_damaged_unit_loses_no_message_and_delivers_no_other(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mending, "_PIECE", 3)
        with opened(tmp_path) as bench:
            for number in range(10):
                bench.park(b"%d" % number, 1)
                bench.park(b"of another level", 3)
            store = bench.parts.store
            one, three = store.queues.find(SCHEDULE, 0), store.queues.find(SCHEDULE, 2)
            assert one is not None
            assert three is not None
            buffer, position = one.place(0)
            buffer[position + 40 : position + 60] = bytes(20)
            buffer[position + 80 : position + 160] = three.units(4, 4)
            bench.clock.advance(1)
            for _ in range(200):
                bench.deliver()
                store.dispatch()
                bench.clock.advance(0.01)
            assert bench.delivered() == [b"%d" % number for number in range(10)]
            bench.clock.advance(9)
            bench.deliver()
            assert bench.delivered()[10:] == [b"of another level"] * 10
