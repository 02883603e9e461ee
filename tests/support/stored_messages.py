"""Stored messages of every kind that readers meet, tidy and untidy, for property tests."""

from hypothesis import strategies as st

from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.compression import Compression, compress
from pyromq.protocol.record import MAGIC_V2, Host, StoredMessage, SysFlag

V4, V6 = Host.of("10.1.2.3", 10911), Host.of("fe80::1", 10911)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=6)
TIDY = st.dictionaries(WORDS, WORDS, max_size=5).map(
    lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()
)
NAMED = st.sampled_from(
    [
        b"KEYS\x01k1 k2\x02TAGS\x01t\x02UNIQ_KEY\x01AB\x02WAIT\x01true",
        b"KEYS\x01k\x02",
        b"",
        b"TAGS\x01a\x02TAGS\x01b\x02",
        b"UNIQ_KEY\x01\x02",
        b"\x02\x02KEYS\x01k",
        b"KEYS\x01with\x01inside\x02",
        b"nothing at all",
        b"TAGS\x01\xff\xfe\x02",
        "KEYS\x01größe\x02".encode(),
    ]
)


@st.composite
def stored(draw: st.DrawFn) -> StoredMessage:
    body = draw(st.binary(max_size=40))
    sys_flag = 0
    kind = draw(st.sampled_from(["plain", "plain", "packed", "inner"]))
    if kind == "packed" and body:
        how = draw(st.sampled_from(list(Compression)))
        body, sys_flag = compress(body, how), how.sys_flag
    elif kind == "inner":
        entries = [BatchEntry(b"inner%d" % n, b"KEYS\x01%d\x02" % n) for n in range(draw(st.integers(1, 3)))]
        body, sys_flag = encode_batch(entries), SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
    return StoredMessage(
        topic=draw(st.sampled_from(["T", "Orders", "L" * 127])),
        body=body,
        properties=draw(st.one_of(TIDY, NAMED)),
        queue_id=3,
        flag=draw(st.integers(-5, 5)),
        queue_offset=draw(st.integers(0, 2**40)),
        log_offset=draw(st.integers(0, 2**40)),
        sys_flag=sys_flag,
        born_timestamp=draw(st.integers(0, 2**41)),
        born_host=draw(st.sampled_from([V4, V6])),
        store_timestamp=draw(st.integers(0, 2**41)),
        store_host=draw(st.sampled_from([V4, V6])),
        reconsume_times=draw(st.integers(0, 9)),
        magic=draw(st.sampled_from([StoredMessage("T", b"").magic, MAGIC_V2])),
    )
