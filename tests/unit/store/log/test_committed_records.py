"""The committed messages of transactions are found in the log, over all its files."""

from pathlib import Path

from tests.support.small_stores import append, small_settings

from pyromq.clock import ManualClock
from pyromq.protocol.record import SysFlag
from pyromq.store.message_store import MessageStore

COUNT = 900


def test_committed_messages_are_found_from_an_offset_to_the_end(tmp_path: Path) -> None:
    with MessageStore.open(small_settings(tmp_path), clock=ManualClock(), start_flusher=False) as store:
        places, committed = [], set()
        for number in range(COUNT):
            sys_flag = SysFlag.TRANSACTION_COMMIT if number % 7 == 0 else 0
            if number % 11 == 0:
                sys_flag = SysFlag.TRANSACTION_ROLLBACK
            if number % 2:
                sys_flag |= SysFlag.COMPRESSED
            result = append(store, b"x" * (number % 90), sys_flag=sys_flag)
            places.append(result.log_offset)
            if sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT:
                committed.add(result.log_offset)
        assert store.statistics().segments > 3
        for begin in (places[0], places[1], places[COUNT // 2], places[-1]):
            found = list(store.log.committed_records(begin))
            assert found.count(None) >= (COUNT - places.index(begin)) // 256, "the caller can pause"
            assert [place for place in found if place is not None] == sorted(
                place for place in committed if place >= begin
            )
