"""The short way of busy requests and of their answers gives what the general way gives."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields
from tests.support.chance import examples

from pyromq.errors import LocalProtocolError, Refused, RemoteProtocolError
from pyromq.protocol.catalogue import declaration_of, decode_answer, encode_request
from pyromq.protocol.direct_answers import DirectAnswers, answer_decoder
from pyromq.protocol.framing import DEFAULT_MAX_FRAME_BYTES, FrameReader, encode_frame
from pyromq.protocol.request_forms import FilledForm, RequestForm, as_text
from pyromq.protocol.requests.pulling import PullMessage
from pyromq.protocol.requests.sending import SendMessageBatch, SendMessageV2

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["%d", "%%", '"opaque":0', '"i":""', '","i":""', "\\", "KEYS\x01a\x02"]
)
VARYING = ("queue_id", "sys_flag", "born_timestamp", "flag", "properties")


@st.composite
def sends(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two that differ in what a form is filled in with."""
    kind: Any = draw(st.sampled_from([SendMessageV2, SendMessageBatch]))
    fixed = st.fixed_dictionaries(
        {"producer_group": TEXT, "topic": TEXT, "default_topic": TEXT, "default_topic_queue_nums": INT32},
        optional={
            "unit_mode": st.none() | st.booleans(),
            "batch": st.none() | st.booleans(),
            "target_broker_name": st.none() | TEXT,
            "namespace_name": st.none() | TEXT,
        },
    )
    varying = st.fixed_dictionaries(
        {
            "queue_id": INT32,
            "sys_flag": INT32,
            "born_timestamp": INT64,
            "flag": INT32,
            "properties": TEXT,
            "body": st.binary(max_size=9),
        }
    )
    same = draw(fixed)
    return kind(**same, **draw(varying)), kind(**same, **draw(varying))


def filled(form: RequestForm[Any], request: Any) -> FilledForm[Any]:
    numbers = (request.queue_id, request.sys_flag, request.born_timestamp, request.flag)
    return FilledForm(form, (*numbers, as_text(request.properties)), request.body)


@settings(max_examples=examples(300))
@given(sends(), INT32)
def test_a_filled_form_has_the_bytes_of_the_request(both: tuple[Any, Any], opaque: int) -> None:
    sample, request = both
    written = filled(RequestForm(sample, VARYING), request)
    head = written.form.head(written.values, opaque, len(written.body), DEFAULT_MAX_FRAME_BYTES)
    assert head + written.body == encode_frame(encode_request(request, opaque))


def send(**fields: Any) -> SendMessageV2:
    values: dict[str, Any] = {
        "producer_group": "g",
        "topic": "t",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 0,
        "flag": 0,
        "properties": "",
    }
    return SendMessageV2(**values | fields)


def test_both_ways_refuse_what_cannot_be_written() -> None:
    form = RequestForm(send(), VARYING)
    too_large = send(body=bytes(100))
    with pytest.raises(LocalProtocolError) as general:
        encode_frame(encode_request(too_large, 1), 100)
    with pytest.raises(LocalProtocolError) as short:
        form.head(filled(form, too_large).values, 1, 100, 100)
    assert str(short.value) == str(general.value)
    with pytest.raises(LocalProtocolError, match="cannot be written as JSON"):
        filled(form, send(properties="\ud800"))


# Answers

ASKED = (SendMessageV2, PullMessage)
odd = st.one_of(
    st.text(max_size=8),
    INT64.map(str),
    INT32,
    st.sampled_from(["", "true", "false", "0", "1", "null", "1.0", " 1", "aGk="]),
    st.none(),
    st.booleans(),
)


@st.composite
def answers(draw: st.DrawFn) -> tuple[Any, dict[str, Any]]:
    asked: Any = draw(st.sampled_from(ASKED))
    declared = fields(declaration_of(asked).answer_type)
    ext: dict[str, Any] = {
        field.encode_name: draw(st.sampled_from(["1", "7"])) for field in declared if field.required
    }
    ext |= draw(st.dictionaries(st.sampled_from([*(field.encode_name for field in declared), "other"]), odd))
    members = {
        "code": draw(st.sampled_from([0, 0, 0, 10, 19, 1])),
        "extFields": ext,
        "flag": draw(st.sampled_from([1, 1, 3, 0])),
        "language": draw(st.sampled_from(["JAVA", "PYTHON", "KLINGON"])),
        "opaque": draw(st.sampled_from([7, 7, 8])),
        "remark": draw(st.sampled_from([None, "", '"opaque":7,', "why"])),
        "version": 401,
    }
    for name in draw(
        st.sets(st.sampled_from(["extFields", "flag", "language", "remark", "version"]), max_size=1)
    ):
        del members[name]
    names = draw(st.permutations(list(members))) if draw(st.booleans()) else list(members)
    return asked, {name: members[name] for name in names}


def outcome(reader: FrameReader, asked: Any, data: bytes) -> Any:
    frames = reader.feed(data)
    if reader.damage is not None:
        return "damage"
    (frame,) = frames
    head = (frame.code, frame.opaque, frame.flag, frame.language, frame.version, frame.remark, frame.body)
    try:
        return head, decode_answer(asked, frame)
    except (Refused, RemoteProtocolError) as problem:
        return head, str(problem)


@settings(max_examples=examples(400))
@given(answers(), st.binary(max_size=8), st.booleans())
def test_both_ways_of_reading_an_answer_agree(
    answer: tuple[Any, dict[str, Any]], body: bytes, spaced: bool
) -> None:
    asked, header = answer
    text = json.dumps(header, separators=None if spaced else (",", ":"), ensure_ascii=False)
    encoded = text.encode("utf-8", "replace")
    data = struct.pack(">II", 4 + len(encoded) + len(body), len(encoded)) + encoded + body
    direct = DirectAnswers()
    direct.expected[7] = answer_decoder(declaration_of(asked))
    assert outcome(FrameReader(direct=direct), asked, data) == outcome(FrameReader(), asked, data)


def test_a_plain_answer_takes_the_shortcut() -> None:
    header = b'{"code":0,"extFields":{"queueId":"3","msgId":"","queueOffset":"5"},"flag":1,"opaque":7}'
    direct = DirectAnswers()
    assert direct.decode(header) is None, "nobody asked"
    direct.expected[7] = answer_decoder(declaration_of(SendMessageV2))
    frame = direct.decode(header)
    assert frame is not None
    assert frame.reply.queue_offset == 5
    assert direct.decode(header.replace(b'"code":0', b'"code":1')) is None
