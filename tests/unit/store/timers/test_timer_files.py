"""The files of timed messages: byte by byte, and after every kind of stop."""

import struct
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.faulty_files import FaultyFiles

from pyromq.errors import StoreError
from pyromq.filesystem import Files
from pyromq.store.filenames import StorePaths
from pyromq.store.settings import StoreSettings
from pyromq.store.timers.slot_counts import SlotCounts
from pyromq.store.timers.timer_checkpoint import (
    UNKNOWN,
    TimerCheckpoint,
    decode_timer_checkpoint,
    read_timer_checkpoint,
    write_timer_checkpoint,
)
from pyromq.store.timers.timer_files import TimerFiles
from pyromq.store.timers.timer_log import NOWHERE, PLAIN, RECALL, ROLLED, TimerLog, TimerUnit
from pyromq.store.timers.wheel import SLOT_BYTES, Slot, Wheel

LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
FILE_BYTES = 52 * 5 + 30
NOW_MS = 1_700_000_000_000
BASE = NOW_MS // 1000


def unit(number: int, log_offset: int, kind: int = PLAIN) -> TimerUnit:
    return TimerUnit(NOWHERE, kind, NOW_MS, number * 1000 - NOW_MS, log_offset, 200, 7)


class TestTimerLog:
    def test_a_unit_has_the_bytes_of_apache(self) -> None:
        packed = TimerUnit(7, PLAIN | ROLLED, 1000, 2000, 5, 6, -1).pack()
        assert packed.hex() == (
            "00000034"  # size
            "0000000000000007"  # previous
            "00000003"
            "00000000000003e8"
            "000007d0"
            "0000000000000005"
            "00000006"
            "ffffffff"
            "0000000000000000"
        )

    def test_a_full_file_ends_with_a_blank(self, tmp_path: Path) -> None:
        log = TimerLog(Files(), tmp_path / "timerlog", FILE_BYTES)
        positions = [log.append(unit(BASE, number)) for number in range(7)]
        assert positions == [0, 52, 104, 156, 208, FILE_BYTES, FILE_BYTES + 52]
        log.close()
        first = (tmp_path / "timerlog" / f"{0:020d}").read_bytes()
        assert len(first) == FILE_BYTES
        assert first[260:276] == struct.pack(">iqI", 30, 0, 0xCBD43194)

    @pytest.mark.parametrize("kept_bytes", range(52))
    def test_the_begin_of_a_unit_leads_to_no_other_message(self, tmp_path: Path, kept_bytes: int) -> None:
        log = TimerLog(Files(), tmp_path, FILE_BYTES)
        log.append(TimerUnit(NOWHERE, PLAIN, NOW_MS, 1000, 0x4F08, 0x172, 7))
        log.close()
        path = tmp_path / f"{0:020d}"
        path.write_bytes(path.read_bytes()[:kept_bytes].ljust(FILE_BYTES, b"\0"))
        log = TimerLog(Files(), tmp_path, FILE_BYTES)
        log.load()
        found = log.unit(0)
        assert found is None or found.log_offset == 0x4F08
        log.close()

    def test_files_of_another_size_are_refused_with_advice(self, tmp_path: Path) -> None:
        log = TimerLog(Files(), tmp_path, FILE_BYTES)
        log.append(unit(BASE, 1))
        log.close()
        with pytest.raises(StoreError, match="set mappedFileSizeTimerLog"):
            TimerLog(Files(), tmp_path, FILE_BYTES * 2).load()

    def test_files_go_when_the_log_has_none_of_their_messages(self, tmp_path: Path) -> None:
        log = TimerLog(Files(), tmp_path, FILE_BYTES)
        for number in range(12):
            log.append(unit(BASE, number * 100))
        assert log.clean(400) == 0
        assert log.clean(401) == 1
        assert log.start == FILE_BYTES
        assert log.unit(0) is None
        assert log.clean(1 << 40) == 1, "the last one stays"

    @given(st.lists(st.tuples(INT, LONG, INT), max_size=30), st.integers(68, 400))
    @settings(max_examples=examples(30), deadline=None)
    def test_what_is_appended_is_found(
        self, tmp_path_factory: pytest.TempPathFactory, values: list[tuple[int, int, int]], file_bytes: int
    ) -> None:
        log = TimerLog(Files(), tmp_path_factory.mktemp("log"), file_bytes)
        units = [TimerUnit(NOWHERE, PLAIN, 5, delay, offset, 9, code) for delay, offset, code in values]
        positions = [log.append(each) for each in units]
        assert [log.unit(position) for position in positions] == units
        position, found = 0, []
        while (position := log.following(position)) < log.end:
            found.append(position)
            position += 52
        assert found == positions
        log.close()


