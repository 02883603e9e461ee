"""Offset ids, unique keys and recall handles, both ways."""

import base64
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.message_id import (
    OffsetMessageId,
    RecallHandle,
    UniqueKeys,
    decode_offset_message_id,
    decode_recall_handle,
    decode_unique_key,
    encode_offset_message_id,
    encode_recall_handle,
    month_start_ms,
)
from pyromq.protocol.record import Host

TOKYO = timezone(timedelta(hours=9))
IP = bytes([192, 168, 1, 10])


class SummerTimeFromTheLastOfMarch(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        summer = moment is not None and (moment.month, moment.day) >= (3, 31)
        return timedelta(hours=2 if summer else 1)

    def dst(self, moment: datetime | None) -> timedelta:
        return self.utcoffset(moment) - timedelta(hours=1)

    def tzname(self, moment: datetime | None) -> str:
        return "summer" if self.dst(moment) else "winter"


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, zone: tzinfo = UTC) -> int:
    return round(datetime(year, month, day, hour, minute, tzinfo=zone).timestamp() * 1000)


@pytest.mark.parametrize(
    ("host", "log_offset", "text"),
    [
        (Host.of("192.168.1.10", 10911), 1234567, "C0A8010A00002A9F000000000012D687"),
        (Host.of("2001:db8::1", 10911), 1234567, "20010DB800000000000000000000000100002A9F000000000012D687"),
    ],
)
def test_offset_message_id(host: Host, log_offset: int, text: str) -> None:
    assert encode_offset_message_id(host, log_offset) == text
    assert decode_offset_message_id(text) == OffsetMessageId(host, log_offset)
    assert decode_offset_message_id(text.lower()) == OffsetMessageId(host, log_offset)


@pytest.mark.parametrize("text", ["", "C0A8", "Z" * 32, "é" * 32, "0" * 31, "0" * 40, "0" * 57, " " * 56])
def test_what_is_not_an_id_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_offset_message_id(text)
    with pytest.raises(RemoteProtocolError):
        decode_unique_key(text, 0, UTC)


def test_an_offset_that_has_no_room_is_our_own_error() -> None:
    with pytest.raises(LocalProtocolError):
        encode_offset_message_id(Host.of("1.2.3.4", 1), 1 << 63)


def test_unique_key_has_exactly_these_digits() -> None:
    keys = UniqueKeys(IP, 4321, 0x18B4AAC2, UTC)
    moment = at(2024, 5, 2)
    assert keys.next(moment) == "C0A8010A10E118B4AAC205265C000000"
    assert keys.next(moment) == "C0A8010A10E118B4AAC205265C000001"
    assert repr(keys) == "<UniqueKeys C0A8010A10E118B4AAC2 made=2>"


def test_unique_keys_of_a_process_differ_until_the_counter_is_round() -> None:
    keys = UniqueKeys(IP, 1, 2, UTC)
    moment = at(2024, 5, 2)
    assert len({keys.next(moment) for _ in range(0x10000)}) == 0x10000
    assert keys.next(moment).endswith("0000")


def test_unique_keys_take_the_low_bits_of_large_numbers() -> None:
    assert UniqueKeys(IP, 0x12345, -1, UTC).next(at(2024, 5, 1)) == "C0A8010A2345FFFFFFFF0000000000" + "00"


def test_unique_keys_begin_again_with_the_month() -> None:
    keys = UniqueKeys(IP, 1, 2, UTC)
    assert keys.next(at(2024, 2, 29, 23, 59))[20:28] == f"{(29 * 24 * 60 - 1) * 60_000:08X}"
    assert keys.next(at(2024, 3, 1))[20:28] == "00000000"
    assert keys.next(at(2024, 12, 31, 23, 59) + 59_999)[20:28] == f"{31 * 86_400_000 - 1:08X}"
    assert keys.next(at(2025, 1, 1))[20:28] == "00000000"


def test_unique_keys_measure_from_local_midnight() -> None:
    keys = UniqueKeys(IP, 1, 2, TOKYO)
    assert keys.next(at(2024, 4, 30, 15))[20:28] == "00000000"


