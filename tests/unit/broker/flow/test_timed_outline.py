"""What a record says about a timed message, and its delivery: compiled and interpreted code agree."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.timed_messages import timer_bench

from pyromq.broker.flow import timed_outline
from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.timed_outline import TimedOutline, read_timed
from pyromq.compiled import WHY
from pyromq.protocol.names import TIMER_TOPIC
from pyromq.protocol.record import Host, StoredMessage, encode_record

WHOLE = [b"REAL_TOPIC\x01Orders", b"REAL_QID\x012", b"TIMER_OUT_MS\x015000", b"TIMER_DELIVER_MS\x015700"]
PAIRS = st.lists(
    st.sampled_from(
        [
            *WHOLE,
            b"TIMER_DELIVER_MS\x01soon",
            b"TIMER_DELIVER_MS\x01-7",
            b"TIMER_DELAY_SEC\x013",
            b"TIMER_DELAY_MS\x01300",
            b"TIMER_DELAY_MS\x01" + b"9" * 19,
            b"TIMER_DEL_UNIQKEY\x01Orders+A1",
            b"TIMER_ENQUEUE_MS\x011",
            b"TIMER_OUT_MS\x01",
            b"TIMER_OUT_MS\x01007",
            b"REAL_TOPIC\x01caf\xc3\xa9",
            b"REAL_TOPIC\x01",
            b"REAL_QID\x01x",
            b"UNIQ_KEY\x01A1",
            b"",
        ]
    ),
    max_size=6,
)


def interpreted(record: bytes) -> TimedOutline | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timed_outline, "_native", None)
        return read_timed(memoryview(record))


def plainly(outline: TimedOutline | None) -> TimedOutline | None:
    return None if outline is None else outline._replace(is_usual=False)


@given(
    st.one_of(PAIRS, PAIRS.map(lambda more: WHOLE + more)),
    st.sampled_from([b"", b"x" * 300]),
    st.sampled_from([Host(b"\x0a\x00\x00\x01", 9), Host(b"\x0a" * 16, 9)]),
    st.integers(0, 500),
)
def test_both_readers_find_the_same(pairs: list[bytes], body: bytes, host: Host, cut: int) -> None:
    message = StoredMessage(
        TIMER_TOPIC, body, b"\x02".join(pairs), born_timestamp=5, born_host=host, store_timestamp=4000
    )
    record = encode_record(message)
    assert plainly(read_timed(memoryview(record))) == interpreted(record)
    torn = record[:cut] + b"\0" * (len(record) - cut)
    assert plainly(read_timed(memoryview(torn))) == interpreted(torn)


@pytest.mark.skipif(timed_outline._native is None, reason=f"no compiled reader: {WHY}")
@pytest.mark.parametrize(
    "asking", [b"TIMER_DELIVER_MS\x015700", b"TIMER_DELAY_SEC\x012", b"TIMER_DELAY_MS\x017"]
)
def test_the_compiled_reader_takes_what_producers_send(asking: bytes) -> None:
    message = StoredMessage(TIMER_TOPIC, b"x", b"\x02".join([*WHOLE[:3], asking]), store_timestamp=4000)
    outline = read_timed(memoryview(encode_record(message)))
    assert outline is not None
    assert outline.is_usual


def delivered_log(root: Path, *, is_straight: bool) -> tuple[bytes, int]:
    """The log after deliveries, and how many messages were delivered straight from their records."""
    straight = 0
    usual_way = Appending.append_again

    def append_again(self: Appending, *given: object) -> object:
        nonlocal straight
        result = usual_way(self, *given) if is_straight else None  # type: ignore[arg-type]
        straight += result is not None
        return result

    with pytest.MonkeyPatch.context() as patch, timer_bench(root, timer_roll_window_slots=10) as bench:
        patch.setattr(Appending, "append_again", append_again)
        bench.send_at(b"first", 1500, TAGS="t", KEYS="k")
        bench.send(b"delayed", TIMER_DELAY_MS="2700")
        bench.send_at(b"far", 15_000)
        bench.send_at(b"recalled", 5500)
        bench.recall(b"recalled", bench.start_ms + 5001)
        bench.send_at(b"x" * 400, 1501, TAGS="other")
        bench.pass_time(15_000, step_ms=100)
        assert len(bench.delivered()) == 4
        bench.store.flushes.flush()
        files = sorted((root / "commitlog").iterdir())
        return b"".join(path.read_bytes() for path in files).rstrip(b"\0"), straight


@pytest.mark.skipif(timed_outline._native is None, reason=f"no compiled appends: {WHY}")
async def test_a_delivery_straight_from_a_record_writes_the_same_bytes(tmp_path: Path) -> None:
    straight_log, count = delivered_log(tmp_path / "straight", is_straight=True)
    usual_log, _ = delivered_log(tmp_path / "usual", is_straight=False)
    assert straight_log == usual_log
    assert count == 2, "the first one makes the queue, and the one from far away is no usual one"
