"""The delay and deliver_at of a send: one time, a clear one, or an error that says what was given."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pyromq.client.timing import timed
from pyromq.client.values import Message
from pyromq.errors import BadMessage

MESSAGE = Message("t", b"x", tags="A")
NOON = datetime(2026, 12, 24, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("delay", "delay_ms"),
    [
        (timedelta(minutes=10), 600_000),
        (timedelta(0), 0),
        (timedelta(microseconds=1), 1),
        (timedelta(days=3), 259_200_000),
    ],
)
def test_a_delay_is_never_cut_short(delay: timedelta, delay_ms: int) -> None:
    assert timed(MESSAGE, delay, None) == Message("t", b"x", tags="A", delay_ms=delay_ms)


def test_a_time_means_the_same_moment_in_every_zone() -> None:
    here = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert timed(MESSAGE, None, NOON) == timed(MESSAGE, None, here)
    assert timed(MESSAGE, None, NOON).deliver_at_ms == 1798113600000


@pytest.mark.parametrize(
    ("message", "delay", "deliver_at", "problem"),
    [
        (MESSAGE, timedelta(1), NOON, "only one of .*, not delay=1 day.* and deliver_at=2026-12-24"),
        (Message("t", b"x", delay_level=3), timedelta(1), None, "not delay_level=3 and delay=1 day"),
        (Message("t", b"x", delay_ms=0), None, NOON, "not delay_ms=0 and deliver_at=2026-12-24"),
        (MESSAGE, None, datetime(2026, 12, 24), "deliver_at=2026-12-24 00:00:00 must have a time zone"),
        (MESSAGE, None, 5, "deliver_at must be a datetime, not int 5"),
        (MESSAGE, 5, None, "delay must be a timedelta, not int 5"),
        (MESSAGE, timedelta(seconds=-1), None, "must not be negative, not -1 day, 23:59:59"),
        ([MESSAGE], timedelta(1), None, "sent together cannot have a delay"),
    ],
)
def test_anything_unclear_is_refused(
    message: Message, delay: timedelta | None, deliver_at: datetime | None, problem: str
) -> None:
    with pytest.raises(BadMessage, match=problem):
        timed(message, delay, deliver_at)
