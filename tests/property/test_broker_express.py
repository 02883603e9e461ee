"""The short road of a send does what the general road does, whatever is sent."""

import asyncio
import random
import tempfile
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.fake_transport import FakeTransport

from pyromq.broker.broker import Broker
from pyromq.broker.settings import BrokerConfiguration, BrokerSettings
from pyromq.clock import ManualClock
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.framing import encode_frame
from pyromq.protocol.requests.sending import SendMessage, SendMessageV2
from pyromq.remoting.connection import Connection
from pyromq.store.settings import StoreSettings

UNIQUE = "UNIQ_KEY\x01AC1234\x02"

properties = st.one_of(
    st.just(UNIQUE + "TAGS\x01a\x02"),
    st.lists(
        st.sampled_from(
            [
                UNIQUE,
                "UNIQ_KEY\x01B\x02",
                "UNIQ_KEY\x01\x02",
                'UNIQ_KEY\x01"\\\x02',
                "xUNIQ_KEY\x01C\x02",
                "TAGS\x01tag\x02",
                "KEYS\x01k1 k2\x02",
                "DELAY\x013\x02",
                "DELAY\x01no\x02",
                "WAIT\x01false\x02",
                "WAIT\x01true\x02",
                "TRAN_MSG\x01true\x02",
                "TRAN_MSG\x01false\x02",
                "POP_CK\x01x\x02",
                "TIMER_DELAY_SEC\x015\x02",
                "INNER_NUM\x012\x02",
                "café\x01ü\x02",
                "open\x01end",
            ]
        ),
        max_size=4,
    ).map("".join),
    st.none(),
)

sends = st.lists(
    st.tuples(
        st.sampled_from([SendMessageV2, SendMessage]),
        st.fixed_dictionaries(
            {
                "topic": st.sampled_from(["Orders", "Orders", "Orders", "Unknown", "%RETRY%g", "bad topic"]),
                "queue_id": st.sampled_from([0, 1, 2, 3, 3, 7, -5]),
                "sys_flag": st.sampled_from([0, 0, 0, 1, 4, 8, 0x80, 0x101]),
                "flag": st.integers(-5, 5),
                "properties": properties,
                "reconsume_times": st.sampled_from([None, 0, 3]),
                "batch": st.sampled_from([None, False, False, True]),
                "body": st.sampled_from([b"hello", b"x" * 300, b""]),
                "born_timestamp": st.integers(0, 2**40),
            }
        ),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


def as_bytes(sent: list[tuple[Any, dict[str, Any], bool]]) -> bytes:
    frames = []
    for opaque, (kind, fields, oneway) in enumerate(sent):
        request = kind(producer_group="p", default_topic="TBW102", default_topic_queue_nums=4, **fields)
        frames.append(encode_frame(encode_request(request, opaque, oneway=oneway)))
    return b"".join(frames)


async def outcome(
    data: bytes, cuts: list[int], *, has_express: bool, flush: Literal["ASYNC_FLUSH", "SYNC_FLUSH"]
) -> tuple[bytes, bytes, int]:
    """What a fresh broker answers, what is in its log then, and how many frames took the short road."""
    # Unique keys that the broker makes, and queues it chooses, are the same each time.
    random.seed(1)
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(
            BrokerConfiguration(
                BrokerSettings(
                    broker_name="a",
                    broker_ip1="127.0.0.1",
                    bind_address="127.0.0.1",
                    listen_port=0,
                    auto_create_topics=False,
                ),
                StoreSettings(
                    root=Path(directory),
                    log_segment_bytes=65_536,
                    queue_file_bytes=2000,
                    index_enabled=False,
                    flush_disk_type=flush,
                    disk_warning_percent=100,
                ),
            ),
            clock=ManualClock(),
        )
        await broker.start()
        parts = broker._started
        parts.topics.create_if_absent("Orders", 4)
        # The port is the system's choice; what is stored must not depend on it.
        express: Any = parts.server._traffic.express
        host = bytes([127, 0, 0, 1, 0, 0, 42, 159])
        parts.appending._store_host = express._store_host = host
        parts.appending._id_prefix = express._id_prefix = host.hex().upper()
        traffic = parts.server._traffic
        taken = 0

        def counting(data: bytes, connection: Connection) -> tuple[int, int]:
            nonlocal taken
            frames, position = express(data, connection)
            taken += frames
            return frames, position

        traffic.express = counting if has_express else None
        connection = Connection(traffic, peer_address="10.0.0.1:4000")
        transport = FakeTransport(connection)
        connection.connection_made(transport)
        start = 0
        for cut in [*sorted(cuts), len(data)]:
            connection.data_received(data[start:cut])
            start = cut
        while connection.in_flight:
            parts.store.flush()
            parts.store.settle()
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        answers = b"".join(transport.writes)
        connection.close()
        connection.connection_lost(None)
        await broker.stop()
        log = b"".join(path.read_bytes() for path in sorted((Path(directory) / "commitlog").iterdir()))
        return answers, log.rstrip(b"\0"), taken


def sorted_answers(answers: bytes) -> list[bytes]:
    """Answers may come in another order: those that wait for the disk come later on either road."""
    frames = []
    while answers:
        end = 4 + int.from_bytes(answers[:4])
        frames.append(answers[:end])
        answers = answers[end:]
    return sorted(frames)


@settings(max_examples=40)
@given(sends, st.data(), st.sampled_from(["ASYNC_FLUSH", "SYNC_FLUSH"]))
def test_both_roads_give_the_same_log_and_the_same_answers(
    sent: list[tuple[Any, dict[str, Any], bool]],
    data: st.DataObject,
    flush: Literal["ASYNC_FLUSH", "SYNC_FLUSH"],
) -> None:
    encoded = as_bytes(sent)
    cuts = data.draw(st.lists(st.integers(0, len(encoded)), max_size=3))

    async def both() -> None:
        short = await outcome(encoded, cuts, has_express=True, flush=flush)
        general = await outcome(encoded, cuts, has_express=False, flush=flush)
        assert sorted_answers(short[0]) == sorted_answers(general[0])
        assert short[1] == general[1]

    asyncio.run(both())


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_plain_sends_take_the_short_road(flush: Literal["ASYNC_FLUSH", "SYNC_FLUSH"]) -> None:
    plain = {
        "topic": "Orders",
        "queue_id": 1,
        "sys_flag": 0,
        "flag": 0,
        "properties": UNIQUE,
        "body": b"x",
        "born_timestamp": 1,
    }
    encoded = as_bytes(
        [(SendMessageV2, plain, False), (SendMessage, plain, False), (SendMessageV2, plain, True)] * 3
    )

    # The first message of a queue opens it, on the general road.
    answers, _, taken = asyncio.run(outcome(encoded, [len(encoded) // 3], has_express=True, flush=flush))
    assert taken >= 6
    assert len(sorted_answers(answers)) == 6
