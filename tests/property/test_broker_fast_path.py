"""The fast path does what the general path does, whatever is sent."""

import asyncio
import random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.both_paths import (
    FORMS,
    HALF,
    LITE,
    READABLE,
    UNIQUE,
    Flush,
    as_bytes,
    compare,
    ends_of,
    outcome,
    plain_pull,
    plain_send,
)
from tests.support.chance import examples

from pyromq.broker.services.acknowledging import Acknowledging
from pyromq.compiled import WHY, twin
from pyromq.errors import Refused
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.catalogue import Request, encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.framing import FrameReader, encode_frame
from pyromq.protocol.pop_receipt import decode_offsets, decode_start_offsets
from pyromq.protocol.requests.popping import AckMessage, ChangeInvisibleTime, PopMessage
from pyromq.protocol.requests.pulling import LitePullMessage, PullMessage
from pyromq.protocol.requests.sending import SendMessage, SendMessageBatch, SendMessageV2

pytestmark = pytest.mark.skipif(twin("broker.fast_path") is None, reason=f"no fast path: {WHY}")
OUR_CODES = {10, 11, 37, 310, 320, 361}

IN_ONE = "__LITE_TOPIC\x01one\x02"

properties = st.one_of(
    st.just(UNIQUE + "TAGS\x01a\x02"),
    st.just(IN_ONE + UNIQUE),
    st.sampled_from(["TIMER_DELAY_SEC\x019\x02", "TIMER_DELIVER_MS\x011700000002345\x02"]).map(
        UNIQUE.__add__
    ),
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
                "KEYS\x01\t\r\n\b\f/\x7f\x02",
                "DELAY\x013\x02",
                "DELAY\x01no\x02",
                "xDELAY\x013\x02",
                "WAIT\x01false\x02",
                "WAIT\x01true\x02",
                "WAIT\x01\x02",
                "TRAN_MSG\x01true\x02",
                "TRAN_MSG\x01false\x02",
                "POP_CK\x01x\x02",
                "_SYS_MSG_PRIORITY_\x012\x02",
                "_SYS_MSG_PRIORITY_\x0199\x02",
                "_SYS_MSG_PRIORITY_\x01-1\x02",
                "__SHARDINGKEY\x01k\x02",
                IN_ONE,
                IN_ONE,
                "__LITE_TOPIC\x01two\x02",
                "__LITE_TOPIC\x01\x02",
                "__LITE_TOPIC\x01no name\x02",
                "__LITE_EPOCH\x012\x02",
                "__LITE_OFFSET\x011\x02",
                "INNER_MULTI_DISPATCH\x01%LMQ%$Sessions$one\x02",
                "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02",
                "INNER_MULTI_QUEUE_OFFSET\x013\x02",
                "TIMER_DELAY_SEC\x015\x02",
                "TIMER_DELAY_SEC\x01-5\x02",
                "TIMER_DELAY_MS\x01700\x02",
                "TIMER_DELIVER_MS\x011700000004000\x02",
                "TIMER_DELIVER_MS\x011690000000000\x02",
                "TIMER_DELIVER_MS\x019700000000000\x02",
                "TIMER_DELIVER_MS\x01soon\x02",
                "TIMER_OUT_MS\x011\x02",
                "TIMER_DEL_UNIQKEY\x01x\x02",
                "REAL_TOPIC\x01Other\x02",
                "INNER_NUM\x012\x02",
                "café\x01ü\x02",
                "nothing\x02",
                "zero\x01\0",
                "open\x01end",
            ]
        ),
        max_size=4,
    ).map("".join),
    st.none(),
)

batches = st.lists(
    st.builds(
        BatchEntry,
        st.sampled_from([b"one", b"", b"x" * 200]),
        st.sampled_from([b"", UNIQUE.encode(), b"TAGS\x01t\x02", b"a\x01\0"]),
        st.integers(-3, 3),
    ),
    max_size=4,
).map(encode_batch)

