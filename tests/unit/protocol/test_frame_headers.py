"""Both forms of a header, byte by byte, and what is forgiven in them."""

import json
import struct

import pytest

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.binary_header import decode_binary_header, encode_binary_header
from pyromq.protocol.codes import Language
from pyromq.protocol.frame import ONEWAY_FLAG, RESPONSE_FLAG, Frame, HeaderForm
from pyromq.protocol.framing import FrameReader, encode_frame
from pyromq.protocol.json_header import decode_json_header, encode_json_header

ROUTE_REQUEST = Frame(code=105, opaque=7, language=Language.PYTHON, version=401, ext={"topic": "TopicTest"})


def test_binary_frame_matches_the_published_vector() -> None:
    frame = Frame(
        code=105, opaque=7, version=401, ext={"topic": "TopicTest"}, form=HeaderForm.BINARY, language=3
    )
    assert encode_frame(frame).hex() == (
        "0000002d010000290069030191000000070000000000000000000000140005746f70696300000009546f70696354657374"
    )


def test_json_frame_matches_the_published_vector() -> None:
    encoded = encode_frame(ROUTE_REQUEST)
    assert encoded[:8].hex() == "0000008900000085"
    assert encoded[8:] == (
        b'{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"PYTHON","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":401}'
    )


def test_json_keys_are_in_alphabetical_order_and_nulls_are_left_out() -> None:
    full = json.loads(encode_json_header(Frame(code=1, remark="because", ext={"a": "b"})))
    assert list(full) == sorted(full)
    bare = json.loads(encode_json_header(Frame(code=1)))
    assert set(bare) == {"code", "flag", "language", "opaque", "serializeTypeCurrentRPC", "version"}


def test_an_empty_binary_header_has_21_bytes() -> None:
    assert len(encode_binary_header(Frame(code=0, form=HeaderForm.BINARY))) == 21


def test_json_tells_an_empty_text_from_an_absent_one() -> None:
    frame = Frame(code=1, remark="", ext={"value": ""})
    assert decode_json_header(encode_json_header(frame)) == frame


def test_binary_reads_an_empty_text_as_absent() -> None:
    frame = Frame(code=1, remark="", ext={"value": "", "": "nameless", "kept": "x"}, form=HeaderForm.BINARY)
    decoded = decode_binary_header(encode_binary_header(frame))
    assert decoded.remark is None
    assert decoded.ext == {"kept": "x"}


@pytest.mark.parametrize("code", [200050, 200051, 200052, 200053, 200054, 200055, 200056, 200151])
def test_binary_reads_cut_request_codes_as_what_was_meant(code: int) -> None:
    encoded = encode_binary_header(Frame(code=code, form=HeaderForm.BINARY))
    assert struct.unpack_from(">h", encoded)[0] == code - 3 * 65536
    assert decode_binary_header(encoded).code == code


def test_binary_leaves_answer_codes_alone() -> None:
    frame = Frame(code=3442, flag=RESPONSE_FLAG, form=HeaderForm.BINARY)
    assert decode_binary_header(encode_binary_header(frame)).code == 3442


def test_negative_answer_codes_survive_both_forms() -> None:
    for form in HeaderForm:
        frame = Frame(code=-1006, flag=RESPONSE_FLAG, form=form)
        encode, decode = (
            (encode_binary_header, decode_binary_header)
            if form is HeaderForm.BINARY
            else (encode_json_header, decode_json_header)
        )
        assert decode(encode(frame)) == frame


@pytest.mark.parametrize(
    ("header", "ext"),
    [
        (b'{"code":1,"extFields":{"n":5}}', {"n": "5"}),
        (b'{"code":1,"extFields":{"n":5.5,"yes":true,"no":null}}', {"n": "5.5", "yes": "true"}),
        (b'{"code":1,"extFields":{"properties":"KEYS\x01k\x02"}}', {"properties": "KEYS\x01k\x02"}),
        (b'{"code":1,"extFields":null}', {}),
        (b'{"code":1,"unknown":{"deep":[1]}}', {}),
        (b'{"code":"1"}', {}),
    ],
)
def test_json_of_careless_peers_is_read(header: bytes, ext: dict[str, str]) -> None:
    frame = decode_json_header(header)
    assert frame.code == 1
    assert frame.ext == ext


