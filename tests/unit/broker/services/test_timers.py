"""Timed messages: delivered at their millisecond, recalled before it, and after every kind of stop."""

from pathlib import Path

import pytest
from tests.conftest import ErrorLogs
from tests.support.small_stores import BORN_HOST
from tests.support.timed_messages import TOPIC, crashing_bench, timer_bench

from pyromq.broker.flow.draft import Draft
from pyromq.broker.tables.role import Role
from pyromq.protocol import names
from pyromq.protocol.requests.upkeep import GetTimerCheckpoint, GetTimerMetrics
from pyromq.store.faults import Fault
from pyromq.store.results import AppendStatus
from pyromq.store.timers.timer_checkpoint import decode_timer_checkpoint


class TestDelivery:
    @pytest.mark.parametrize("wait_ms", [1, 700, 999, 1000, 1001, 1500, 2000, 61_234, 3_600_000])
    async def test_a_message_is_delivered_at_its_millisecond(self, tmp_path: Path, wait_ms: int) -> None:
        with timer_bench(tmp_path) as bench:
            bench.send_at(b"later", wait_ms)
            bench.pass_time(wait_ms - 1)
            assert bench.delivered() == []
            bench.pass_time(1)
            assert bench.delivery_times() == {b"later": wait_ms}

    @pytest.mark.parametrize(
        "properties",
        [
            {"TIMER_DELAY_MS": "2345"},
            {"TIMER_DELAY_SEC": "2"},
            {"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "9", "TIMER_DELIVER_MS": "9"},
            {"TIMER_DELAY_MS": "2001", "TIMER_DELIVER_MS": "9"},
        ],
    )
    async def test_a_delay_counts_from_the_send(self, tmp_path: Path, properties: dict[str, str]) -> None:
        with timer_bench(tmp_path) as bench:
            assert bench.send(b"later", properties).is_ok
            wait_ms = int(properties.get("TIMER_DELAY_MS", "2000"))
            if "TIMER_DELAY_SEC" in properties:
                wait_ms = 2000
            bench.pass_time(wait_ms - 1)
            assert bench.delivered() == []
            bench.pass_time(1)
            assert bench.delivered() == [b"later"]

    async def test_messages_of_one_slot_leave_in_the_order_of_their_times(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            for wait_ms in (1900, 1100, 1500, 1100, 2000, 1001):
                bench.send_at(f"{wait_ms}-{bench.store.log.end}".encode(), wait_ms)
            bench.pass_time(2000, step_ms=1)
            times = bench.delivery_times()
            assert list(times.values()) == [1001, 1100, 1100, 1500, 1900, 2000]
            assert all(body.startswith(b"%d-" % at) for body, at in times.items())

    async def test_a_message_for_the_slot_of_now_joins_it(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            bench.send_at(b"first", 900)
            bench.pass_time(300)
            bench.send_at(b"second", 100)
            bench.pass_time(100)
            assert bench.delivered() == [b"second"]
            bench.pass_time(500)
            assert bench.delivery_times() == {b"second": 400, b"first": 900}

    async def test_a_delivered_message_is_the_one_that_was_sent(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            bench.send_at(b"later", 1500, TAGS="t", KEYS="k")
            bench.pass_time(1500)
            (message,) = bench.messages()
            assert (message.topic, message.queue_id, message.flag) == (TOPIC, 2, 5)
            assert message.born_timestamp == 1_600_000_000_000
            start_ms = bench.start_ms
            assert message.property_map() == {
                "UNIQ_KEY": "later",
                "TAGS": "t",
                "KEYS": "k",
                "TIMER_DELIVER_MS": str(start_ms + 1500),
                "TIMER_OUT_MS": str(start_ms + 1000),
                "TIMER_ENQUEUE_MS": str(start_ms),
                "TIMER_DEQUEUE_MS": str(start_ms + 1500),
                # java: these stay, too
                "REAL_TOPIC": TOPIC,
                "REAL_QID": "2",
            }

    async def test_a_message_beyond_the_window_is_stored_anew_on_its_way(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path, timer_roll_window_slots=10) as bench:
            bench.send_at(b"far", 27_300)
            assert bench.send(b"far too", TIMER_DELAY_MS="27300").is_ok
            bench.pass_time(27_299)
            assert bench.delivered() == []
            bench.pass_time(1)
            assert bench.delivery_times() == {b"far": 27_300, b"far too": 27_300}
            for message in bench.messages():
                assert message.get("TIMER_ROLL_TIMES") == "2"

    async def test_a_message_is_stored_anew_before_its_log_file_expires(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path, file_reserved_hours=1) as bench:
            bench.send_at(b"far", 2 * 3_600_000)
            bench.pass_time(1_801_000, step_ms=60_000)
            assert len(bench.messages(names.TIMER_TOPIC, 0)) == 2
            bench.pass_time(2 * 3_600_000 - 1_801_000, step_ms=60_000)
            assert bench.delivered() == [b"far"]

    @pytest.mark.parametrize(
        ("wait_ms", "told"), [(1500, "timed message dropped"), (3500, "timed messages lost")]
    )
    async def test_a_damaged_message_does_not_stop_the_others(
        self, tmp_path: Path, error_logs: ErrorLogs, wait_ms: int, told: str
    ) -> None:
        with timer_bench(tmp_path) as bench:
            broken = bench.send_at(b"broken", wait_ms)
            bench.send_at(b"fine", wait_ms + 100)
            bench.work()
            record = bench.store.log.record_at(broken.log_offset)
            assert record is not None
            record[84:88] = b"\x7f\xff\xff\xff"  # the length of its body is impossible
            bench.pass_time(5000)
            assert bench.delivered() == [b"fine"]
            error_logs.expect(told)

    @pytest.mark.parametrize(("sys_flag", "waits"), [(0x8, True), (0x4, False), (0xC, False)])
    async def test_of_a_transaction_the_committed_message_waits(
        self, tmp_path: Path, sys_flag: int, waits: bool
    ) -> None:
        with timer_bench(tmp_path) as bench:
            draft = Draft(TOPIC, 2, b"m", b"TIMER_DELAY_MS\x011500\x02", 1, BORN_HOST, sys_flag=sys_flag)
            assert bench.parts.appending.append(draft).is_ok
            assert draft.topic == (names.TIMER_TOPIC if waits else TOPIC)
            bench.pass_time(1500)
            assert bench.delivered() == ([b"m"] if waits else [])

    async def test_a_hot_slot_is_delivered_in_slices(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            bodies = [b"m%03d" % number for number in range(300)]
            for body in bodies:
                bench.send_at(body, 1500)
            bench.pass_time(1400)
            bench.clock.advance(0.1)
            looks = iter(range(10_000))
            # Every look at the clock ends the slice.
            assert bench.timers.delivery.step(lambda: next(looks) >= 0) == 0
            assert 0 < len(bench.delivered()) < 300
            bench.work()
            assert bench.delivered() == bodies

    async def test_nothing_waits_in_memory_but_positions(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            for seconds in range(1, 60):
                for number in range(10):
                    bench.send_at(b"m%d-%d" % (seconds, number), seconds * 1000)
            bench.work()
            loaded = bench.timers.delivery._slots
            assert len(loaded) <= 2
            assert sum(map(len, loaded.values())) <= 20

    async def test_a_message_of_a_deleted_topic_is_gone_with_it(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            bench.send_at(b"old", 5000)
            bench.send_at(b"other", 5000, topic="Others")
            bench.work()
            bench.store.topics.delete(TOPIC)
            bench.send_at(b"new", 5000)
            bench.pass_time(5000)
            assert (bench.delivered(), bench.delivered("Others")) == ([b"new"], [b"other"])

    async def test_while_the_store_refuses_messages_they_wait(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            bench.send_at(b"later", 1500)
            bench.work()
            bench.store._faults.refuse(Fault.DISK_FULL, "no room")
            bench.pass_time(3000)
            assert bench.delivered() == []
            bench.store._faults.replace(Fault.NONE, "")
            bench.pass_time(100)
            assert bench.delivered() == [b"later"]

    async def test_an_operator_may_stop_either_end(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path, timer_stop_enqueue=True) as bench:
            bench.send_at(b"later", 1500)
            bench.pass_time(3000)
            assert bench.timers.figures()["timerOffsetBehind"] == "1"
            clock = bench.clock
        with timer_bench(tmp_path, clock, timer_stop_dequeue=True) as bench:
            bench.pass_time(3000)
            assert bench.delivered() == []
            assert bench.timers.figures()["timerCongestNum"] == "1"
        with timer_bench(tmp_path, clock) as bench:
            bench.work()
            assert bench.delivered() == [b"later"]

    async def test_a_broken_message_is_dropped_and_told(self, tmp_path: Path, error_logs: ErrorLogs) -> None:
        with timer_bench(tmp_path) as bench:
            bench.send(b"no time", topic=names.TIMER_TOPIC, queue_id=0, REAL_TOPIC=TOPIC, REAL_QID="0")
            bench.send(b"no topic", topic=names.TIMER_TOPIC, queue_id=0, TIMER_OUT_MS="5")
            bench.send_at(b"fine", 1500)
            bench.pass_time(1500)
            assert bench.delivered() == [b"fine"]
            error_logs.expect("timed message dropped offset=0: the property TIMER_OUT_MS is missing or wrong")
            error_logs.expect("timed message dropped offset=1: the property REAL_TOPIC is missing or wrong")


class TestRefusals:
    @pytest.mark.parametrize(
        ("properties", "status"),
        [
            ({"TIMER_DELIVER_MS": "soon"}, AppendStatus.WHEEL_TIMER_MSG_ILLEGAL),
            ({"TIMER_DELAY_SEC": str(3 * 86_400 + 1)}, AppendStatus.WHEEL_TIMER_MSG_ILLEGAL),
            ({"TIMER_DELAY_MS": "9" * 30}, AppendStatus.WHEEL_TIMER_MSG_ILLEGAL),
            ({"TIMER_DELAY_SEC": str(3 * 86_400)}, AppendStatus.PUT_OK),
            ({"TIMER_DELIVER_MS": "5", "TIMER_DEL_UNIQKEY": "a+b"}, AppendStatus.WHEEL_TIMER_MSG_ILLEGAL),
        ],
    )
    async def test_a_time_too_far_or_none_at_all_is_refused(
        self, tmp_path: Path, properties: dict[str, str], status: AppendStatus
    ) -> None:
        with timer_bench(tmp_path) as bench:
            assert bench.send(b"m", properties).status is status

    @pytest.mark.parametrize("properties", [{"TIMER_DELIVER_MS": "5"}, {"TIMER_DELAY_MS": "-7"}])
    async def test_a_past_time_means_at_once(self, tmp_path: Path, properties: dict[str, str]) -> None:
        with timer_bench(tmp_path) as bench:
            assert bench.send(b"now", properties).is_ok
            assert bench.delivered() == [b"now"]

    async def test_without_the_wheel_they_are_refused(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path, timer_wheel=False) as bench:
            assert bench.send(b"m", TIMER_DELAY_SEC="5").status is AppendStatus.WHEEL_TIMER_NOT_ENABLE
            assert bench.send(b"m", TIMER_DELAY_SEC="5", topic=names.HALF_TOPIC).is_ok

    async def test_a_crowded_slot_takes_no_more(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path, timer_max_per_slot=10) as bench:
            for number in range(20):
                bench.send(b"m%d" % number, TIMER_DELAY_MS="5500")
                bench.work()
            bench.parts.appending._parking._chance = lambda: 0.0
            assert bench.send(b"m", TIMER_DELAY_MS="5500").status is AppendStatus.WHEEL_TIMER_FLOW_CONTROL
            assert bench.send(b"m", TIMER_DELAY_MS="6500").is_ok


class TestRecall:
    async def test_a_recalled_message_is_not_delivered(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            for body in (b"a", b"b", b"c"):
                bench.send_at(body, 5500)
            bench.pass_time(1000)
            bench.recall(b"b", bench.start_ms + 5001)
            bench.pass_time(10_000)
            assert bench.delivered() == [b"a", b"c"]
            assert bench.parts.tables.timer_counts.get(TOPIC) == 0
            assert bench.timers.figures()["timerCongestNum"] == "0"

    async def test_a_recall_at_the_last_moment_counts(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            bench.send_at(b"m", 5001)
            bench.pass_time(5000)
            assert bench.recall(b"m", bench.start_ms + 5001).is_ok
            bench.clock.advance(0.001)
            bench.timers.step()  # before the recall is dispatched
            bench.pass_time(1000)
            assert bench.delivered() == []

    async def test_a_recall_beyond_the_window_finds_its_message(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path, timer_roll_window_slots=10) as bench:
            bench.send_at(b"m", 27_300)
            bench.send_at(b"n", 27_300)
            bench.pass_time(4000)
            bench.recall(b"m", bench.start_ms + 27_001)
            bench.pass_time(30_000)
            assert bench.delivered() == [b"n"]


class TestClocks:
    @pytest.mark.parametrize("seconds", [-7200, -30, 30, 7200])
    async def test_a_clock_that_is_set_loses_and_doubles_nothing(self, tmp_path: Path, seconds: int) -> None:
        with timer_bench(tmp_path) as bench:
            bodies = [b"m%02d" % number for number in range(20)]
            for number, body in enumerate(bodies):
                bench.send_at(body, 700 * number + 1)
            bench.pass_time(5000, step_ms=50)
            bench.clock.set_ahead(seconds)
            bench.pass_time(20_000, step_ms=50)
            assert bench.delivered() == bodies

    async def test_a_long_rest_is_caught_up_with(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            for number in range(5):
                bench.send_at(b"m%d" % number, 10_000 * number + 10_000)
            bench.work()
            clock = bench.clock
        clock.advance(20 * 86_400)
        with timer_bench(tmp_path, clock) as bench:
            bench.work()
            assert bench.delivered() == [b"m0", b"m1", b"m2", b"m3", b"m4"]
            bench.send_at(b"next", 5000)
            bench.pass_time(5000)
            assert bench.delivered()[5:] == [b"next"]

    async def test_messages_that_the_wheel_has_no_place_for_yet_hold_up_no_delivery(
        self, tmp_path: Path
    ) -> None:
        month_s = 30 * 86_400
        with timer_bench(tmp_path, timer_max_delay_seconds=month_s) as bench:
            bench.send_at(b"soon", 10_000)
            bench.work()
            bench.timers.save_now()
            clock = bench.clock
        with timer_bench(tmp_path, clock, timer_stop_enqueue=True, timer_max_delay_seconds=month_s) as bench:
            bench.send_at(b"later", 17 * 86_400_000)
        clock.advance(20 * 86_400)
        with timer_bench(tmp_path, clock, timer_max_delay_seconds=month_s) as bench:
            bench.pass_time(3000)
            assert bench.delivered() == [b"soon", b"later"]


class TestStops:
    async def test_after_a_clean_stop_everything_goes_on(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            for number in range(60):
                bench.send_at(b"m%02d" % number, 250 * number + 1000)
            bench.pass_time(5100)
            done = len(bench.delivered())
            assert 0 < done < 60
            bench.timers.save_now()
            clock = bench.clock
        with timer_bench(tmp_path, clock) as bench:
            assert bench.timers.figures()["timerCongestNum"] == str(60 - done)
            bench.pass_time(20_000)
            assert bench.delivered() == [b"m%02d" % number for number in range(60)]

    @pytest.mark.parametrize("saved_at_ms", [0, 700, 2000, 3300])
    async def test_a_crash_delivers_nothing_twice(self, tmp_path: Path, saved_at_ms: int) -> None:
        bodies = [b"m%02d" % number for number in range(40)]
        with crashing_bench(tmp_path) as bench:
            for number, body in enumerate(bodies):
                bench.send_at(body, 150 * number + 1)
            bench.pass_time(saved_at_ms, step_ms=100)
            bench.save()
            bench.pass_time(1350, step_ms=100)
            clock = bench.clock
            done = len(bench.delivered())
        with timer_bench(tmp_path, clock) as bench:
            bench.work()
            assert len(bench.delivered()) == done
            bench.pass_time(10_000, step_ms=100)
            assert bench.delivered() == bodies

    @pytest.mark.parametrize("kept_files", [0, 1])
    async def test_messages_of_lost_files_of_the_timer_log_are_delivered_once(
        self, tmp_path: Path, kept_files: int
    ) -> None:
        bodies = [b"m%02d" % number for number in range(40)]
        with timer_bench(tmp_path) as bench:
            for number, body in enumerate(bodies):
                bench.send_at(body, 150 * number + 1)
            bench.pass_time(2000, step_ms=100)
            bench.save()
            clock = bench.clock
            done = len(bench.delivered())
        for path in sorted((tmp_path / "timerlog").iterdir())[kept_files:]:
            path.unlink()
        with timer_bench(tmp_path, clock) as bench:
            bench.work()
            assert len(bench.delivered()) == done
            bench.pass_time(10_000, step_ms=100)
            assert bench.delivered() == bodies

    @pytest.mark.parametrize("slots_done", [1, 2, 3])
    async def test_a_second_crash_while_the_broker_catches_up_delivers_nothing_twice(
        self, tmp_path: Path, slots_done: int
    ) -> None:
        bodies = [b"m%02d" % number for number in range(40)]
        with crashing_bench(tmp_path) as bench:
            for number, body in enumerate(bodies):
                bench.send_at(body, 150 * number + 1)
            bench.work()
            bench.save()
            bench.pass_time(4500, step_ms=100)
            clock = bench.clock
            done = len(bench.delivered())
        with crashing_bench(tmp_path, clock) as bench:
            for _ in range(slots_done):
                bench.timers.delivery.step(lambda: True)
            bench.save()
            assert bench.files.read_number == bench.files.checkpoint.read_ms // 1000 < clock.now_ms() // 1000
            assert len(bench.delivered()) == done
        with timer_bench(tmp_path, clock) as bench:
            bench.pass_time(10_000, step_ms=100)
            assert bench.delivered() == bodies

    async def test_a_crash_stores_no_stage_twice(self, tmp_path: Path) -> None:
        with crashing_bench(tmp_path, timer_roll_window_slots=10) as bench:
            bench.send_at(b"far", 27_300)
            bench.work()
            bench.save()
            bench.pass_time(11_000)
            clock = bench.clock
            stages = len(bench.messages(names.TIMER_TOPIC, 0))
            assert stages == 2
        with timer_bench(tmp_path, clock, timer_roll_window_slots=10) as bench:
            bench.work()
            assert len(bench.messages(names.TIMER_TOPIC, 0)) == stages
            bench.pass_time(30_000)
            assert bench.delivered() == [b"far"]

    async def test_after_a_crash_a_recall_still_counts(self, tmp_path: Path) -> None:
        with crashing_bench(tmp_path) as bench:
            bench.send_at(b"m", 5500)
            bench.send_at(b"n", 5500)
            bench.work()
            bench.save()
            bench.recall(b"m", bench.start_ms + 5001)
            bench.pass_time(3000)
            clock = bench.clock
        with timer_bench(tmp_path, clock) as bench:
            bench.pass_time(5000)
            assert bench.delivered() == [b"n"]

    async def test_equal_messages_are_told_apart_by_their_number(self, tmp_path: Path) -> None:
        with crashing_bench(tmp_path) as bench:
            bench.send_at(b"same", 1500)
            bench.work()
            bench.save()
            bench.pass_time(1600)
            bench.clock.advance(-0.2)
            bench.send_at(b"same", 100)  # a producer that sends again
            clock = bench.clock
        with timer_bench(tmp_path, clock) as bench:
            bench.pass_time(5000)
            assert bench.delivered() == [b"same", b"same"]


class TestRoles:
    async def test_a_replica_takes_in_and_delivers_nothing(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            bench.send_at(b"m", 1500)
            bench.parts.tables.role.change(Role(1, 1))
            bench.pass_time(5000)
            assert bench.delivered() == []
            assert bench.timers.figures()["timerOffsetBehind"] == "0"
            bench.parts.tables.role.change(Role(0, 2))
            bench.work()
            assert bench.delivered() == [b"m"]

    async def test_a_new_master_does_not_repeat_what_the_old_one_delivered(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            bench.send_at(b"m", 1100)
            bench.send_at(b"n", 1900)
            bench.pass_time(1500)
            assert bench.delivered() == [b"m"]
            bench.parts.tables.role.change(Role(1, 1))
            bench.parts.tables.role.change(Role(0, 2))
            bench.pass_time(1000)
            assert bench.delivered() == [b"m", b"n"]


class TestFigures:
    async def test_waiting_messages_are_counted(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            for seconds in (3, 30, 30, 200):
                bench.send_at(b"m%d" % bench.store.log.end, seconds * 1000)
            bench.work()
            assert bench.timers.figures()["timerCongestNum"] == "4"
            counts = bench.timers.metrics(GetTimerMetrics(), None).body.timing_count  # type: ignore[arg-type]
            assert counts[TOPIC].count == 4
            bench.pass_time(4000)
            assert bench.timers.figures()["timerCongestNum"] == "3"
            assert bench.timers.figures()["timerReadBehind"] == "0"
            assert bench.parts.tables.timer_counts.get(TOPIC) == 3

    async def test_the_checkpoint_is_told_as_it_is_saved(self, tmp_path: Path) -> None:
        with timer_bench(tmp_path) as bench:
            bench.send_at(b"m", 5000)
            bench.pass_time(2500)
            bench.save()
            answer = bench.timers.checkpoint(GetTimerCheckpoint(), None)  # type: ignore[arg-type]
            checkpoint = decode_timer_checkpoint(answer.body)
            assert (checkpoint.queue_offset, checkpoint.master_queue_offset) == (1, 1)
            assert checkpoint.read_ms == bench.start_ms + 2000
            assert checkpoint.log_position == 52


async def test_a_broker_without_timed_messages_makes_no_files(tmp_path: Path) -> None:
    with timer_bench(tmp_path) as bench:
        bench.pass_time(5000)
        bench.timers.save_now()
        for path in (bench.store.paths.timer_wheel, bench.store.paths.timer_log):
            assert not path.exists()