common = {
    "is_namespaced": st.sampled_from([None, None, None, True]),
    "is_logical_queue": st.sampled_from([None, None, None, False]),
    "namespace_name": st.sampled_from([None, None, "space"]),
}

sends = st.builds(
    lambda kind, fields: kind(
        producer_group="p", default_topic="TBW102", default_topic_queue_nums=4, **fields
    ),
    st.sampled_from([SendMessageV2, SendMessageV2, SendMessage, SendMessageBatch]),
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(
                ["Orders", "Orders", "Orders", LITE, LITE, "Unknown", "%RETRY%g", "bad topic"]
            ),
            "queue_id": st.sampled_from([0, 1, 2, 3, 3, 7, -5]),
            "sys_flag": st.sampled_from([0, 0, 0, 1, 4, 8, 0x80, 0x101]),
            "flag": st.integers(-5, 5),
            "properties": properties,
            "reconsume_times": st.sampled_from([None, 0, 3]),
            "batch": st.sampled_from([None, False, False, True]),
            "body": st.one_of(st.sampled_from([b"hello", b"x" * 300, b""]), batches),
            "born_timestamp": st.integers(0, 2**40),
            "target_broker_name": st.sampled_from([None, "a"]),
            "resent": st.sampled_from([None, None, False, True]),
            **common,
        }
    ),
)

pulls = st.builds(
    lambda kind, fields: kind(suspend_timeout_millis=1000, **fields),
    st.sampled_from([PullMessage, PullMessage, LitePullMessage]),
    st.fixed_dictionaries(
        {
            "consumer_group": st.sampled_from(["g", "g", "other group", "CID_h"]),
            "topic": st.sampled_from(["Full", "Full", "Full", "Unknown"]),
            "queue_id": st.sampled_from([0, 1, 2, -1]),
            "queue_offset": st.sampled_from([0, 0, 3, READABLE - 1, READABLE, 100, -1]),
            "max_msg_nums": st.sampled_from([1, 2, 32, 0, -3]),
            # Without the bit for suspending: nobody is left waiting at the end.
            "sys_flag": st.sampled_from([4, 4, 5, 5, 0, 1, 12]),
            "commit_offset": st.integers(-1, 5),
            "subscription": st.sampled_from(["*", "*", "a", "a || b", "c", None, "", "x is null"]),
            "sub_version": st.sampled_from([0, 2**40]),
            "expression_type": st.sampled_from(["TAG", "TAG", None, "", "SQL92"]),
            "max_msg_bytes": st.sampled_from([None, None, 1, 300, -5]),
            "request_source": st.sampled_from([None, 1]),
            **common,
        }
    ),
)

streams = st.lists(
    st.tuples(st.one_of(sends, sends, pulls), st.sampled_from(FORMS), st.booleans()), min_size=1, max_size=14
)


@settings(max_examples=examples(40))
@given(streams, st.data(), st.sampled_from(["ASYNC_FLUSH", "SYNC_FLUSH"]))
def test_both_paths_give_the_same_log_and_the_same_answers(
    stream: list[tuple[Request[Any], int, bool]], data: st.DataObject, flush: Flush
) -> None:
    encoded = as_bytes(stream)
    cuts = data.draw(st.lists(st.integers(0, len(encoded)), max_size=3))
    compare(encoded, cuts, flush)


