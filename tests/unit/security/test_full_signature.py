"""What a full signature covers: everything that decides what a request does."""

from collections.abc import Callable

import pytest

from pyromq.protocol.frame import ONEWAY_FLAG, Frame, HeaderForm
from pyromq.protocol.framing import FrameReader, encode_frame
from pyromq.security.full_signature import (
    FULL_SIGNATURE,
    Stamp,
    full_signature,
    fully_signed_content,
    is_fully_signed,
    read_stamp,
)

STAMP = Stamp(1_700_000_000_000, b"0123456789abcdef", 7)
SECRET = "the password of alice"


def signed(form: int = HeaderForm.JSON, code: int = 351) -> Frame:
    frame = Frame(code, 5, ext={"AccessKey": "alice", "topic": "orders", "lo": "true"}, body=b"x", form=form)
    frame.ext[FULL_SIGNATURE] = full_signature(frame, STAMP, SECRET)
    frame.ext["Signature"] = "anything"
    return frame


@pytest.mark.parametrize("form", HeaderForm)
@pytest.mark.parametrize("code", [351, 200_050, 30_028])
def test_it_is_right_on_the_other_side(form: HeaderForm, code: int) -> None:
    (received,) = FrameReader().feed(encode_frame(signed(form, code)))
    assert is_fully_signed(received, SECRET)
    assert not is_fully_signed(received, "another password")
    assert read_stamp(received.ext[FULL_SIGNATURE]) == STAMP


def set_code(frame: Frame) -> None:
    frame.code = 215


def set_oneway(frame: Frame) -> None:
    frame.flag |= ONEWAY_FLAG


def set_version(frame: Frame) -> None:
    frame.version -= 1


def set_remark(frame: Frame) -> None:
    frame.remark = "x"


def set_body(frame: Frame) -> None:
    frame.body += b"x"


def rename(frame: Frame) -> None:
    frame.ext["topics"] = frame.ext.pop("topic")


def move_border(frame: Frame) -> None:
    frame.ext |= {"lo": "trueo", "topic": "rders"}


def move_into_body(frame: Frame) -> None:
    frame.ext["topic"], frame.body = "order", b"sx"


def drop_field(frame: Frame) -> None:
    del frame.ext["lo"]


def add_field(frame: Frame) -> None:
    frame.ext["zone"] = ""


def set_stamp(frame: Frame) -> None:
    later = str(STAMP._replace(time_ms=STAMP.time_ms + 1))
    frame.ext[FULL_SIGNATURE] = later + frame.ext[FULL_SIGNATURE][len(later) :]


def in_upper_case(frame: Frame) -> None:
    stamp = str(STAMP)
    frame.ext[FULL_SIGNATURE] = stamp.upper() + frame.ext[FULL_SIGNATURE][len(stamp) :]


@pytest.mark.parametrize(
    "change",
    [
        *(set_code, set_oneway, set_version, set_remark, set_body, rename, move_border, move_into_body),
        *(drop_field, add_field, set_stamp, in_upper_case),
    ],
)
def test_every_change_is_noticed(change: Callable[[Frame], None]) -> None:
    frame = signed()
    change(frame)
    assert not is_fully_signed(frame, SECRET)


@pytest.mark.parametrize("field", ["", "x", "0" * 84, "grün" * 21, "\ud800" * 84])
def test_something_else_in_the_field_is_no_signature(field: str) -> None:
    frame = signed()
    frame.ext[FULL_SIGNATURE] = field
    assert not is_fully_signed(frame, SECRET)


def test_the_content_is_as_documented() -> None:
    frame = Frame(10, flag=2, version=465, ext={"b": "ü", "a": "", "Signature": "s"}, body=b"body")
    assert fully_signed_content(frame, str(STAMP)) == (
        b"PyroMQ full signature 1\n"
        b"018bcfe568000123456789abcdef000000000007"
        b"\0\0\0\x0a\0\0\0\x02\0\0\x01\xd1"
        b"\0\0\0\0"
        b"\0\0\0\x02"
        b"\0\0\0\x01a\0\0\0\0"
        b"\0\0\0\x01b\0\0\0\x02\xc3\xbc"
        b"body"
    )
