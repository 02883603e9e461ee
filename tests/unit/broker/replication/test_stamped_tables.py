"""Tables of a master wait until the replica's log is where the master's was."""

from pyromq.broker.replication.stamped_tables import StampedTables, WaitingTables
from pyromq.protocol.requests.offsets import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper


class Log:
    """A replica's log, and the tables that were used."""

    def __init__(self) -> None:
        self.end = 0
        self.used: list[StampedTables] = []
        self.waiting = WaitingTables(lambda: self.end, self.used.append)

    def grow(self, end: int) -> list[int]:
        """The stamps that were used so far."""
        self.end = end
        self.waiting.use()
        return [each.log_end for each in self.used]


def test_tables_are_used_when_the_log_has_reached_their_stamp() -> None:
    log = Log()
    log.waiting.add(StampedTables(10))
    assert log.grow(9) == []
    assert log.grow(10) == [10]
    log.waiting.add(StampedTables(10))
    assert log.grow(10) == [10, 10]


def test_tables_are_used_though_the_log_is_always_behind_the_newest_ones() -> None:
    log = Log()
    for stamp in (10, 20, 30):
        log.waiting.add(StampedTables(stamp))
    assert log.grow(10) == [10]
    log.waiting.add(StampedTables(40))
    assert log.grow(30) == [10, 30]
    assert log.grow(40) == [10, 30, 40]


def test_a_table_that_the_later_answer_lacks_is_used_with_it() -> None:
    offsets, delays = ConsumerOffsetSerializeWrapper(), DelayOffsetSerializeWrapper()
    log = Log()
    log.waiting.add(StampedTables(10))
    log.waiting.add(StampedTables(20, offsets=offsets))
    log.waiting.add(StampedTables(30, delays=delays))
    assert log.grow(29) == [10]
    assert log.grow(30) == [10, 30]
    assert log.used[1] == StampedTables(30, offsets, delays)


def test_dropped_tables_are_never_used() -> None:
    log = Log()
    log.waiting.add(StampedTables(10))
    log.waiting.add(StampedTables(20))
    log.waiting.drop()
    assert log.grow(100) == []
