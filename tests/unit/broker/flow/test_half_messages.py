"""What a record says about a half message: the compiled reader and the interpreted one agree."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.broker.flow import half_messages
from pyromq.broker.flow.half_messages import HalfOutline, read_half
from pyromq.compiled import WHY
from pyromq.errors import RemoteProtocolError
from pyromq.protocol.names import HALF_TOPIC
from pyromq.protocol.record import Host, StoredMessage, encode_record

PAIRS = st.lists(
    st.sampled_from(
        [
            b"UNIQ_KEY\x01A1",
            b"UNIQ_KEY\x01",
            b"UNIQ_KEY\x01\xff",
            b"PGROUP\x01tills",
            b"PGROUP\x01",
            b"REAL_TOPIC\x01Orders",
            b"REAL_TOPIC\x01caf\xc3\xa9",
            b"REAL_QID\x012",
            b"REAL_QID\x01x",
            b"TRANSACTION_CHECK_TIMES\x013",
            b"TRANSACTION_CHECK_TIMES\x01",
            b"TRAN_PREPARED_QUEUE_OFFSET\x0117",
            b"DELAY\x013",
            b"CHECK_IMMUNITY_TIME_IN_SECONDS\x019",
            b"TAGS\x01\x01",
            b"",
        ]
    ),
    max_size=6,
)
WHOLE = [b"UNIQ_KEY\x01A1", b"PGROUP\x01tills", b"REAL_TOPIC\x01Orders", b"REAL_QID\x012"]


def interpreted(record: bytes) -> HalfOutline:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(half_messages, "_native", None)
        return read_half(memoryview(record))


def outcome(read: Callable[[], HalfOutline]) -> HalfOutline | None:
    try:
        return read()
    except RemoteProtocolError:
        return None


@given(
    st.one_of(PAIRS, PAIRS.map(lambda more: WHOLE + more)),
    st.sampled_from([b"", b"x" * 300]),
    st.sampled_from([Host(b"\x0a\x00\x00\x01", 9), Host(b"\x0a" * 16, 9)]),
    st.integers(0, 500),
)
def test_both_readers_find_the_same(pairs: list[bytes], body: bytes, host: Host, cut: int) -> None:
    half = StoredMessage(
        HALF_TOPIC, body, b"\x02".join(pairs), queue_offset=7, born_timestamp=5, born_host=host
    )
    record = encode_record(half)
    assert outcome(lambda: read_half(memoryview(record))) == interpreted(record)
    torn = record[:cut] + b"\0" * (len(record) - cut)
    assert outcome(lambda: read_half(memoryview(torn))) == outcome(lambda: interpreted(torn))


@pytest.mark.skipif(half_messages._native is None, reason=f"no compiled reader: {WHY}")
def test_the_compiled_reader_takes_what_producers_send() -> None:
    copy = [*WHOLE, b"TRANSACTION_CHECK_TIMES\x011"]
    for pairs, is_copy in ((WHOLE, False), (copy, True)):
        record = encode_record(StoredMessage(HALF_TOPIC, b"x", b"\x02".join(pairs), born_timestamp=5))
        assert half_messages._native is not None
        assert half_messages._native.read_half(record) == (5, "A1", "Orders", is_copy)
