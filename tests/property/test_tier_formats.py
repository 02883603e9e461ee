"""Segments and manifests: what was packed comes back bit for bit, and any other bytes are refused."""

import hashlib
import io

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.stored_messages import stored

from pyromq.protocol.record import (
    BLANK_SIZE,
    MAGIC_V1,
    StoredMessage,
    SysFlag,
    encode_record,
    pack_blank_into,
    peek_log_offset,
    peek_queue_offset,
)
from pyromq.tier.manifest import Manifest, SegmentEntry, pack_manifest, parse_manifest
from pyromq.tier.names import segment_name
from pyromq.tier.packing import Packed, pack, rebuild
from pyromq.tier.segment_format import (
    TAIL_BYTES,
    BadObject,
    Footer,
    pack_footer,
    parse_footer,
    parse_tail,
    records_of,
    unpack_block,
)

LOG_START = 1 << 40
QUEUES = [("Orders", 0), ("Orders", 1), ("T" * 200, 7), ("größe", 0)]
OUTSIDE = [SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK]


@st.composite
def log_files(draw: st.DrawFn, log_start: int = LOG_START) -> bytes:
    """A log file as it may be: all kinds of records, damage between them, a blank or garbage at the end."""
    log = bytearray()
    ends = dict.fromkeys(QUEUES, draw(st.integers(0, 2**40)))
    stored_ms = draw(st.integers(0, 2**41))
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["record"] * 6 + ["outside", "garbage", "generation", "large"]))
        queue = draw(st.sampled_from(QUEUES))
        if kind == "garbage":
            log += draw(st.binary(min_size=1, max_size=200))
            continue
        if kind == "generation":
            ends[queue] = 0
        message = draw(stored())
        stored_ms += draw(st.integers(0, 1000))
        message.topic, message.queue_id = queue
        message.magic = MAGIC_V1
        message.queue_offset, message.log_offset = ends[queue], log_start + len(log)
        message.store_timestamp = stored_ms
        if kind == "large":
            message.body = draw(st.binary(min_size=1, max_size=8)) * draw(st.sampled_from([2000, 40_000]))
        if kind == "outside":
            message.sys_flag |= draw(st.sampled_from(OUTSIDE))
        else:
            ends[queue] += 1
        record = bytearray(encode_record(message))
        if draw(st.integers(0, 9)) == 0:
            record[8] ^= 0x55  # a checksum that does not match its body
        log += record
    tail = draw(st.integers(BLANK_SIZE, 3000))
    log += bytes(tail)
    if draw(st.booleans()):
        pack_blank_into(log, len(log) - tail, tail)
    return bytes(log)


def packed(log: bytes, log_start: int = LOG_START) -> tuple[bytes, Packed]:
    sink = io.BytesIO()
    done = pack(log, log_start, sink)
    return sink.getvalue(), done


def opened(segment: bytes) -> Footer:
    tail = parse_tail(segment[-TAIL_BYTES:], len(segment))
    return parse_footer(tail, segment[tail.footer_at : tail.footer_at + tail.footer_bytes])


def block_of(segment: bytes, footer: Footer, number: int) -> bytes:
    block = footer.blocks[number]
    return unpack_block(block, segment[block.position : block.position + block.size_bytes])


@settings(max_examples=examples(60), deadline=None)
@given(log_files())
@example(bytes(64))
@example(b"\xda\xa3\x20\xa7" * 50)
def test_a_log_file_comes_back_from_its_segment_bit_for_bit(log: bytes) -> None:
    segment, done = packed(log)
    assert done.size_bytes == len(segment)
    assert done.sha256 == hashlib.sha256(segment).hexdigest()
    footer = opened(segment)
    assert footer == done.footer
    assert (footer.log_start, footer.log_end) == (LOG_START, LOG_START + len(log))
    assert bytes(rebuild(footer, lambda number: block_of(segment, footer, number), len(log))) == log


@settings(max_examples=examples(40), deadline=None)
@given(log_files())
def test_a_run_has_the_records_of_one_queue_in_order(log: bytes) -> None:
    segment, _ = packed(log)
    footer = opened(segment)
    for run in footer.runs:
        expected = run.first_offset
        for piece in run.pieces:
            content = memoryview(block_of(segment, footer, piece.block))
            part = content[piece.start : piece.start + piece.size_bytes]
            assert peek_log_offset(part) == piece.first_log
            assert peek_queue_offset(part) == piece.first_offset == expected
            for place, size in records_of(part):
                assert peek_queue_offset(part, place) == expected
                start = peek_log_offset(part, place) - LOG_START
                assert log[start : start + size] == part[place : place + size]
                expected += 1
        assert expected == run.end_offset