class TestWheel:
    def test_a_slot_has_the_bytes_of_apache(self, tmp_path: Path) -> None:
        wheel = Wheel(Files(), tmp_path / "timerwheel", slots=8)
        wheel.make()
        wheel.put(Slot(11, 2, 3, 4))
        wheel.close()
        content = (tmp_path / "timerwheel").read_bytes()
        assert len(content) == 8 * SLOT_BYTES
        assert content[3 * 32 : 4 * 32] == struct.pack(">qqqii", 11, 2, 3, 4, 0)

    def test_a_place_with_another_number_is_empty(self, tmp_path: Path) -> None:
        wheel = Wheel(Files(), tmp_path / "timerwheel", slots=8)
        assert wheel.slot(3) is None
        assert wheel.next_used(3, 7) == 7
        wheel.make()
        wheel.put(Slot(11, 2, 3, 4))
        assert (wheel.slot(3), wheel.slot(11)) == (None, Slot(11, 2, 3, 4))
        assert (wheel.next_used(1, 9), wheel.next_used(5, 99), wheel.next_used(12, 99)) == (9, 11, 99)
        assert list(wheel.all()) == [Slot(11, 2, 3, 4)]
        wheel.clear(11)
        assert list(wheel.all()) == []
        wheel.close()

    def test_apaches_wheel_has_two_weeks_of_seconds(self, tmp_path: Path) -> None:
        wheel = Wheel(Files(), tmp_path / "timerwheel", StoreSettings().timer_wheel_slots)
        wheel.make()
        wheel.close()
        assert (tmp_path / "timerwheel").stat().st_size == 38_707_200
        with pytest.raises(StoreError, match="expected 256"):
            Wheel(Files(), tmp_path / "timerwheel", slots=8).load()


class TestCheckpoint:
    @given(LONG, LONG, LONG, LONG, LONG)
    def test_it_is_read_as_it_was_written(
        self, tmp_path_factory: pytest.TempPathFactory, a: int, b: int, c: int, d: int, e: int
    ) -> None:
        path = tmp_path_factory.mktemp("config") / "timercheck"
        written = TimerCheckpoint(a, b, c, d, 0, 5, 6, e)
        write_timer_checkpoint(Files(), path, written)
        assert read_timer_checkpoint(Files(), path) == written
        assert path.stat().st_size == 4096
        assert path.read_bytes()[:56] == written.encode() == struct.pack(">7q", a, b, c, d, 0, 5, 6)

    def test_our_numbers_do_not_count_after_apaches_broker_wrote(self, tmp_path: Path) -> None:
        path = tmp_path / "timercheck"
        write_timer_checkpoint(Files(), path, TimerCheckpoint(1, 2, 3, 4, delivered_from=9))
        Files().overwrite(path, 0, struct.pack(">7q", 5, 2, 3, 4, 0, 0, 0))
        assert read_timer_checkpoint(Files(), path) == TimerCheckpoint(5, 2, 3, 4, delivered_from=UNKNOWN)

    def test_two_equal_offsets_that_apache_sets_to_a_later_one_void_our_part(self, tmp_path: Path) -> None:
        path = tmp_path / "timercheck"
        write_timer_checkpoint(Files(), path, TimerCheckpoint(1, 2, 3, 3, delivered_from=9))
        Files().overwrite(path, 16, 2 * (5).to_bytes(8, "big"))
        assert read_timer_checkpoint(Files(), path) == TimerCheckpoint(1, 2, 5, 5, delivered_from=UNKNOWN)

    def test_too_few_bytes_are_no_checkpoint(self, tmp_path: Path) -> None:
        assert read_timer_checkpoint(Files(), tmp_path / "none") == TimerCheckpoint()
        with pytest.raises(ValueError, match="has 56 bytes, not 3"):
            decode_timer_checkpoint(b"abc")


