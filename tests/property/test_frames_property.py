"""Whatever arrives, and however it is cut, a reader gives frames or damage and nothing else."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.compiled import WHY, twin
from pyromq.errors import RemoteProtocolError
from pyromq.protocol.codes import Language
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.framing import FrameReader, encode_frame

_native = twin("protocol.headers")

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
FULL_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)

JSON_FRAMES = st.builds(
    Frame,
    code=INT32,
    opaque=INT32,
    flag=INT32,
    language=st.sampled_from(Language).map(int),
    version=INT32,
    remark=st.none() | TEXT,
    ext=st.dictionaries(TEXT, TEXT, max_size=5),
    body=st.binary(max_size=200),
)
# The two bytes of a request code cannot tell 3442 from 200050; the number of a POP request is what is meant.
_CUT = {200050 & 0xFFFF, *range(200051 & 0xFFFF, (200056 & 0xFFFF) + 1), 200151 & 0xFFFF}
BINARY_FRAMES = st.builds(
    Frame,
    code=INT16.filter(lambda code: code not in _CUT),
    opaque=INT32,
    flag=INT32,
    language=st.integers(0, 255),
    version=INT16,
    remark=st.none() | FULL_TEXT,
    ext=st.dictionaries(FULL_TEXT, FULL_TEXT, max_size=5),
    body=st.binary(max_size=200),
    form=st.just(HeaderForm.BINARY),
)
FRAMES = JSON_FRAMES | BINARY_FRAMES
SMALL_LIMIT = 2048


def _pieces(stream: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in pairwise(places)]


def _read(pieces: Sequence[bytes]) -> tuple[list[Frame], str | None]:
    """Feed a reader until its damage, checking all the way that it keeps no more than it may."""
    reader = FrameReader(SMALL_LIMIT)
    frames: list[Frame] = []
    for piece in pieces:
        frames += reader.feed(piece)
        assert reader.buffered_bytes <= SMALL_LIMIT + len(piece)
        if reader.damage is not None:
            assert type(reader.damage) is RemoteProtocolError
            assert reader.buffered_bytes == 0
            return frames, str(reader.damage)
    return frames, None


@given(FRAMES)
def test_a_frame_comes_back_as_it_was_written(frame: Frame) -> None:
    assert _read([encode_frame(frame)]) == ([frame], None)


@pytest.mark.skipif(_native is None, reason=f"no compiled reader: {WHY}")
@example(Frame(-1, form=HeaderForm.BINARY))
@example(Frame(-(2**15), form=HeaderForm.BINARY))
@example(Frame(-1))
@given(FRAMES)
def test_a_compiled_reader_finds_the_same_numbers_and_fields_negative_ones_too(frame: Frame) -> None:
    assert _native is not None
    stream = encode_frame(frame)
    header = stream[8 : 8 + int.from_bytes(stream[5:8], "big")]
    found = _native.fields_of(header, frame.form is HeaderForm.BINARY)
    assert found in (None, (frame.code, frame.flag, frame.opaque, frame.ext))
    if not frame.ext and frame.form is HeaderForm.BINARY and frame.remark is None:
        assert found is not None, "such a header is usual"


@given(st.lists(FRAMES, max_size=4), st.lists(st.integers(0, 10_000), max_size=8))
def test_any_split_gives_the_same_frames(frames: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(map(encode_frame, frames))
    assert _read(_pieces(stream, cuts)) == (frames, None)


@given(st.lists(FRAMES, max_size=2), st.binary(max_size=64), st.lists(st.integers(0, 10_000), max_size=8))
def test_any_split_gives_the_same_damage(frames: list[Frame], tail: bytes, cuts: list[int]) -> None:
    stream = b"".join(map(encode_frame, frames)) + tail
    assert _read(_pieces(stream, cuts)) == _read([stream])


@given(st.binary(max_size=300))
def test_random_bytes_are_frames_or_damage(stream: bytes) -> None:
    _read([stream])


@given(st.sampled_from(HeaderForm), st.binary(max_size=80), st.binary(max_size=20))
def test_random_headers_are_frames_or_damage(form: HeaderForm, header: bytes, body: bytes) -> None:
    length = 4 + len(header) + len(body)
    prefix = length.to_bytes(4, "big") + bytes([form]) + len(header).to_bytes(3, "big")
    frames, damage = _read([prefix + header + body])
    assert (len(frames) == 1) != (damage is not None)


@settings(max_examples=examples(200))
@given(st.data(), FRAMES)
def test_mutated_frames_are_frames_or_damage(data: st.DataObject, frame: Frame) -> None:
    stream = bytearray(encode_frame(frame))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(stream) - 1))
        change = data.draw(st.sampled_from(["replace", "insert", "delete"]))
        if change == "replace":
            stream[place] = data.draw(st.integers(0, 255))
        elif change == "insert":
            stream.insert(place, data.draw(st.integers(0, 255)))
        elif len(stream) > 1:
            del stream[place]
    _read([bytes(stream)])


# JSON that is valid and still not a header: every member may hold anything.
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)

_MEMBERS = ("code", "opaque", "flag", "version", "language", "remark", "extFields", "other")


@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(_MEMBERS, _JSON),
    ),
    st.booleans(),
)
def test_odd_json_is_a_frame_or_damage(document: dict[str, object], as_ascii: bool) -> None:
    header = json.dumps(document, ensure_ascii=as_ascii).encode()
    prefix = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big")
    frames, damage = _read([prefix + header])
    assert (len(frames) == 1) != (damage is not None)
    for frame in frames:
        assert _read([encode_frame(frame)]) == ([frame], None)
