"""The short road of a plain send: from the bytes of a read straight into the log.

It takes what nearly every producer sends: one message with a unique key and nothing unusual about it, for a
queue that is open. The first frame that is anything else ends it, and the general road goes on from there.
Both roads give the same log and the same answers, byte for byte.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

import msgspec

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.born_hosts import BornHosts
from pyromq.broker.flow.lanes import Lanes
from pyromq.broker.flow.pressure import Pressure
from pyromq.broker.flow.stamping import Stamp, is_unusual
from pyromq.broker.tables.statistics import Statistics
from pyromq.errors import Refused
from pyromq.protocol.catalogue import CATALOGUE
from pyromq.protocol.codes import CURRENT_VERSION, ResponseCode
from pyromq.protocol.direct import header_decoder
from pyromq.protocol.frame import ONEWAY_FLAG
from pyromq.protocol.record import SysFlag
from pyromq.remoting.connection import Connection
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus

_PREFIX = Struct(">iI")
_UNUSUAL_BITS = SysFlag.TRANSACTION_MASK | SysFlag.INNER_BATCH
_UNIQUE_KEY = "UNIQ_KEY\x01"
_DELAY = "DELAY\x01"
_WAIT = "WAIT\x01"
_WAIT_TRUE = "WAIT\x01true\x02"
_LONGEST_PREFIX = len(b'{"code":310,')

_STORED_CODES = {
    AppendStatus.PUT_OK: ResponseCode.SUCCESS,
    AppendStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
}


class Express:
    def __init__(
        self,
        store: MessageStore,
        store_host: bytes,
        appending: Appending,
        lanes: Lanes,
        pressure: Pressure,
        stamp: Stamp,
        born_hosts: BornHosts,
        statistics: Statistics,
        max_frame_bytes: int,
    ) -> None:
        self._store = store
        self._store_host = store_host
        self._id_prefix = store_host.hex().upper()
        self._appending = appending
        self._lanes = lanes
        self._pressure = pressure
        self._stamp = stamp
        self._born_hosts = born_hosts
        self._statistics = statistics
        self._max_frame_bytes = max_frame_bytes
        self._is_sync_flush = store.settings.is_sync_flush
        self._answer_fields: dict[str, str] = {}
        self._fields_text = ""
        self._decoders: dict[bytes, Callable[[bytes], Any]] = {
            b'{"code":%d,' % code: header_decoder(CATALOGUE[code]) for code in (10, 310)
        }

    def __repr__(self) -> str:
        return f"<Express to {self._store!r}>"

    def __call__(self, data: bytes, connection: Connection) -> tuple[int, int]:
        # Everything stands in one place, because at this rate a call costs as much as the work in it.
        unpack_prefix = _PREFIX.unpack_from
        decoders = self._decoders
        find_lane = self._lanes.find
        append = self._store.append
        count = self._statistics.put
        store_host, id_prefix = self._store_host, self._id_prefix
        available = len(data)
        position = frames = 0
        born_host = b""
        suffix = self._stamp.suffix
        tails: list[str] = []
        result: AppendResult | None = None
        while available - position > 8:
            length, header_bytes = unpack_prefix(data, position)
            end = position + 4 + length
            body_at = position + 8 + header_bytes
            # A binary header makes its length look enormous.
            if end > available or body_at >= end or length + 4 > self._max_frame_bytes:
                break
            header = data[position + 8 : body_at]
            decode = decoders.get(header[: header.find(b",", 0, _LONGEST_PREFIX) + 1])
            if decode is None:
                break
            try:
                read = decode(header)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                break
            request = read.request
            text = request.properties
            if (
                not text
                or text[-1] != "\x02"
                or not text.isascii()
                or is_unusual(text)
                or _DELAY in text
                or request.batch
                or request.sys_flag & _UNUSUAL_BITS
                or read.flag & ~ONEWAY_FLAG
                or (self._is_sync_flush and _WAIT in text and _WAIT_TRUE not in text)
            ):
                break
            key_at = text.rfind(_UNIQUE_KEY)
            if key_at < 0 or (key_at and text[key_at - 1] != "\x02"):
                break
            key_at += len(_UNIQUE_KEY)
            key = text[key_at : text.index("\x02", key_at)]
            lane = find_lane(request.topic, request.queue_id)
            if lane is None or not lane.is_plain or not key.isalnum():
                break
            if not frames:
                try:
                    self._pressure.admit()
                except Refused:
                    break
                born_host = self._born_hosts.of(connection)
            appended = append(
                lane.topic,
                lane.queue_id,
                data[body_at:end],
                (text + suffix).encode(),
                born_timestamp=request.born_timestamp,
                born_host=born_host,
                store_host=store_host,
                flag=request.flag,
                sys_flag=request.sys_flag | lane.sys_flag,
                reconsume_times=request.reconsume_times or 0,
            )
            if appended.status is not AppendStatus.PUT_OK:
                break
            result = appended
            count(lane.topic, lane.queue_id, 1, result.size_bytes)
            frames += 1
            position = end
            if not read.flag:
                tails.append(
                    f'"extFields":{{"msgId":"{id_prefix}{result.log_offset:016X}",'
                    f'"queueId":"{lane.queue_id}","queueOffset":"{result.queue_offset}",'
                    f'{self._fields()}"transactionId":"{key}"}},"flag":1,"language":"PYTHON",'
                    f'"opaque":{read.opaque},"serializeTypeCurrentRPC":"JSON","version":{CURRENT_VERSION}}}'
                )
        if result is not None:
            self._appending.dispatch_soon()
            if tails:
                self._answer(connection, tails, result)
        return frames, position

    def _fields(self) -> str:
        """The fields that every answer has, as JSON without its braces and with a comma behind."""
        fields = self._stamp.answer_fields
        if fields is not self._answer_fields:
            self._answer_fields = fields
            self._fields_text = msgspec.json.encode(fields).decode()[1:-1] + ","
        return self._fields_text

    def _answer(self, connection: Connection, tails: list[str], last: AppendResult) -> None:
        if not self._is_sync_flush:
            connection.put(_frames(ResponseCode.SUCCESS, tails))
            return
        size_bytes = sum(map(len, tails))
        connection.defer(size_bytes)
        # What lies before the last message is safe when it is.
        self._appending.when_safe(
            last,
            lambda status: connection.settle(_frames(_STORED_CODES[status], tails), size_bytes),
        )


def _frames(code: int, tails: list[str]) -> bytes:
    head = f'{{"code":{code:d},'
    parts: list[bytes] = []
    for tail in tails:
        header = (head + tail).encode()
        parts.append(_PREFIX.pack(4 + len(header), len(header)))
        parts.append(header)
    return b"".join(parts)