def test_an_unknown_language_is_read_as_other() -> None:
    assert decode_json_header(b'{"code":1,"language":"COBOL"}').language == Language.OTHER
    assert decode_json_header(b'{"code":1}').language == Language.OTHER


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"code"',
        b"{}",
        b'{"code":null}',
        b'{"code":1e400}',
        b'{"code":NaN}',
        b'{"code":Infinity}',
        b'{"code":2147483648}',
        b'{"code":' + b"9" * 5000 + b"}",
        b'{"code":1,"opaque":-2147483649}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1,"extFields":{"a":{}}}',
        b'{"code":1,"remark":"\\ud800"}',
        b'{"code":1,"extFields":{"\\ud800":"x"}}',
        b'{"code":1,"remark":"\xff"}',
        b"\xff\xfe{\x00}\x00",
        b'{"code":1,"x":' + b"[" * 100_000,
        b'{"code":1,"x":' + b'{"x":' * 100_000,
    ],
)
def test_what_is_not_a_json_header_is_a_remote_error(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_json_header(header)


def _binary(remark_length: int = 0, ext_length: int = 0, rest: bytes = b"") -> bytes:
    fixed = struct.pack(">hBhiii", 105, 3, 479, 1, 0, remark_length)
    return fixed + struct.pack(">i", ext_length) + rest


@pytest.mark.parametrize(
    "header",
    [
        b"",
        _binary()[:-1],
        _binary(remark_length=-1),
        _binary(remark_length=1),
        _binary(remark_length=2**31 - 1),
        _binary(ext_length=-1),
        _binary(ext_length=1),
        _binary(ext_length=1, rest=b"\x00"),
        _binary(ext_length=6, rest=struct.pack(">hi", -1, 0)),
        _binary(ext_length=6, rest=struct.pack(">hi", 0, -1)),
        _binary(ext_length=7, rest=struct.pack(">h", 1) + b"k" + struct.pack(">i", 1)),
        _binary(ext_length=8, rest=struct.pack(">h", 1) + b"\xff" + struct.pack(">i", 1) + b"v"),
        _binary(ext_length=8, rest=struct.pack(">h", 1) + b"k" + struct.pack(">i", 1) + b"\xff"),
    ],
)
def test_what_is_not_a_binary_header_is_a_remote_error(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_binary_header(header)


@pytest.mark.parametrize(
    "frame",
    [
        Frame(code=1, ext={"k" * 32768: "v"}),
        Frame(code=1, ext={"k": "\ud800"}),
        Frame(code=1, remark="\ud800"),
        Frame(code=1, version=2**15),
        Frame(code=1, language=256),
        Frame(code=1, opaque=2**31),
    ],
)
def test_what_binary_cannot_carry_is_our_own_error(frame: Frame) -> None:
    with pytest.raises(LocalProtocolError):
        encode_binary_header(frame)


def test_what_json_cannot_carry_is_our_own_error() -> None:
    with pytest.raises(LocalProtocolError):
        encode_json_header(Frame(code=1, remark="\ud800"))


def test_a_frame_knows_what_it_is() -> None:
    assert Frame(code=0, flag=RESPONSE_FLAG).is_response
    assert not Frame(code=0, flag=RESPONSE_FLAG).is_oneway
    assert Frame(code=0, flag=ONEWAY_FLAG).is_oneway
    assert not Frame(code=0).is_response


def test_a_bare_answer_keeps_number_and_form_of_its_request() -> None:
    asked = Frame(code=105, opaque=-5, flag=ONEWAY_FLAG, form=HeaderForm.BINARY)
    answer = asked.answer(17, "no such topic")
    assert (answer.code, answer.opaque, answer.flag, answer.remark, answer.form) == (
        17,
        -5,
        RESPONSE_FLAG,
        "no such topic",
        HeaderForm.BINARY,
    )


@pytest.mark.parametrize("form", list(HeaderForm))
def test_a_header_has_so_many_fields_and_no_more(form: HeaderForm) -> None:
    def encoded(count: int) -> bytes:
        return encode_frame(Frame(code=1, ext={str(n): "x" for n in range(count)}, form=form))

    reader = FrameReader()
    assert len(reader.feed(encoded(1024))[0].ext) == 1024
    assert reader.feed(encoded(1025)) == []
    assert "fields" in str(reader.damage)


def test_empty_fields_of_a_binary_header_count_too() -> None:
    with pytest.raises(RemoteProtocolError, match="more than 1024 fields"):
        decode_binary_header(_binary(ext_length=6 * 1025, rest=bytes(6 * 1025)))


def test_a_long_header_has_to_be_standard_json() -> None:
    long = "x" * 200_000
    assert decode_json_header(json.dumps({"code": 1, "extFields": {"a": long}}).encode()).ext == {"a": long}
    with pytest.raises(RemoteProtocolError, match="odd JSON header of 2000"):
        decode_json_header(json.dumps({"code": 1, "extFields": {"a": long, "b": 1}}).encode())
