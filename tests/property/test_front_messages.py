"""The compiled road of plain calls makes the requests and the answers of the general path, or declines."""

import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.cluster.sending.request import SendForms
from pyromq.compiled import WHY, twin
from pyromq.filtering.tags import parse_tags
from pyromq.protocol import properties as props
from pyromq.protocol.catalogue import Answer, declaration_of, encode_answer
from pyromq.protocol.frame import Frame
from pyromq.protocol.framing import DEFAULT_MAX_FRAME_BYTES, encode_frame
from pyromq.protocol.pop_receipt import encode_offsets, encode_start_offsets
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import Host, StoredMessage, SysFlag, encode_record
from pyromq.protocol.request_forms import RequestForm, as_text
from pyromq.protocol.requests.popping import AckMessage, PopMessageAnswer
from pyromq.protocol.requests.sending import SendMessageAnswer, SendMessageV2
from pyromq.proxy.codes import OK, Code, Rejected
from pyromq.proxy.grpc.framing import MessageReader, frame_message
from pyromq.proxy.incoming import framed, received
from pyromq.proxy.messages import message
from pyromq.proxy.outgoing import Outgoing, prepare
from pyromq.proxy.receipts import decode_handle, popped
from pyromq.proxy.sending import TERMS, UNUSUAL, without_flag
from pyromq.proxy.settings import ProxySettings
from pyromq.proxy.topics import FIFO, NORMAL

front_calls: Any = twin("proxy.calls")
front_sends: Any = twin("proxy.fast_sends")
front_acks: Any = twin("proxy.fast_acks")

pytestmark = pytest.mark.skipif(front_calls is None, reason=f"no quick calls: {WHY}")

SendMessageRequest = message("SendMessageRequest")
AckMessageRequest = message("AckMessageRequest")
SETTINGS = ProxySettings(
    max_message_bytes=40, max_user_property_bytes=60, user_property_max_num=3, max_message_group_size=8
)
READER = front_sends and front_sends.SendReader(
    UNUSUAL,
    max_body_bytes=40,
    refuses_empty=True,
    max_properties=3,
    max_properties_bytes=60,
    max_group_bytes=8,
)
FORMS = SendForms(TERMS)
NOW_MS = 1_700_000_000_123
OPAQUE, QUEUE_ID = 77, 5

_WORDS = st.sampled_from(["a", "Orders", "x y", 'say "hi"', "back\\slash", "käse", "键", " ", "", "a|b"])
_ODD = st.sampled_from(["\n", "\x01", "\x02", "\x7f", "\x85", "\u3000", "TAGS", "__SHARDINGKEY"])
_TEXTS = st.one_of(_WORDS, _WORDS, _WORDS, _ODD, st.text(max_size=9))
_TIMES = st.tuples(st.integers(0, 2**34), st.integers(0, 999_999_999))


@st.composite
def sends(draw: st.DrawFn) -> Any:
    request = SendMessageRequest()
    for _ in range(draw(st.sampled_from([1, 1, 1, 1, 1, 1, 0, 2]))):
        sent = request.messages.add()
        sent.topic.name = draw(st.sampled_from(["Orders", "Orders", "Orders", "TBW102", "bad topic", ""]))
        sent.topic.resource_namespace = draw(st.sampled_from(["", "", "", "ns"]))
        sent.body = draw(st.binary(min_size=1, max_size=20) | st.sampled_from([b"", b"x" * 41]))
        for _ in range(draw(st.integers(0, 4))):
            sent.user_properties[draw(_TEXTS)] = draw(_TEXTS)
        system = sent.system_properties
        system.message_id = draw(st.sampled_from(["01AB", "01AB", "01AB", "", " ", 'q"', "\x02"]))
        system.born_host = draw(st.sampled_from(["host", "", "h\x02"]))
        if draw(st.booleans()):
            system.tag = draw(_TEXTS)
        system.keys.extend(draw(st.lists(_TEXTS, max_size=2)))
        system.body_encoding = draw(st.integers(0, 3))
        system.message_type = draw(st.sampled_from([0, 1, 1, 2, 4]))
        if draw(st.booleans()):
            system.born_timestamp.seconds, system.born_timestamp.nanos = draw(_TIMES)
        rare = draw(st.integers(0, 12))
        if rare == 1:
            system.message_group = draw(st.sampled_from(["g", "123456789", " ", "group"]))
        elif rare == 2:
            system.delivery_timestamp.seconds = NOW_MS // 1000
        elif rare == 3:
            system.trace_context = draw(_TEXTS)
        elif rare == 4:
            system.delivery_attempt = 3
        elif rare == 6:
            system.priority = draw(st.sampled_from([-1, 0, 7]))
        elif rare == 5:
            system.queue_id = 2
            system.body_digest.checksum = "AB"
    return request


