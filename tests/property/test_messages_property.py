"""Messages, their parts and their names: everything round-trips, and no bytes bring an unexpected error."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.batch import BatchEntry, decode_batch, encode_batch
from pyromq.protocol.compression import Compression, compress, decompress
from pyromq.protocol.java_hash import java_string_hash
from pyromq.protocol.message import open_message, shown_message_id
from pyromq.protocol.message_id import (
    OffsetMessageId,
    RecallHandle,
    UniqueKeys,
    decode_offset_message_id,
    decode_recall_handle,
    decode_unique_key,
    encode_offset_message_id,
    encode_recall_handle,
)
from pyromq.protocol.pop_receipt import (
    PopReceipt,
    decode_offsets,
    decode_order_counts,
    decode_pop_receipt,
    decode_start_offsets,
    encode_pop_receipt,
)
from pyromq.protocol.properties import decode_properties, encode_properties, get_property, without_property
from pyromq.protocol.record import (
    CRC_MASK,
    MAGIC_V1,
    MAGIC_V2,
    Host,
    RecordOutline,
    StoredMessage,
    SysFlag,
    decode_record,
    decode_records,
    encode_record,
    pack_record_into,
    peek_log_offset,
    peek_size,
    peek_store_timestamp,
    scan_record,
    verify_body_crc,
)
from pyromq.security.signature import Credentials, is_signed, signing_fields

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
text = st.text(st.characters(exclude_categories=["Cs"]))
hosts = st.builds(Host, st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), int32)
entries = st.builds(BatchEntry, body=st.binary(max_size=50), properties=st.binary(max_size=50), flag=int32)


@st.composite
def stored_messages(draw: st.DrawFn) -> StoredMessage:
    topic = draw(text | st.integers(0, 300).map(lambda length: "t" * length))
    body = draw(st.binary(max_size=200))
    born_host, store_host = draw(hosts), draw(hosts)
    sys_flag = draw(int32) & ~SysFlag.HOSTS_MASK
    sys_flag |= SysFlag.BORN_HOST_V6 if born_host.is_ipv6 else 0
    sys_flag |= SysFlag.STORE_HOST_V6 if store_host.is_ipv6 else 0
    return StoredMessage(
        topic=topic,
        body=body,
        properties=draw(st.binary(max_size=200)),
        queue_id=draw(int32),
        flag=draw(int32),
        queue_offset=draw(int64),
        log_offset=draw(int64),
        sys_flag=sys_flag,
        born_timestamp=draw(int64),
        born_host=born_host,
        store_timestamp=draw(int64),
        store_host=store_host,
        reconsume_times=draw(int32),
        prepared_transaction_offset=draw(int64),
        body_crc=crc32(body) & CRC_MASK,
        magic=MAGIC_V2 if len(topic.encode()) > 127 else draw(st.sampled_from([MAGIC_V1, MAGIC_V2])),
    )


@st.composite
def mutated(draw: st.DrawFn, originals: st.SearchStrategy[bytes]) -> bytes:
    """Bytes that were right once: some changed, perhaps some cut off or added."""
    data = bytearray(draw(originals))
    for _ in range(draw(st.integers(1, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    return bytes(data) + draw(st.binary(max_size=3))


# --- records -------------------------------------------------------------------------------------------


@given(stored_messages())
def test_every_record_round_trips(message: StoredMessage) -> None:
    record = encode_record(message)
    assert decode_record(record) == message
    assert len(record) == peek_size(record) == message.size_bytes
    assert peek_log_offset(record) == message.log_offset
    assert peek_store_timestamp(record) == message.store_timestamp


@given(stored_messages(), st.binary(max_size=20), st.binary(max_size=20))
def test_scanning_agrees_with_decoding_wherever_the_record_lies(
    message: StoredMessage, before: bytes, behind: bytes
) -> None:
    data = before + encode_record(message) + behind
    outline = scan_record(data, len(before))
    assert outline is not None
    verify_body_crc(data, outline)
    assert outline.end == len(data) - len(behind) == outline.properties_end
    assert data[outline.body_start : outline.body_end] == message.body
    assert data[outline.properties_start : outline.properties_end] == message.properties
    shared = set(RecordOutline.__struct_fields__) & set(StoredMessage.__struct_fields__)
    assert len(shared) == 9
    for name in shared:
        assert getattr(outline, name) == getattr(message, name)


@given(stored_messages(), st.integers(0, 10))
def test_packing_in_place_writes_the_record_and_nothing_else(message: StoredMessage, position: int) -> None:
    record = encode_record(message)
    buffer = bytearray(b"\xee" * (position + len(record) + 5))
    size = pack_record_into(
        buffer,
        position,
        message.body,
        message.topic.encode(),
        message.properties,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.log_offset,
        message.sys_flag ^ SysFlag.HOSTS_MASK,
        message.born_timestamp,
        message.born_host.pack(),
        message.store_timestamp,
        message.store_host.pack(),
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.magic,
    )
    assert size == len(record)
    assert buffer == b"\xee" * position + record + b"\xee" * 5


@given(st.lists(stored_messages(), max_size=4))
def test_concatenated_records_come_back_in_order(messages: list[StoredMessage]) -> None:
    assert decode_records(b"".join(map(encode_record, messages)), check_crc=True) == messages


@given(mutated(stored_messages().map(encode_record)) | st.binary(max_size=200))
def test_no_bytes_make_a_reader_of_records_fail_otherwise_than_by_protocol_error(data: bytes) -> None:
    readers: list[Callable[[bytes], object]] = [
        decode_record,
        decode_records,
        scan_record,
        peek_store_timestamp,
        lambda data: [
            (shown_message_id(each), each.property_map(), open_message(each, 1000))
            for each in decode_records(data)
        ],
    ]
    for read in readers:
        with suppress(RemoteProtocolError):
            read(data)


@given(mutated(stored_messages().map(encode_record)))
def test_scanning_accepts_exactly_what_decoding_accepts(data: bytes) -> None:
    try:
        outline = scan_record(data)
    except RemoteProtocolError:
        with pytest.raises(RemoteProtocolError):
            decode_record(data, check_crc=False)
    else:
        if outline is not None:
            message = decode_record(data, check_crc=False)
            assert (outline.topic, outline.body_end - outline.body_start) == (
                message.topic,
                len(message.body),
            )
            assert outline.store_timestamp == message.store_timestamp


# --- properties ----------------------------------------------------------------------------------------

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x02"), min_size=1)
loose_properties = st.text(st.sampled_from("ab\x01\x02é"), max_size=30)


@given(st.dictionaries(names, values))
def test_properties_round_trip(properties: dict[str, str]) -> None:
    encoded = encode_properties(properties)
    assert decode_properties(encoded) == properties
    assert decode_properties(encoded.encode()) == properties
    for name, value in properties.items():
        assert get_property(encoded, name) == value
        assert get_property(encoded.encode(), name) == value


@given(loose_properties, st.text(st.sampled_from("abé"), min_size=1, max_size=3))
def test_the_probe_agrees_with_the_reader_on_any_string(properties: str, name: str) -> None:
    assert get_property(properties, name) == decode_properties(properties).get(name)
    assert get_property(properties.encode(), name) == decode_properties(properties).get(name)
    rest = decode_properties(without_property(properties.encode(), name))
    assert rest == {key: value for key, value in decode_properties(properties).items() if key != name}


@given(st.binary(max_size=60))
def test_any_bytes_are_properties(data: bytes) -> None:
    assert all(name and value for name, value in decode_properties(data).items())
    assert get_property(data, "a") == decode_properties(data).get("a")


# --- batches, compression, hashes ----------------------------------------------------------------------


@given(st.lists(entries, max_size=5))
def test_batches_round_trip(batch: list[BatchEntry]) -> None:
    assert decode_batch(encode_batch(batch)) == batch


@given(mutated(st.lists(entries, max_size=3).map(encode_batch)) | st.binary(max_size=60))
def test_no_bytes_make_a_reader_of_batches_fail_otherwise(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        decode_batch(data)


packable = st.binary(max_size=300) | st.builds(
    lambda part, times: part * times, st.binary(max_size=9), st.integers(0, 2000)
)


@given(packable, st.sampled_from(Compression))
def test_compression_round_trips(data: bytes, kind: Compression) -> None:
    assert decompress(compress(data, kind), kind, len(data)) == data


@given(st.data(), st.sampled_from(Compression))
def test_no_bytes_make_unpacking_fail_otherwise_or_exceed_its_limit(
    data: st.DataObject, kind: Compression
) -> None:
    packed = data.draw(mutated(packable.map(lambda plain: compress(plain, kind))) | st.binary(max_size=60))
    with suppress(RemoteProtocolError):
        assert len(decompress(packed, kind, 5000)) <= 5000


@given(st.text(max_size=200))
def test_the_hash_is_the_polynomial_over_utf16_units(value: str) -> None:
    data = value.encode("utf-16-be", "surrogatepass")
    total = 0
    for position in range(0, len(data), 2):
        total = (31 * total + int.from_bytes(data[position : position + 2], "big")) % (1 << 32)
    assert java_string_hash(value) % (1 << 32) == total
    assert -(1 << 31) <= java_string_hash(value) < 1 << 31


# --- names of messages ---------------------------------------------------------------------------------


@given(hosts, int64)
def test_offset_message_ids_round_trip(host: Host, log_offset: int) -> None:
    assert decode_offset_message_id(encode_offset_message_id(host, log_offset)) == OffsetMessageId(
        host, log_offset
    )


@given(
    st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    st.integers(0, 0xFFFF),
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 4_000_000_000_000),
    st.integers(1, 20 * 86_400_000),
)
def test_unique_keys_tell_when_they_were_made(
    ip: bytes, pid: int, loader: int, sent_ms: int, age_ms: int
) -> None:
    key = decode_unique_key(UniqueKeys(ip, pid, loader, UTC).next(sent_ms), sent_ms + age_ms, UTC)
    assert (key.ip, key.pid, key.loader_hash, key.sent_ms, key.counter) == (ip, pid, loader, sent_ms, 0)


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" "), min_size=1)


@given(words, words, st.integers(0, 10**18 - 1), words)
def test_recall_handles_round_trip(topic: str, broker: str, deliver_ms: int, key: str) -> None:
    handle = RecallHandle(topic, broker, deliver_ms, key)
    assert decode_recall_handle(encode_recall_handle(handle)) == handle


@given(int64, int64, int64, int32, st.sampled_from("012"), words, int32, st.none() | int64)
def test_pop_receipts_round_trip(
    checkpoint: int,
    pop_ms: int,
    invisible_ms: int,
    revive: int,
    mark: str,
    broker: str,
    queue: int,
    offset: int | None,
) -> None:
    receipt = PopReceipt(checkpoint, pop_ms, invisible_ms, revive, mark, broker, queue, offset)
    assert decode_pop_receipt(encode_pop_receipt(receipt)) == receipt


@given(st.text() | st.text(st.sampled_from("0129 ;,qo%-")))
def test_no_text_makes_a_reader_of_names_fail_otherwise(value: str) -> None:
    readers: list[Callable[[str], object]] = [
        decode_offset_message_id,
        lambda value: decode_unique_key(value, 1_700_000_000_000, UTC),
        decode_recall_handle,
        decode_pop_receipt,
        decode_start_offsets,
        decode_offsets,
        decode_order_counts,
    ]
    for read in readers:
        with suppress(RemoteProtocolError):
            read(value)


@given(st.dictionaries(st.text(), st.text()), st.binary(), st.text(min_size=1), st.text())
def test_what_is_signed_verifies(ext: dict[str, str], body: bytes, access_key: str, secret_key: str) -> None:
    signed = {**ext, **signing_fields(ext, body, Credentials(access_key, secret_key))}
    assert is_signed(signed, body, secret_key)
    assert not is_signed(signed, body + b"x", secret_key)