@given(st.dictionaries(st.integers(0, 500), st.integers(1, 5)), st.integers(0, 500), st.integers(0, 500))
def test_counts_by_minute_are_those_by_slot(slots: dict[int, int], first: int, end: int) -> None:
    counts = SlotCounts(60)
    for number, count in slots.items():
        counts.add(number, count)
    expected = sum(count for number, count in slots.items() if first <= number < end)
    assert counts.between(first, end, lambda number: slots.get(number, 0)) == expected
    assert counts.total == sum(slots.values())


class Machine:
    """A queue of messages, each for a slot; message n is at log offset 1000 * n."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = FaultyFiles(root)
        self.queue: list[int] = []
        self.safe = 0
        self.open(0)

    def open(self, log_count: int, precision_ms: int = 1000) -> None:
        def queue_offset_of(unit: TimerUnit) -> int | None:
            number = unit.log_offset // 1000
            return number if number < log_count else None

        self.files = TimerFiles(self.disk, StorePaths(self.root), precision_ms, FILE_BYTES, slots=64)
        self.files.recover(NOW_MS, queue_offset_of)

    def schedule(self, number: int) -> None:
        self.files.make(NOW_MS, 0)
        self.queue.append(number)
        kind = PLAIN | RECALL if len(self.queue) % 7 == 0 else PLAIN
        self.files.schedule(unit(number, 1000 * self.files.queue_offset, kind))
        self.files.queue_offset += 1

    def save(self) -> None:
        if self.queue:
            self.files.save(self.files.take(NOW_MS))
            self.safe = len(self.queue)

    def stop(self, kept: int, lost_by: Random | None = None) -> None:
        """The log keeps the first `kept` messages, at least those that the checkpoint speaks of.

        `lost_by`: the power is lost, and this chooses what is lost with it.
        """
        self.files.close()
        if lost_by is not None:
            self.disk.crash(lost_by)
        del self.queue[max(kept, self.safe) :]
        self.disk = FaultyFiles(self.root, self.disk.disk if lost_by is None else None)
        self.open(len(self.queue))
        # What is not in the wheel is taken from the queue again.
        again = self.queue[self.files.queue_offset :]
        del self.queue[self.files.queue_offset :]
        for number in again:
            self.schedule(number)

    def check(self) -> None:
        found: dict[int, list[int]] = {}
        for slot in self.files.wheel.all():
            chain = [each.log_offset // 1000 for _, each in self.files.units(slot.number)]
            found[slot.number] = chain[::-1]
        expected: dict[int, list[int]] = {}
        for offset, number in enumerate(self.queue):
            expected.setdefault(number, []).append(offset)
        assert {number: chain for number, chain in found.items() if chain} == expected
        assert self.files.queue_offset == len(self.queue)


@given(
    st.lists(st.one_of(st.integers(0, 40), st.just("save"), st.just("kill"), st.just("power")), max_size=60),
    st.randoms(use_true_random=False),
)
@settings(max_examples=examples(60), deadline=None)
def test_every_message_of_the_queue_is_in_its_slot_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | str], random: Random
) -> None:
    machine = Machine(tmp_path_factory.mktemp("timers"))
    for step in steps:
        if step == "save":
            machine.save()
        elif step == "kill":
            machine.stop(len(machine.queue))
        elif step == "power":
            machine.stop(random.randint(0, len(machine.queue)), random)
        else:
            machine.schedule(BASE + int(step))
        machine.check()
    machine.files.close()


@pytest.mark.parametrize("seed", range(8))
def test_what_a_killed_process_put_into_slots_survives_the_next_loss_of_power(
    tmp_path: Path, seed: int
) -> None:
    machine, random = Machine(tmp_path), Random(seed)
    machine.schedule(BASE)
    machine.save()
    machine.schedule(BASE + 5)
    machine.stop(len(machine.queue))
    machine.save()
    machine.stop(len(machine.queue), random)
    machine.check()
    machine.files.close()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("is_cut", [False, True])
def test_slots_of_a_checkpoint_that_was_overtaken_are_synced_with_the_next_one(
    tmp_path: Path, is_cut: bool, seed: int
) -> None:
    """It was taken, and waited for the log to be flushed, when the log was cut or the broker stopped."""
    machine = Machine(tmp_path)
    machine.schedule(BASE)
    machine.save()
    machine.schedule(BASE + 5)
    overtaken = machine.files.take(NOW_MS)
    if is_cut:
        save = machine.files.cut(1000 * len(machine.queue), len(machine.queue), NOW_MS, NOW_MS)
        assert save is not None
        save()
        machine.files.save(overtaken)
        machine.safe = len(machine.queue)
    else:
        machine.save()
    machine.stop(len(machine.queue), Random(seed))
    machine.check()
    machine.files.close()


@pytest.mark.parametrize("kept", [12, 13, 14])
@pytest.mark.parametrize("written_bytes", range(SLOT_BYTES + 1))
def test_a_slot_that_a_loss_of_power_has_torn_is_made_from_its_units(
    tmp_path: Path, written_bytes: int, kept: int
) -> None:
    """`kept`: the units of the messages after the checkpoint may have reached the disk or not."""
    machine = Machine(tmp_path)
    for number in (1, 2, 3, 1, 4, 5, 6, 7, 8, 9, 10, 11):
        machine.schedule(BASE + number)
    machine.save()
    wheel = machine.files.wheel.path
    before = wheel.read_bytes()
    machine.schedule(BASE + 1)
    machine.schedule(BASE + 20)
    machine.files.close()
    after = wheel.read_bytes()
    torn = bytearray(before)
    for number in (BASE + 1, BASE + 20):
        at = number % 64 * SLOT_BYTES
        torn[at : at + written_bytes] = after[at : at + written_bytes]
    wheel.write_bytes(torn)
    machine.disk = FaultyFiles(tmp_path)
    del machine.queue[kept:]
    machine.open(kept)
    machine.check()
    machine.files.close()


def test_a_lost_wheel_is_rebuilt_from_the_timer_log(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for number in (1, 2, 1, 3, 1, 1, 2, 9):
        machine.schedule(BASE + number)
    machine.save()
    machine.files.close()
    machine.files.wheel.path.unlink()
    machine.disk = FaultyFiles(tmp_path)
    machine.open(8)
    machine.check()
    assert machine.files.replayed_units == 8


def test_slots_that_apaches_broker_kept_in_snapshots_are_rebuilt_from_the_timer_log(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for number in (1, 2, 1, 3, 1, 1, 2, 9):
        machine.schedule(BASE + number)
    machine.save()
    machine.files.close()
    wheel = machine.files.wheel.path
    wheel.with_name("timerwheel.416").write_bytes(wheel.read_bytes())
    wheel.write_bytes(bytes(wheel.stat().st_size))
    write_timer_checkpoint(Files(), StorePaths(tmp_path).timer_checkpoint, machine.files.checkpoint)
    Files().overwrite(StorePaths(tmp_path).timer_checkpoint, 64, bytes(8))
    machine.disk = FaultyFiles(tmp_path)
    machine.open(8)
    machine.check()


def test_slots_of_another_width_are_refused_while_messages_wait_in_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for number in (1, 5, 2):
        machine.schedule(BASE + number)
    machine.save()
    machine.files.close()
    machine.disk = FaultyFiles(tmp_path)
    with pytest.raises(StoreError, match=r"slots of 1000 ms in which messages wait.*is 100: set it to 1000"):
        machine.open(3, precision_ms=100)
    machine.open(3)
    machine.check()


def test_slots_of_another_width_are_refused_after_a_crash(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.schedule(BASE + 1)
    machine.files.follow((BASE + 6) * 1000)
    machine.save()
    machine.schedule(BASE + 7)
    machine.files.wheel.clear(BASE + 7)
    machine.files.close()
    machine.disk = FaultyFiles(tmp_path)
    with pytest.raises(StoreError, match="set it to 1000"):
        machine.open(2, precision_ms=500)
    machine.open(2)
    machine.check()


def test_slots_may_have_another_width_when_nothing_waits(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for number in (1, 5, 2):
        machine.schedule(BASE + number)
    machine.files.follow((BASE + 6) * 1000)
    machine.save()
    machine.files.close()
    machine.disk = FaultyFiles(tmp_path)
    machine.open(3, precision_ms=100)
    assert list(machine.files.wheel.all()) == []
    assert machine.files.counts.total == 0
    assert machine.files.read_number == (BASE + 6) * 10
    machine.files.close()