def _fields(frame: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a request and its body."""
    size = int.from_bytes(frame[4:8], "big")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return json.loads(frame[8 : 8 + size]), frame[8 + size :]


@settings(max_examples=examples(400), deadline=None)
@given(sends())
def test_a_message_is_sent_as_the_general_path_sends_it_or_declined(request: Any) -> None:
    plain = READER.read(frame_message(request.SerializeToString()), b"10.1.2.3")
    if len(request.messages) != 1:
        assert plain is None
        return
    refused = None
    try:
        expected = prepare(request.messages[0], SETTINGS, NOW_MS, "10.1.2.3:4567")
    except Rejected as problem:
        refused = problem.code
    if refused is not None:
        assert plain is None or refused is Code.ILLEGAL_TOPIC  # names are looked up, not read
        return
    if plain is None:
        return
    assert expected.message_type == (NORMAL if plain.message_group is None else FIFO)
    assert (plain.message_group or "") == expected.message_group
    assert plain.topic == expected.message.topic
    frame = frame_of(plain)
    general = general_frame(expected)
    assert comparable(frame) == comparable(general)
    assert len(frame) == len(general)


def pieces_for(topic: str) -> tuple[bytes, ...]:
    return without_flag(FORMS.pieces(SendMessageV2, topic))


def frame_of(plain: Any) -> bytes:
    frame: bytes = plain.frame(pieces_for(plain.topic), QUEUE_ID, NOW_MS, OPAQUE, DEFAULT_MAX_FRAME_BYTES)
    return frame


def general_frame(expected: Outgoing) -> bytes:
    filled = FORMS.filled(expected.message, QUEUE_ID)
    head = filled.form.head(filled.values, OPAQUE, len(filled.body), DEFAULT_MAX_FRAME_BYTES)
    return head + filled.body


def comparable(frame: bytes) -> Any:
    """The header of a request and its body. Protobuf keeps the properties of a message in no order."""
    header, body = _fields(frame)
    header["extFields"]["i"] = sorted(header["extFields"]["i"].split("\x02"))
    return header, body


def an_ordinary_send() -> Any:
    request = SendMessageRequest()
    sent = request.messages.add()
    sent.topic.name, sent.body = "Orders", b"hello"
    sent.user_properties["colour"] = "blue"
    system = sent.system_properties
    system.message_id, system.tag, system.message_type, system.body_encoding = "01AB", "fast", 1, 1
    system.keys.append("k1")
    system.born_host = "client"
    system.born_timestamp.seconds = 1_700_000_000
    return request


def test_an_ordinary_message_is_not_declined() -> None:
    request = an_ordinary_send()
    assert READER.read(frame_message(request.SerializeToString()), b"h").topic == "Orders"
    request.messages[0].system_properties.message_group = "g1"
    assert READER.read(frame_message(request.SerializeToString()), b"h").message_group == "g1"


def test_a_frame_that_is_too_large_is_left_to_the_general_path() -> None:
    plain = READER.read(frame_message(an_ordinary_send().SerializeToString()), b"h")
    assert plain.frame(pieces_for("Orders"), 0, NOW_MS, 1, 100) is None


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=60), st.data())
def test_any_bytes_are_declined_or_read(junk: bytes, draw: st.DataObject) -> None:
    data = bytearray(frame_message(an_ordinary_send().SerializeToString()))
    for at in draw.draw(st.lists(st.integers(5, len(data) - 1), max_size=3)):
        data[at] = draw.draw(st.integers(0, 255))
    for each in (bytes(data), frame_message(junk), junk):
        plain = READER.read(each, b"h")
        if plain is not None:
            request = SendMessageRequest.FromString(each[5:])  # it is what protobuf takes, too
            assert request.messages[0].topic.name == plain.topic
        ack = front_acks.read_ack(each)
        assert ack is None or AckMessageRequest.FromString(each[5:]).topic.name == ack.topic


class _Quick:
    """A connection to a broker with one call that waits."""

    def __init__(self, plain: Any) -> None:
        self.told: bytes | None = None
        self.quick = {OPAQUE: SimpleNamespace(plain=plain, settle=self._settle)}

    def _settle(self, told: bytes) -> None:
        self.told = told


def _told(plain: Any, answer: Frame) -> bytes | None:
    data, waiting = encode_frame(answer), _Quick(plain)
    frames, position = front_calls.QuickAnswers(DEFAULT_MAX_FRAME_BYTES)(data, waiting)
    assert (frames, position) == ((1, len(data)) if waiting.told is not None else (0, 0))
    return waiting.told


@given(
    st.integers(0, 2**62),
    st.sampled_from([None, "", "TX1", 'odd"']),
    st.sampled_from([None, "handle"]),
    st.sampled_from([0, 10]),
)
def test_the_answer_to_a_send_is_that_of_the_general_path_or_declined(
    offset: int, transaction_id: str | None, recall_handle: str | None, code: int
) -> None:
    plain = READER.read(frame_message(an_ordinary_send().SerializeToString()), b"h")
    answer = SendMessageAnswer(
        msg_id="0A",
        queue_id=1,
        queue_offset=offset,
        transaction_id=transaction_id,
        recall_handle=recall_handle,
    )
    frame = encode_answer(declaration_of(SendMessageV2), answer, Frame(0, OPAQUE))
    frame.code = code
    told = _told(plain, frame)
    if told is None:
        assert code or recall_handle or transaction_id == 'odd"'
        return
    entry = message("SendResultEntry")(
        status=OK, message_id="01AB", transaction_id=transaction_id or "01AB", offset=offset
    )
    expected = message("SendMessageResponse")(status=OK, entries=[entry])
    assert told == frame_message(expected.SerializeToString())


_NUMBERS = st.sampled_from(["0", "1", "007", "12345", "9" * 18, "9" * 19, "-1", "", "x"])
_USUAL_NUMBERS = st.integers(0, 10**18 - 1).map(str)
_MARKS = st.sampled_from(["0", "0", "0", "0", "1", "2", "3"])
_BROKERS = st.sampled_from(["broker-a", "broker-a", 'b"', "b\\", "käse", ""])
_QUEUES = st.integers(0, 10**9 - 1).map(str)


@st.composite
def handles(draw: st.DrawFn) -> str:
    number = draw(st.sampled_from([_USUAL_NUMBERS, _USUAL_NUMBERS, _USUAL_NUMBERS | _NUMBERS]))
    words = [draw(number) for _ in range(4)] + [draw(_MARKS), draw(_BROKERS), draw(_QUEUES)]
    words += [draw(number) for _ in range(draw(st.sampled_from([2, 2, 2, 2, 1, 3])))]
    return " ".join(words) + draw(st.sampled_from(["", "", "", " "]))


@settings(max_examples=examples(400), deadline=None)
@given(handles(), st.sampled_from(["01AB", "", "käse"]))
def test_an_acknowledgement_is_that_of_the_general_path_or_declined(text: str, message_id: str) -> None:
    request = AckMessageRequest()
    request.group.name, request.topic.name = "group", "Orders"
    request.entries.add(message_id=message_id, receipt_handle=text)
    plain = front_acks.read_ack(frame_message(request.SerializeToString()))
    try:
        handle = decode_handle(text)
        asked = handle.ack("Orders", "group")
    except Rejected:
        assert plain is None
        return
    if plain is None:
        return
    assert (plain.topic, plain.group, plain.handle) == ("Orders", "group", text)
    assert (plain.broker_name, plain.expires_ms) == (handle.receipt.broker_name, handle.expires_ms)
    form = RequestForm(asked, ("queue_id", "extra_info", "offset"))
    values = (asked.queue_id, as_text(asked.extra_info), asked.offset)
    expected = form.head(values, OPAQUE, 0, DEFAULT_MAX_FRAME_BYTES)
    assert plain.frame(form.pieces, OPAQUE, DEFAULT_MAX_FRAME_BYTES) == expected
    told = _told(plain, encode_answer(declaration_of(AckMessage), Answer(), Frame(0, OPAQUE)))
    entry = message("AckMessageResultEntry")(message_id=message_id, receipt_handle=text, status=OK)
    answer = message("AckMessageResponse")(status=OK, entries=[entry])
    assert told == frame_message(answer.SerializeToString())


def test_an_ordinary_acknowledgement_is_not_declined() -> None:
    request = AckMessageRequest()
    request.group.name, request.topic.name = "group", "Orders"
    request.entries.add(message_id="01AB", receipt_handle="12 1700000000000 60000 3 0 broker-a 5 13 4711")
    assert front_acks.read_ack(frame_message(request.SerializeToString())).broker_name == "broker-a"


def test_an_acknowledgement_of_several_messages_is_declined() -> None:
    request = AckMessageRequest()
    request.group.name, request.topic.name = "group", "Orders"
    for _ in range(2):
        request.entries.add(message_id="a", receipt_handle="1 2 3 4 0 b 5 6 7")
    assert front_acks.read_ack(frame_message(request.SerializeToString())) is None


_PROPERTIES = st.dictionaries(
    st.sampled_from(
        [
            props.TAGS, props.KEYS, props.SHARDING_KEY, props.BORN_HOST, props.DELAY,
            props.TRANSACTION_PREPARED, props.TIMER_DELIVER_MS, props.TRACE_CONTEXT,
            props.DLQ_ORIGIN_TOPIC, props.WAIT, props.CLUSTER, props.PRIORITY,
            "own", "other", "käse",
        ]
    ),
    st.sampled_from(["a", "b c", "x\ty", "键", "1700000000000", "1 2 3 4 0 b 5 6"]),
    max_size=6,
)  # fmt: skip
_V6 = Host.of("::1", 1)


@st.composite
def stored_messages(draw: st.DrawFn) -> StoredMessage:
    properties: dict[str, str | None] = {**draw(_PROPERTIES)}
    if draw(st.integers(0, 9)):
        properties[props.UNIQ_KEY] = "01AB"
    raw = encode_properties(properties).encode()
    odd = draw(st.integers(0, 30))
    if odd == 0:
        raw += b"own\x01\xff\x02"
    elif odd == 1:
        raw += b"own\x01again\x02\x01\x02empty\x01\x02half"
    return StoredMessage(
        topic=draw(st.sampled_from(["Orders", "Orders", "%RETRY%group_Orders", "%RETRY%group+Orders"])),
        body=draw(st.sampled_from([b"hello", b"", b"\x1f\x8b\x08gzip"])),
        properties=raw,
        queue_id=draw(st.integers(0, 3)),
        queue_offset=draw(st.integers(0, 2**40)),
        log_offset=draw(st.integers(0, 2**40)),
        sys_flag=draw(st.sampled_from([0, 0, SysFlag.COMPRESSED])),
        born_timestamp=draw(st.sampled_from([0, 1_700_000_000_000, 1_700_000_000_123])),
        store_timestamp=1_700_000_000_456,
        born_host=draw(st.sampled_from([Host.of("10.1.2.30", 99), Host.of("10.1.2.30", 99), _V6])),
        store_host=Host.of("255.0.10.9", 10911),
        reconsume_times=draw(st.sampled_from([0, 0, 2, 20])),
    )


def _pop(messages: list[StoredMessage], with_places: bool) -> PopMessageAnswer:
    starts: dict[tuple[str, int], int] = {}
    offsets: dict[tuple[str, int], list[int]] = {}
    for each in messages:
        mark = "0" if each.topic == "Orders" else "2" if "+" in each.topic else "1"
        starts.setdefault((mark, each.queue_id), max(0, each.queue_offset - 1))
        offsets.setdefault((mark, each.queue_id), []).append(each.queue_offset)
    return PopMessageAnswer(
        pop_time=NOW_MS,
        invisible_time=60_000,
        revive_qid=3,
        rest_num=0,
        start_offset_info=encode_start_offsets(starts) if with_places else None,
        msg_offset_info=encode_offsets(offsets) if with_places else None,
        body=b"".join(map(encode_record, messages)),
    )


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(stored_messages(), min_size=1, max_size=3), st.booleans(), st.sampled_from(["*", "a", "a||键"])
)
def test_received_messages_are_those_of_the_general_path_or_declined(
    messages: list[StoredMessage], with_places: bool, expression: str
) -> None:
    answer, wanted = _pop(messages, with_places), parse_tags(expression)
    found = framed(answer, "broker-a", "ns%Orders", wanted, 16)
    if found is None:
        return
    expected, handles = [], []
    for stored, handle in popped(answer, "broker-a"):
        assert wanted.matches_tag(stored.get(props.TAGS))
        assert stored.reconsume_times <= 16
        shown = received(stored, "ns%Orders")
        shown.system_properties.receipt_handle = str(handle)
        expected.append(message("ReceiveMessageResponse")(message=shown))
        handles.append((str(handle), stored.reconsume_times + 1))
    pieces = MessageReader(1 << 20).feed(found.data)
    assert [message("ReceiveMessageResponse").FromString(each) for each in pieces] == expected
    assert found.handles == handles


def test_ordinary_messages_are_not_declined() -> None:
    stored = StoredMessage(
        topic="Orders",
        body=b"hello",
        properties=encode_properties(
            {"own": "käse", "UNIQ_KEY": "01AB", "TAGS": "a", "KEYS": "k1 k2"}
        ).encode(),
        born_host=Host.of("10.0.0.1", 1),
        store_host=Host.of("10.0.0.2", 2),
    )
    found = framed(_pop([stored], True), "broker-a", "Orders", parse_tags("a"), 16)
    assert found is not None
    assert len(found.handles) == 1


@pytest.mark.parametrize("born_ms", [2**62, -(2**62), 253_402_300_800_000])
def test_a_time_that_no_timestamp_can_have_keeps_no_message_back(born_ms: int) -> None:
    stored = StoredMessage(topic="Orders", body=b"x", properties=b"UNIQ_KEY\x01A\x02", born_timestamp=born_ms)
    assert framed(_pop([stored], True), "broker-a", "Orders", None, 16) is None
    shown = received(stored, "Orders")
    assert not shown.system_properties.HasField("born_timestamp")
    assert shown.body == b"x"


def test_an_answer_that_does_not_say_where_a_message_was_is_left_to_the_general_path() -> None:
    stored = StoredMessage(topic="Orders", body=b"x", properties=b"UNIQ_KEY\x01A\x02", queue_id=1)
    answer = _pop([stored], True)
    answer.msg_offset_info = "0 1 99"
    assert framed(answer, "broker-a", "Orders", None, 16) is None


def test_fronts_of_two_threads_do_not_write_into_each_others_answers() -> None:
    def answer(letter: str) -> PopMessageAnswer:
        # A digest of so many bytes lets the other thread run.
        stored = StoredMessage(
            topic="Orders",
            body=letter.encode() * 20_000,
            properties=f"UNIQ_KEY\x01{letter}\x02".encode(),
            born_host=Host.of("10.0.0.1", 1),
            store_host=Host.of("10.0.0.2", 2),
        )
        return _pop([stored] * 8, False)

    def fill(letter: str) -> set[Any]:
        popped_messages = answer(letter)
        return {repr(framed(popped_messages, "broker-a", "Orders", None, 16)) for _ in range(50)}

    with ThreadPoolExecutor(2) as threads:
        together = list(threads.map(fill, "ab"))
    assert together == [fill("a"), fill("b")]
