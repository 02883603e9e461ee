"""The three ids of a message: its offset message id, its unique key, and its recall handle.

offset message id   store host ip (4|16)  port (4)  log offset (8)                        upper-case hex
unique key          client ip (4|16)  pid (2)  loader hash (4)  ms of the month (4)  counter (2)   same
recall handle       base64url of "v1 topic broker deliver-ms unique-key"
"""

import base64
import binascii
import re
import struct
from datetime import datetime, tzinfo
from typing import Final

import msgspec

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.record import Host

_OFFSET = struct.Struct(">q")
_PORT_AND_OFFSET = struct.Struct(">iq")
_MAKER = struct.Struct(">HI")
_MAKER_AND_MOMENT = struct.Struct(">HIIH")

_MILLISECONDS = re.compile(r"[0-9]{1,18}")

_IPV4_ID_LENGTH: Final = 32
_IPV6_ID_LENGTH: Final = 56

CLOCK_SETBACK_MS: Final = 1_000_000
"""A clock that is behind the start of the month by at most this counts as that start."""


class OffsetMessageId(msgspec.Struct, frozen=True, gc=False):
    """Where a stored message is: its broker and its offset in the log."""

    host: Host
    log_offset: int


def encode_offset_message_id(host: Host, log_offset: int) -> str:
    try:
        return (host.pack() + _OFFSET.pack(log_offset)).hex().upper()
    except struct.error as error:
        raise LocalProtocolError(f"log offset {log_offset}: {error}") from None


def decode_offset_message_id(text: str) -> OffsetMessageId:
    ip, rest = _split_id(text, "offset message id")
    port, log_offset = _PORT_AND_OFFSET.unpack(rest)
    return OffsetMessageId(Host(ip, port), log_offset)


class UniqueKey(msgspec.Struct, frozen=True, gc=False):
    ip: bytes
    pid: int
    loader_hash: int
    sent_ms: int
    counter: int


class UniqueKeys:
    """Makes the unique keys of one process.

    Time is in milliseconds since the month began in the local time zone (`timezone`, None for the
    machine's own), and the key has room for 65,536 messages in each of them.
    """

    def __init__(self, ip: bytes, pid: int, loader_hash: int, timezone: tzinfo | None = None) -> None:
        if len(ip) not in (4, 16):
            raise LocalProtocolError(f"an IP address has 4 or 16 bytes, not {len(ip)}")
        # java: only the low 16 bits of the process id have room
        self._prefix = (ip + _MAKER.pack(pid & 0xFFFF, loader_hash & 0xFFFFFFFF)).hex().upper()
        self._timezone = timezone
        self._month_start_ms = 0
        self._next_month_start_ms = 0
        self._counter = 0
        self._moment_ms = -1
        self._start = ""

    def next(self, now_ms: int) -> str:
        if now_ms != self._moment_ms:
            self._start = self.start_of(now_ms)
            self._moment_ms = now_ms
        counter = self._counter
        self._counter = counter + 1
        return f"{self._start}{counter & 0xFFFF:04X}"

    def reserve(self, count: int) -> int:
        """The first of `count` numbers that `next` leaves out: a caller makes keys of them itself, all in the
        same millisecond."""
        first = self._counter
        self._counter += count
        return first

    def start_of(self, now_ms: int) -> str:
        """The common prefix of the keys of one millisecond; the low 16 bits of a number follow."""
        if now_ms >= self._next_month_start_ms:
            self._month_start_ms = month_start_ms(now_ms, self._timezone)
            # 32 days after a month began the next one has begun and is not over
            self._next_month_start_ms = month_start_ms(self._month_start_ms + 32 * 86_400_000, self._timezone)
        elapsed_ms = now_ms - self._month_start_ms
        if -CLOCK_SETBACK_MS < elapsed_ms < 0:
            elapsed_ms = 0  # java: a clock set back a little
        return f"{self._prefix}{elapsed_ms & 0xFFFFFFFF:08X}"

    def __repr__(self) -> str:
        return f"<UniqueKeys {self._prefix} made={self._counter}>"


def decode_unique_key(text: str, now_ms: int, timezone: tzinfo | None = None) -> UniqueKey:
    """Read a unique key; the month it was made in is taken to be this one, or the last if that is ahead."""
    ip, rest = _split_id(text, "unique key")
    pid, loader_hash, elapsed_ms, counter = _MAKER_AND_MOMENT.unpack(rest)
    start_ms = month_start_ms(now_ms, timezone)
    if start_ms + elapsed_ms >= now_ms:
        start_ms = month_start_ms(start_ms - 86_400_000, timezone)
    return UniqueKey(ip, pid, loader_hash, start_ms + elapsed_ms, counter)


def month_start_ms(now_ms: int, timezone: tzinfo | None = None) -> int:
    """Midnight of the month's first day in `timezone`, or in the machine's own."""
    try:
        now = datetime.fromtimestamp(now_ms / 1000, timezone)
        start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
        return round(start.timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise LocalProtocolError(f"{now_ms} ms is outside the calendar: {error}") from None


def _split_id(text: str, what: str) -> tuple[bytes, bytes]:
    """The address in front of a hex id, and the twelve bytes behind it."""
    if len(text) not in (_IPV4_ID_LENGTH, _IPV6_ID_LENGTH):
        raise RemoteProtocolError(f"{what} {text[:80]!r} has {len(text)} characters, not 32 or 56")
    try:
        data = binascii.unhexlify(text)
    except ValueError:  # not hexadecimal, or not even ASCII
        raise RemoteProtocolError(f"{what} {text!r} is not hexadecimal") from None
    return data[:-12], data[-12:]


class RecallHandle(msgspec.Struct, frozen=True, gc=False):
    """The handle that a producer keeps to recall a timed message before its delivery."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_key: str


def encode_recall_handle(handle: RecallHandle) -> str:
    words = ["v1", handle.topic, handle.broker_name, str(handle.deliver_ms), handle.unique_key]
    text = " ".join(words)
    if not all(words) or text.count(" ") != len(words) - 1:
        raise LocalProtocolError(f"recall handle with an empty word or a space in one: {words}")
    return base64.urlsafe_b64encode(text.encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    try:
        padded = text + "=" * (-len(text) % 4)  # java: its reader does not insist on padding
        words = base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
    except ValueError as error:  # bad base64, bad UTF-8, or not ASCII to begin with
        raise RemoteProtocolError(f"recall handle {text[:200]!r}: {error}") from None
    if len(words) < 5 or words[0] != "v1" or not _MILLISECONDS.fullmatch(words[3]):
        raise RemoteProtocolError(f"recall handle {text[:200]!r} is not a version 1 handle")
    return RecallHandle(words[1], words[2], int(words[3]), words[4])
