"""Frames recorded from Java 4.9.8 and 5.3.3: read as they were meant, written back as they were."""

from __future__ import annotations

from typing import get_origin

import pytest
from tests.support.golden_frames import GoldenFrame, golden_frames

import pyromq.protocol.requests  # noqa: F401 (fills the catalogue)
from pyromq.protocol.catalogue import CATALOGUE, decode_answer, decode_request
from pyromq.protocol.codes import Language
from pyromq.protocol.framing import FrameReader, encode_frame

FRAMES = golden_frames()
FILES = sorted({golden.file for golden in FRAMES})
each_frame = pytest.mark.parametrize("golden", FRAMES, ids=str)


@each_frame
def test_a_recorded_frame_is_read_field_by_field(golden: GoldenFrame) -> None:
    [frame] = FrameReader().feed(golden.data)
    assert frame.code == golden.code
    assert frame.opaque == golden.opaque
    assert frame.flag == golden.flag
    assert frame.version == golden.version
    assert frame.remark == golden.remark
    assert frame.language == Language.JAVA
    assert frame.ext == {key: value for key, value in golden.ext.items() if value or frame.form == 0}
    assert len(frame.body) == golden.body_length


# java: an empty text in a binary header reads as an absent one, so it cannot be written back.
@pytest.mark.parametrize("golden", [each for each in FRAMES if "" not in each.ext.values()], ids=str)
def test_a_recorded_frame_is_written_back_to_the_byte(golden: GoldenFrame) -> None:
    [frame] = FrameReader().feed(golden.data)
    # java: 5.x writes an empty extFields object where 4.9 writes none; peers read both alike.
    assert encode_frame(frame) == _resized(golden.data.replace(b'"extFields":{},', b"", 1))


@pytest.mark.parametrize("file", FILES)
def test_a_recorded_stream_gives_the_same_frames_however_it_is_cut(file: str) -> None:
    stream = b"".join(golden.data for golden in FRAMES if golden.file == file)
    whole = FrameReader().feed(stream)
    byte_by_byte = FrameReader()
    assert [frame for byte in stream for frame in byte_by_byte.feed(bytes([byte]))] == whole
    assert len(whole) == sum(golden.file == file for golden in FRAMES)


@each_frame
def test_a_recorded_frame_fits_the_declaration_of_its_request(golden: GoldenFrame) -> None:
    [frame] = FrameReader().feed(golden.data)
    declaration = CATALOGUE[golden.request]
    if not golden.answer:
        assert isinstance(decode_request(declaration, frame), declaration.request_type)
    elif frame.code in declaration.accepts:
        answer_type = declaration.answer_type
        answer = decode_answer(declaration.request_type, frame)
        assert isinstance(answer, get_origin(answer_type) or answer_type)
    else:
        assert frame.remark


def _resized(frame: bytes) -> bytes:
    """The frame with its two lengths made right again after something was cut from its header."""
    cut = int.from_bytes(frame[:4], "big") + 4 - len(frame)
    lengths = (int.from_bytes(frame[at : at + 4], "big") - cut for at in (0, 4))
    return b"".join(length.to_bytes(4, "big") for length in lengths) + frame[8:]