def test_messages_behind_damage_are_in_their_runs() -> None:
    log = bytearray()
    for number in range(3):
        message = StoredMessage("T", b"x" * 50, queue_offset=number, log_offset=LOG_START + len(log))
        log += encode_record(message)
    size = len(log) // 3
    log[size + 4] ^= 0xFF
    runs = opened(packed(bytes(log))[0]).runs
    assert [(run.first_offset, run.count) for run in runs] == [(0, 1), (2, 1)]


def test_one_queue_is_together_however_its_messages_are_mixed_with_others() -> None:
    log = bytearray()
    for number in range(4000):
        topic, queue_offset = ("A", "B")[number % 2], number // 2
        message = StoredMessage(
            topic, b"%d" % number * 60, queue_offset=queue_offset, log_offset=LOG_START + len(log)
        )
        log += encode_record(message)
    footer = opened(packed(bytes(log))[0])
    blocks = [{piece.block for piece in run.pieces} for run in footer.runs]
    assert len(footer.runs) == 2
    assert not blocks[0] & blocks[1]
    assert all(len(each) > 1 for each in blocks)


@settings(max_examples=examples(60), deadline=None)
@given(log_files(), st.data())
def test_a_damaged_segment_is_refused_or_gives_the_same_bytes(log: bytes, data: st.DataObject) -> None:
    segment = bytearray(packed(log)[0])
    place = data.draw(st.integers(0, len(segment) - 1))
    segment[place] ^= data.draw(st.integers(1, 255))
    try:
        footer = opened(bytes(segment))
        found = rebuild(footer, lambda number: block_of(bytes(segment), footer, number), len(log))
    except BadObject:
        return
    assert bytes(found) == log


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2**33))
def test_any_bytes_are_a_segment_or_are_refused(raw: bytes, size_bytes: int) -> None:
    for size in (size_bytes, len(raw)):
        with pytest.raises(BadObject):
            parse_tail(raw, size)
    with pytest.raises(BadObject):
        parse_manifest(raw)


@settings(max_examples=examples(60), deadline=None)
@given(log_files(), st.data())
def test_a_footer_with_other_numbers_is_refused_or_rebuilds_the_same_file(
    log: bytes, data: st.DataObject
) -> None:
    segment, done = packed(log)
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(done.footer))
    _change_a_number(plain, data)
    try:
        changed = msgspec.convert(plain, Footer)
    except msgspec.ValidationError:
        return
    raw = pack_footer(changed, done.footer_at)
    forged = segment[: done.footer_at] + raw
    try:
        footer = opened(forged)
        found = rebuild(footer, lambda number: block_of(forged, footer, number), len(log))
    except BadObject:
        return
    assert bytes(found) == log


def _change_a_number(value: list[object], data: st.DataObject) -> None:
    places = [
        index
        for index, each in enumerate(value)
        if isinstance(each, int) or (isinstance(each, list) and each)
    ]
    index = data.draw(st.sampled_from(places))
    chosen = value[index]
    if isinstance(chosen, list):
        _change_a_number(chosen, data)
    else:
        value[index] = data.draw(st.integers(-(2**62), 2**62))


def entry(log_start: int, log_end: int) -> SegmentEntry:
    digest = hashlib.sha256(b"%d" % log_start).hexdigest()
    name = segment_name(log_start, 3, digest)
    return SegmentEntry(name, log_start, log_end, 1000, 900, 5, 6, digest, digest)


def test_a_manifest_comes_back() -> None:
    manifest = Manifest(tier_id="t", number=4, epoch=3, segments=(entry(0, 100), entry(100, 200)))
    assert parse_manifest(pack_manifest(manifest)) == manifest
    assert (manifest.begin, manifest.end) == (0, 200)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"number": 0}, "number 0"),
        ({"version": 2}, "version 2"),
        ({"epoch": -1}, "epoch -1"),
        ({"segments": (entry(0, 100), entry(50, 200))}, "behind 100"),
        ({"segments": (entry(7, 7),)}, "from 7 to 7"),
        ({"segments": (msgspec.structs.replace(entry(0, 9), name="segments/../x"),)}, "not the segment at 0"),
        ({"segments": (msgspec.structs.replace(entry(0, 9), footer_at=999),)}, "a footer at 999"),
        ({"segments": (msgspec.structs.replace(entry(0, 9), sha256="x"),)}, "a hash of 1"),
    ],
)
def test_a_manifest_that_cannot_be_right_is_refused(change: dict[str, object], text: str) -> None:
    manifest = msgspec.structs.replace(Manifest(tier_id="t", number=4), **change)
    with pytest.raises(BadObject, match=text):
        parse_manifest(pack_manifest(manifest))
