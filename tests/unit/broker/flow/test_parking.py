"""A message of which the broker itself knows the time waits exactly as one whose properties are searched."""

from itertools import product
from pathlib import Path

import pytest
from tests.support.small_stores import BORN_HOST
from tests.support.timed_messages import timer_bench

from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.message_properties import pair
from pyromq.broker.flow.parking import Parking
from pyromq.protocol import properties as props

DAY_MS = 86_400_000
AHEAD_MS = (-DAY_MS, 0, 1, 999, 1000, 1001, 60_000, 3 * DAY_MS, 4 * DAY_MS, 1 << 60)
TOPICS = ("Orders", "T" * 127, "T" * 128)


@pytest.mark.parametrize("wheel", [True, False])
async def test_a_known_time_is_parked_as_one_that_was_found(tmp_path: Path, wheel: bool) -> None:
    with timer_bench(tmp_path, timer_wheel=wheel) as bench:
        parking = Parking(bench.store)
        now_ms = bench.store.time.now_ms()
        for ahead_ms, topic in product(AHEAD_MS, TOPICS):
            deliver_ms = now_ms + ahead_ms
            raw = (pair(props.TAGS, "ack") + pair(props.TIMER_DELIVER_MS, str(deliver_ms))).encode()
            found = Draft(topic, 3, b"body", raw, now_ms, BORN_HOST)
            known = Draft(topic, 3, b"body", raw, now_ms, BORN_HOST, deliver_ms=deliver_ms)
            assert parking.park(found) == parking.park(known)
            known.deliver_ms = 0
            assert known == found
