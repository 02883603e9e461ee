"""The shortcut for busy requests gives what the general way gives, whatever is in the header."""

import json
import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields
from tests.support.chance import examples

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.errors import Refused
from pyromq.protocol.catalogue import CATALOGUE, decode_request
from pyromq.protocol.direct import DirectHeaders
from pyromq.protocol.framing import FrameReader

CODES = (10, 11, 310, 320, 200050)
DIRECT = DirectHeaders(CATALOGUE[code] for code in CODES)

values = st.one_of(
    st.text(max_size=8),
    st.integers(-(2**65), 2**65).map(str),
    st.integers(-(2**33), 2**33),
    st.sampled_from(["", "true", "false", "TRUE", "0", "1", "null", "1.0", " 1", "TopicTest", "\x01a\x02"]),
    st.none(),
    st.booleans(),
)


@st.composite
def headers(draw: st.DrawFn) -> dict[str, Any]:
    code = draw(st.sampled_from(CODES))
    names = [field.encode_name for field in fields(CATALOGUE[code].request_type)]
    required = [field.encode_name for field in fields(CATALOGUE[code].request_type) if field.required]
    ext: dict[str, Any] = {name: draw(st.sampled_from(["1", "7", "12"])) for name in required}
    ext |= draw(st.dictionaries(st.sampled_from([*names, "body", "remark", "code", "other"]), values))
    header: dict[str, Any] = {"code": code, "extFields": ext}
    header |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "flag": st.integers(0, 3),
                "language": st.sampled_from(["JAVA", "GO", "KLINGON"]),
                "opaque": st.integers(-(2**31), 2**31 - 1),
                "remark": st.text(max_size=5),
                "version": st.integers(0, 600),
                "serializeTypeCurrentRPC": st.just("JSON"),
                "surprise": values,
            },
        )
    )
    return header


def outcome(reader: FrameReader, data: bytes) -> Any:
    frames = reader.feed(data)
    if reader.damage is not None:
        return "damage"
    try:
        request = decode_request(CATALOGUE[frames[0].code], frames[0])
    except Refused as refused:
        return refused.code
    frame = frames[0]
    head = (frame.code, frame.opaque, frame.flag, frame.language, frame.version, frame.remark)
    return head, request


@settings(max_examples=examples(400))
@given(headers(), st.binary(max_size=8), st.booleans())
def test_both_ways_of_reading_a_header_agree(header: dict[str, Any], body: bytes, spaced: bool) -> None:
    text = json.dumps(header, separators=None if spaced else (",", ":"), ensure_ascii=False)
    encoded = text.encode("utf-8", "replace")
    data = struct.pack(">II", 4 + len(encoded) + len(body), len(encoded)) + encoded + body
    assert outcome(FrameReader(direct=DIRECT), data) == outcome(FrameReader(), data)


def test_a_plain_header_takes_the_shortcut() -> None:
    header = b'{"code":11,"extFields":{"consumerGroup":"g","topic":"t","queueId":"0","queueOffset":"1",'
    header += b'"maxMsgNums":"32","sysFlag":"2","commitOffset":"0","suspendTimeoutMillis":"15000",'
    header += b'"subVersion":"1"},"flag":0,"language":"JAVA","opaque":9,"version":401}'
    frame = DIRECT.decode(header)
    assert frame is not None
    assert frame.request.max_msg_nums == 32
    assert DIRECT.decode(header.replace(b'"code":11', b'"code":12')) is None