@settings(max_examples=examples(40))
@given(streams, st.data())
def test_both_paths_agree_about_damage(
    stream: list[tuple[Request[Any], int, bool]], data: st.DataObject
) -> None:
    encoded = bytearray(as_bytes(stream))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(b'0"\\{},:-')))
    frames = FrameReader().feed(bytes(encoded))
    # What other requests are answered may depend on the hour.
    if all(frame.code in OUR_CODES for frame in frames):
        cuts = data.draw(st.lists(st.integers(0, len(encoded)), max_size=2))
        compare(bytes(encoded), cuts, "ASYNC_FLUSH")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize(
    "request_",
    [
        plain_send(),
        plain_send(SendMessage),
        plain_send(properties=UNIQUE + "TIMER_DELAY_SEC\x015\x02"),
        plain_send(properties="TIMER_DELAY_MS\x011\x02" + UNIQUE),
        plain_send(properties=UNIQUE + "TIMER_DELIVER_MS\x011700000012345\x02"),
        plain_send(SendMessageBatch, body=encode_batch([BatchEntry(b"1"), BatchEntry(b"2")])),
        plain_send(batch=True, properties=None, body=encode_batch([BatchEntry(b"1")])),
        plain_send(topic=LITE),
        plain_send(topic=LITE, properties=IN_ONE + UNIQUE),
        plain_send(properties=IN_ONE + UNIQUE),
        plain_pull(),
        plain_pull(LitePullMessage),
        plain_pull(subscription="*", sys_flag=4),
    ],
    ids=lambda request: type(request).__name__,
)
def test_what_is_plain_takes_the_fast_path(form: int, flush: Flush, request_: Request[Any]) -> None:
    encoded = as_bytes([(request_, form, False)] * 6)

    # The first of a kind opens the way, on the general path.
    short = asyncio.run(outcome(encoded, [len(encoded) // 6], "fast", flush))
    assert short.taken == 5
    assert short.pulled == (5 if isinstance(request_, PullMessage) else 0)
    assert len(short.frames) == 6


@pytest.mark.parametrize("form", FORMS)
def test_an_epoch_takes_its_lite_topic_off_the_fast_path(form: int) -> None:
    def lite(name: str, more: str = "", **fields: Any) -> tuple[Request[Any], int, bool]:
        named = f"__LITE_TOPIC\x01{name}\x02"
        return plain_send(topic=LITE, properties=named + more + UNIQUE, **fields), form, False

    stream = [lite("one"), lite("two", "__LITE_EPOCH\x012\x02")]
    stream += [lite("one"), lite("two"), lite("one"), lite("three")]
    encoded = as_bytes(stream)
    # Each general frame is read alone: what follows it in the same read is general, too.
    cuts = [len(as_bytes(stream[:count])) for count in range(1, len(stream))]
    short = compare(encoded, cuts, "ASYNC_FLUSH")
    assert short.taken == 3
    codes = {frame.opaque: frame.code for frame in FrameReader().feed(short.answers)}
    assert codes == dict.fromkeys(range(6), 0) | {3: ResponseCode.LITE_FENCED}


quotas = st.fixed_dictionaries(
    {},
    optional={
        "quota.send.messages": st.sampled_from(["1", "2", "4"]),
        "quota.send.bytes": st.sampled_from(["10", "300", "1000"]),
    },
)


@settings(max_examples=examples(60))
@given(streams, quotas, st.sampled_from(["ASYNC_FLUSH", "SYNC_FLUSH"]))
def test_both_paths_charge_sends_with_a_quota_alike(
    stream: list[tuple[Request[Any], int, bool]], limits: dict[str, str], flush: Flush
) -> None:
    compare(as_bytes(stream), [], flush, quotas=limits)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_sends_with_a_quota_take_the_fast_path_until_they_are_refused(flush: Flush) -> None:
    encoded = as_bytes([(plain_send(), HeaderForm.JSON, False)] * 9)
    short = compare(encoded, [len(encoded) // 9], flush, quotas={"quota.send.messages": "3"})
    # The first opens the way; three are within a second's worth, four are late, and two are refused.
    assert short.taken == 6
    codes = [frame.code for frame in FrameReader().feed(short.answers)]
    assert sorted(codes) == [0] * 7 + [ResponseCode.SYSTEM_BUSY] * 2


halves = st.builds(
    lambda fields: plain_send(**fields),
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["Orders", "Orders", "Orders", "Orders", "Unknown", "%RETRY%g"]),
            "queue_id": st.sampled_from([0, 1, 1, 3, -5]),
            "sys_flag": st.sampled_from([4, 4, 4, 0, 5, 8, 0x84]),
            "properties": st.lists(
                st.sampled_from(
                    [
                        "TAGS\x01t\x02",
                        "WAIT\x01false\x02",
                        "PGROUP\x01q\x02",
                        "PGROUP\x01\x02",
                        "TRAN_MSG\x01TRUE\x02",
                        "TRAN_MSG\x01false\x02",
                        "UNIQ_KEY\x01B\x02",
                        "UNIQ_KEY\x01\x02",
                        "DELAY\x013\x02",
                        "TIMER_DELAY_SEC\x015\x02",
                        "REAL_TOPIC\x01Other\x02",
                        "REAL_QID\x017\x02",
                        "__transactionId__\x01X\x02",
                        "CHECK_IMMUNITY_TIME_IN_SECONDS\x015\x02",
                        "open\x01end",
                    ]
                ),
                max_size=2,
            ).map(lambda more: HALF + UNIQUE + "".join(more)),
            "reconsume_times": st.sampled_from([None, 0, 0, 3]),
            "batch": st.sampled_from([None, False, False, False, True]),
            "born_timestamp": st.sampled_from([1, 2, 1_700_000_000_000]),
            "body": st.sampled_from([b"hello", b"x" * 300]),
        }
    ),
)

ends = st.tuples(
    st.integers(0, 9),  # which half message
    st.fixed_dictionaries(
        {
            "producer_group": st.sampled_from(["p", "p", "p", "p", "q", ""]),
            "commit_or_rollback": st.sampled_from([8, 8, 8, 12, 12, 0, 4]),
            "from_transaction_check": st.booleans(),
            "transaction_id": st.sampled_from([None, "AC1234"]),
            "topic": st.sampled_from([None, "Orders"]),
            "remark": st.sampled_from([None, None, "broken"]),
            "is_namespaced": st.sampled_from([None, None, True]),
        }
    ),
    st.sampled_from([0, 0, 0, 0, 1, -1, 1 << 40]),  # how far it misses the log offset
    st.sampled_from([0, 0, 0, 0, 1, -5]),  # and the queue offset
    st.sampled_from(FORMS),
    st.sampled_from([True, True, True, False]),  # oneway
)


@settings(max_examples=examples(40))
@given(
    st.lists(st.tuples(st.one_of(halves, halves, sends), st.sampled_from(FORMS), st.just(False)), max_size=9),
    st.lists(ends, min_size=1, max_size=9),
    st.sampled_from(["ASYNC_FLUSH", "SYNC_FLUSH"]),
)
def test_both_paths_begin_and_end_the_same_transactions(
    stream: list[tuple[Request[Any], int, bool]], wanted: list[Any], flush: Flush
) -> None:
    # The first of them opens the queues, on the general path.
    opening = plain_send(queue_id=1, properties=HALF + UNIQUE)
    encoded = as_bytes([(opening, HeaderForm.JSON, False), *stream])
    first = len(as_bytes([(opening, HeaderForm.JSON, False)]))
    compare(encoded, [first], flush, lambda answers: ends_of(answers, wanted))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_whole_transactions_take_the_fast_path(form: int, flush: Flush) -> None:
    half = plain_send(sys_flag=4, properties=HALF + UNIQUE + "TAGS\x01t\x02")
    encoded = as_bytes([(plain_send(), form, False), *[(half, form, False)] * 5])
    fields = {"producer_group": "p", "from_transaction_check": False}
    wanted = [
        (number, fields | {"commit_or_rollback": state}, 0, 0, form, True)
        for number, state in ((1, 8), (2, 8), (3, 12), (4, 8), (5, 12))
    ]
    # The first message and the first half message open the queues, on the general path.
    cuts = [
        len(as_bytes([(plain_send(), form, False)])),
        len(as_bytes([(plain_send(), form, False), (half, form, False)])),
    ]
    short = compare(encoded, cuts, flush, lambda answers: ends_of(answers, wanted))
    assert short.taken == 4 + 5
    assert short.ended == 5


# Acknowledgements

pops = st.builds(
    lambda fields: plain_pop(**fields),
    st.fixed_dictionaries(
        {
            "max_msg_nums": st.sampled_from([1, 2, 4, 32]),
            "queue_id": st.sampled_from([-1, 0, 1]),
            "consumer_group": st.sampled_from(["g", "g", "h"]),
            "order": st.sampled_from([False, False, False, True]),
            "invisible_time": st.sampled_from([60_000, 60_000, 500]),
        }
    ),
)

acks = st.tuples(
    st.integers(0, 40),  # which of the popped messages
    st.fixed_dictionaries(
        {
            "offset_miss": st.sampled_from([0, 0, 0, 0, 0, 0, 1, 1000, -1000]),
            "receipt": st.sampled_from(
                [None] * 8 + ["", "0 1 2 3", "1 2 3 4 0 a 1 ", "x 2 3 4 0 a 1 0", " 1 2 3 4 0 a 1 0"]
            ),
            "has_offset": st.sampled_from([True] * 7 + [False]),
            "topic": st.sampled_from([None] * 7 + ["Unknown", "Orders", "caf\u00e9", 'a"b']),
            "queue_id": st.sampled_from([None] * 7 + [-1, 9]),
            "changes": st.sampled_from([False] * 7 + [True]),
            "also": st.sampled_from([None] * 5 + ["send", "pull"]),
        }
    ),
    st.sampled_from([HeaderForm.JSON, HeaderForm.JSON, HeaderForm.JSON, HeaderForm.BINARY]),
    st.sampled_from([False] * 5 + [True]),  # oneway
)


def plain_pop(**fields: Any) -> Request[Any]:
    plain: dict[str, Any] = {
        "consumer_group": "g",
        "topic": "Full",
        "queue_id": -1,
        "max_msg_nums": 32,
        "invisible_time": 60_000,
        "poll_time": 0,
        "born_time": 0,
        "init_mode": 0,
    }
    return PopMessage(**plain | fields)


def acks_of(answers: bytes, asked: list[Request[Any]], wanted: list[Any]) -> bytes:
    """Acknowledgements of the messages that were popped."""
    popped = []
    for frame in sorted(FrameReader().feed(answers), key=lambda frame: frame.opaque):
        ext = frame.ext
        for (mark, queue), each in decode_offsets(ext.get("msgOffsetInfo", "")).items():
            start = decode_start_offsets(ext["startOffsetInfo"])[mark, queue]
            begin = f"{start} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} {mark} a {queue}"
            group = getattr(asked[frame.opaque], "consumer_group", "g")
            popped += [(group, begin, queue, offset) for offset in each]
    frames = b""
    for opaque, (which, how, form, oneway) in enumerate(wanted, 500):
        if not popped:
            break
        group, begin, queue, offset = popped[which % len(popped)]
        receipt = f"{begin} {offset}" if how["has_offset"] else begin
        fields = {
            "consumer_group": group,
            "topic": how["topic"] or "Full",
            "queue_id": queue if how["queue_id"] is None else how["queue_id"],
            "extra_info": receipt if how["receipt"] is None else how["receipt"],
            "offset": offset + how["offset_miss"],
        }
        request: Request[Any] = AckMessage(**fields)
        if how["changes"]:
            request = ChangeInvisibleTime(**fields, invisible_time=30_000)
        frames += encode_frame(encode_request(request, opaque, form=form, oneway=oneway))
        if how["also"] is not None:
            other = plain_send() if how["also"] == "send" else plain_pull()
            frames += encode_frame(encode_request(other, 1000 + opaque, form=form))
    return frames


@settings(max_examples=examples(60))
@given(
    st.lists(pops, min_size=1, max_size=5),
    st.lists(acks, min_size=1, max_size=14),
    st.sampled_from(["ASYNC_FLUSH", "SYNC_FLUSH"]),
)
def test_both_paths_take_the_same_acknowledgements(
    asked: list[Request[Any]], wanted: list[Any], flush: Flush
) -> None:
    encoded = as_bytes([(request, HeaderForm.JSON, False) for request in asked])
    compare(encoded, [], flush, lambda answers: acks_of(answers, asked, wanted))


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_plain_acknowledgements_take_the_fast_path(flush: Flush) -> None:
    asked = [plain_pop(queue_id=0, max_msg_nums=4), plain_pop(queue_id=1, max_msg_nums=3)]
    encoded = as_bytes([(request, HeaderForm.JSON, False) for request in asked])
    plain = {
        "offset_miss": 0,
        "receipt": None,
        "has_offset": True,
        "topic": None,
        "queue_id": None,
        "changes": False,
        "also": None,
    }
    wanted = [(number, plain, HeaderForm.JSON, False) for number in range(7)]
    short = compare(encoded, [], flush, lambda answers: acks_of(answers, asked, wanted))
    assert short.acked == short.taken == 7
    assert sum(frame.code == 0 for frame in FrameReader().feed(short.answers)) == 2 + 7
    assert short.log.count(b"bAck") == 2 * 2  # one record for each pop: its tag and its key


def test_refused_acknowledgements_are_answered_alike_on_both_paths() -> None:
    asked = [plain_pop(queue_id=0, max_msg_nums=4)]
    encoded = as_bytes([(request, HeaderForm.JSON, False) for request in asked])
    wanted = [
        (
            number,
            dict.fromkeys(("receipt", "topic", "queue_id", "also"))
            | {"offset_miss": 0, "has_offset": True, "changes": False},
            HeaderForm.JSON,
            False,
        )
        for number in range(4)
    ]
    refusal = Refused(ResponseCode.SYSTEM_ERROR, "the disk is full")
    with patch.object(Acknowledging, "_write_ack", side_effect=refusal):
        short = compare(encoded, [], "ASYNC_FLUSH", lambda answers: acks_of(answers, asked, wanted))
    assert short.acked == 4
    refused = [frame for frame in FrameReader().feed(short.answers) if frame.code]
    assert [(frame.code, frame.remark) for frame in refused] == [(1, "the disk is full")] * 4


def test_no_damage_upsets_the_fast_path() -> None:
    """Whatever is changed in a frame, it is taken or declined; that both paths agree is shown above."""
    chance = random.Random(5)
    entries = encode_batch([BatchEntry(b"1", b"TAGS\x01t\x02"), BatchEntry(b"2")])
    whole = [
        as_bytes([(request, form, False)])
        for form in FORMS
        for request in (
            plain_send(),
            plain_send(SendMessageBatch, body=entries),
            plain_pull(),
            plain_send(properties=HALF + UNIQUE, sys_flag=4),
            plain_send(properties=UNIQUE + "TIMER_DELAY_SEC\x015\x02"),
        )
    ]

    class Peer:
        peer_address = "10.0.0.1:4000"
        grants = None

        def put(self, answers: bytes) -> None:
            assert answers

        def on_close(self, _: object) -> None: ...

    async def survive(fast_path: Any) -> int:
        taken = 0
        for _ in range(5_000):
            data = bytearray(chance.choice(whole))
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(data))
                data[at : at + chance.randint(0, 3)] = chance.choice(
                    [chance.randbytes(chance.randint(1, 4)), b'"', b"\\", b"{", b"\0", b"\xff\xff\xff\xff"]
                )
            if chance.random() < 0.7:
                data[:4] = (len(data) - 4).to_bytes(4)
            frames, position = fast_path(bytes(data), Peer())
            assert 0 <= position <= len(data)
            taken += frames
        return taken

    opened = b"".join(whole)
    assert asyncio.run(outcome(opened, [len(opened) // 3], "fast", also=survive)).also > 0


@pytest.mark.parametrize(("group", "pulled"), [("g", 0), ("others", 1)])
def test_a_pending_reset_takes_only_its_own_group_off_the_fast_path(group: str, pulled: int) -> None:
    pulls = as_bytes([(plain_pull(queue_id=1), HeaderForm.JSON, False)] * 2)
    found = asyncio.run(outcome(pulls, [len(pulls) // 2], "fast", reset_groups=[group]))
    assert found.pulled == pulled
    assert len(found.frames) == 2