@pytest.mark.parametrize(
    ("back_ms", "digits"),
    [(1, "00000000"), (999_999, "00000000"), (1_000_000, "FFF0BDC0"), (1_000_001, "FFF0BDBF")],
)
def test_a_clock_set_back_a_little_stands_still_at_the_months_start(back_ms: int, digits: str) -> None:
    keys = UniqueKeys(IP, 1, 2, UTC)
    keys.next(at(2024, 5, 1))
    assert keys.next(at(2024, 5, 1) - back_ms)[20:28] == digits


@pytest.mark.parametrize("ip", [IP, bytes(range(16))])
def test_a_unique_key_tells_its_maker_and_moment(ip: bytes) -> None:
    keys = UniqueKeys(ip, 4321, 0x18B4AAC2, TOKYO)
    sent = at(2024, 5, 17, 13, 5) + 123
    keys.next(sent)
    text = keys.next(sent)
    assert len(text) == (32 if len(ip) == 4 else 56)
    key = decode_unique_key(text, sent + 1000, TOKYO)
    assert (key.ip, key.pid, key.loader_hash, key.sent_ms, key.counter) == (ip, 4321, 0x18B4AAC2, sent, 1)


def test_a_key_from_the_end_of_last_month_is_dated_last_month() -> None:
    sent = at(2024, 2, 29, 23)
    text = UniqueKeys(IP, 1, 2, UTC).next(sent)
    assert decode_unique_key(text, at(2024, 3, 2), UTC).sent_ms == sent


def test_the_month_starts_at_local_midnight_even_when_clocks_changed_since() -> None:
    zone = SummerTimeFromTheLastOfMarch()
    assert month_start_ms(at(2024, 3, 31, 12, zone=zone), zone) == at(2024, 2, 29, 23)
    assert month_start_ms(at(2024, 4, 30, 12, zone=zone), zone) == at(2024, 3, 31, 22)
    now = at(2024, 7, 15)
    local = datetime.fromtimestamp(month_start_ms(now) / 1000)
    assert (local.year, local.month, local.day, local.hour, local.minute) == (2024, 7, 1, 0, 0)


def test_a_moment_outside_the_calendar_is_our_own_error() -> None:
    with pytest.raises(LocalProtocolError):
        month_start_ms(1 << 62, UTC)
    with pytest.raises(LocalProtocolError, match="4 or 16"):
        UniqueKeys(b"12345", 1, 2, UTC)


HANDLE = RecallHandle("TopicTest", "broker-a", 1_700_000_000_000, "C0A8010A10E118B4AAC205265C000001")


def test_recall_handle() -> None:
    text = encode_recall_handle(HANDLE)
    raw = b"v1 TopicTest broker-a 1700000000000 C0A8010A10E118B4AAC205265C000001"
    assert text == base64.urlsafe_b64encode(raw).decode()
    assert decode_recall_handle(text) == HANDLE
    assert decode_recall_handle(text.rstrip("=")) == HANDLE


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"v1",
        b"v2 t b 1 id",
        b"v1 t b 1",
        b"v1 t b soon id",
        b"v1 t b -1 id",
        b"v1 t b " + b"9" * 5000 + b" id",
        "v1 t b ١ id".encode(),
        b"\xff\xfe",
    ],
)
def test_what_is_not_a_recall_handle_is_refused(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_recall_handle(base64.urlsafe_b64encode(raw).decode())


@pytest.mark.parametrize("text", ["!", "a b", "=", "é", "A", "\ud800"])
def test_a_recall_handle_that_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_recall_handle(text)


@pytest.mark.parametrize(
    "handle",
    [RecallHandle("a b", "b", 1, "id"), RecallHandle("t", "", 1, "id"), RecallHandle("t", "b", 1, "")],
)
def test_a_recall_handle_with_an_ambiguous_word_is_our_own_error(handle: RecallHandle) -> None:
    with pytest.raises(LocalProtocolError):
        encode_recall_handle(handle)
