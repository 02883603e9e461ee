"""The short road of plain sends and pulls: from the bytes of a read straight to those of a write.

It takes what nearly every client sends: one message with a unique key, or a batch, with nothing unusual
about it, for a queue that is open; and pulls that find something, by groups that were let in before. The
first frame that is anything else ends it, and the general road goes on from there. Both roads give the same
log and the same answers, byte for byte, and so does the compiled twin of this one.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Protocol, cast

import msgspec

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.born_hosts import BornHosts
from pyromq.broker.flow.inbound import Inbound
from pyromq.broker.flow.lanes import Lanes, Sent
from pyromq.broker.flow.outlets import Outlets
from pyromq.broker.flow.pressure import Pressure
from pyromq.broker.flow.send_codes import SEND_CODES
from pyromq.broker.flow.stamping import Stamp, is_unusual
from pyromq.broker.services.pulling import COMMIT_FLAG, SUBSCRIPTION_FLAG
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.offsets import OffsetTable
from pyromq.broker.tables.statistics import Statistics
from pyromq.compiled import twin
from pyromq.errors import Refused, RemoteProtocolError
from pyromq.protocol.binary_header import decode_binary_header
from pyromq.protocol.catalogue import CATALOGUE, decode_request
from pyromq.protocol.codes import CURRENT_VERSION, Language, ResponseCode
from pyromq.protocol.direct import header_decoder
from pyromq.protocol.frame import ONEWAY_FLAG, RESPONSE_FLAG, Frame, HeaderForm
from pyromq.protocol.framing import FrameReader, encode_frame, encode_head
from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.pulling import PullMessage
from pyromq.protocol.requests.sending import SendMessageBatch
from pyromq.remoting.connection import Connection
from pyromq.remoting.limits import ServerLimits
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus, ReadStatus

_native = twin("express")

_PREFIX = Struct(">iI")
_CODES = (10, 310, 320, 11, 361)
_UNUSUAL_BITS = SysFlag.TRANSACTION_MASK | SysFlag.INNER_BATCH
_UNIQUE_KEY = "UNIQ_KEY\x01"
_DELAY = "DELAY\x01"
_WAIT = "WAIT\x01"
_WAIT_TRUE = "WAIT\x01true\x02"
_LONGEST_PREFIX = len(b'{"code":310,')
_MOST_BYTES = 1 << 30


class Road(Protocol):
    """What is made of an `Express`, whoever makes it."""

    pulls_taken: int
    """How many of the frames it last took were pulls."""

    def __call__(self, data: bytes, connection: Connection) -> tuple[int, int]: ...


def express_road(
    store: MessageStore,
    store_host: bytes,
    inbound: Inbound,
    tables: Tables,
    limits: ServerLimits,
    outlets: Outlets | None,
) -> Road:
    """The compiled road where there is one. Without `outlets` it takes no pulls."""
    road = Express if _native is None else _native.Express
    return cast(
        Road,
        road(
            store,
            store_host,
            inbound.appending,
            inbound.lanes,
            inbound.pressure,
            inbound.stamp,
            inbound.born_hosts,
            tables.statistics,
            outlets,
            tables.offsets,
            max_frame_bytes=limits.max_frame_bytes,
            high_water_bytes=limits.write_high_water_bytes,
            answer_when_safe=SafeAnswers(inbound.appending),
        ),
    )


class SafeAnswers:
    """Sends answers once what they answer is on disk, or will not be in time."""

    def __init__(self, appending: Appending) -> None:
        self._appending = appending

    def __call__(self, connection: Connection, answers: bytes, last: AppendResult) -> None:
        """`answers` say SUCCESS; what lies before the last message is safe when it is."""
        size_bytes = len(answers)
        connection.defer(size_bytes)

        def settle(status: AppendStatus) -> None:
            is_safe = status is AppendStatus.PUT_OK
            connection.settle(answers if is_safe else recoded(answers, SEND_CODES[status]), size_bytes)

        self._appending.durability.when_safe(last, settle)


def recoded(answers: bytes, code: int) -> bytes:
    """The same answers with another code."""
    frames = FrameReader(len(answers)).feed(answers)
    for frame in frames:
        frame.code = code
    return b"".join([encode_frame(frame) for frame in frames])


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
        outlets: Outlets | None,
        offsets: OffsetTable,
        *,
        max_frame_bytes: int,
        high_water_bytes: int,
        answer_when_safe: SafeAnswers,
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
        self._outlets = outlets
        self._offsets = offsets
        self._max_frame_bytes = max_frame_bytes
        self._high_water_bytes = high_water_bytes
        self._answer_when_safe = answer_when_safe
        self._born_host = b""
        """Where the messages of this read come from, once one of them was admitted."""
        self._answer_fields: dict[str, str] = {}
        self._fields_text = ""
        self._decoders: dict[bytes, Callable[[bytes], Any]] = {
            b'{"code":%d,' % code: header_decoder(CATALOGUE[code]) for code in _CODES
        }
        self.pulls_taken = 0

    def __repr__(self) -> str:
        return f"<Express to {self._store!r}>"

    def __call__(self, data: bytes, connection: Connection) -> tuple[int, int]:
        unpack_prefix = _PREFIX.unpack_from
        available = len(data)
        position = frames = given_bytes = 0
        answers: list[bytes] = []
        last: AppendResult | None = None
        self._born_host = b""
        self.pulls_taken = 0
        while available - position > 8 and given_bytes < self._high_water_bytes:
            length, form_and_header = unpack_prefix(data, position)
            end = position + 4 + length
            body_at = position + 8 + (form_and_header & 0xFFFFFF)
            if end > available or body_at > end or length + 4 > self._max_frame_bytes:
                break
            read = self._read(data[position + 8 : body_at], form_and_header >> 24)
            if read is None:
                break
            request = read.request
            if isinstance(request, PullMessage):
                pulled = self._pull(request, read)
                if pulled is None:
                    break
                if answers and self._appending.durability.is_immediate:
                    connection.put(b"".join(answers))
                    answers.clear()
                for piece in pulled:
                    connection.put(piece)
                    given_bytes += len(piece)
                self.pulls_taken += 1
            else:
                appended = self._append(request, read, data[body_at:end], connection, answers)
                if appended is None:
                    break
                last = appended
            frames += 1
            position = end
        if last is not None:
            self._appending.dispatch_soon()
            if answers and not self._appending.durability.is_immediate:
                self._answer_when_safe(connection, b"".join(answers), last)
            elif answers:
                connection.put(b"".join(answers))
        return frames, position

    def _read(self, header: bytes, form: int) -> Any:
        """What a header says, as `request`, `opaque`, `flag` and `form`; None if it is not for this road."""
        if form == HeaderForm.JSON:
            decode = self._decoders.get(header[: header.find(b",", 0, _LONGEST_PREFIX) + 1])
            if decode is None:
                return None
            try:
                return decode(header)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                return None
        if form != HeaderForm.BINARY:
            return None
        try:
            frame = decode_binary_header(header)
            if frame.code not in _CODES:
                return None
            frame.request = decode_request(CATALOGUE[frame.code], frame)
        except (RemoteProtocolError, Refused):
            return None
        return frame

    # Sends

    def _append(
        self, request: Sent, read: Any, body: bytes, connection: Connection, answers: list[bytes]
    ) -> AppendResult | None:
        """Append a message or a batch and add its answer; None if the general road has to see it."""
        text = request.properties or ""
        if (
            not body
            or not text.isascii()
            or is_unusual(text)
            or _DELAY in text
            or request.sys_flag & _UNUSUAL_BITS
            or read.flag & ~ONEWAY_FLAG
            or (not self._appending.durability.is_immediate and _WAIT in text and _WAIT_TRUE not in text)
        ):
            return None
        key = _unique_key(text)
        lane = self._lanes.find(request.topic, request.queue_id)
        if lane is None or not lane.is_plain or key is None:
            return None
        is_batch = request.batch or isinstance(request, SendMessageBatch)
        if not is_batch and (not key or text[-1] != "\x02"):
            return None
        if not self._born_host and not self._is_admitted(connection):
            return None
        if is_batch:
            try:
                result = self._store.append_encoded_batch(
                    lane.topic,
                    lane.queue_id,
                    body,
                    born_timestamp=request.born_timestamp,
                    born_host=self._born_host,
                    store_host=self._store_host,
                    sys_flag=request.sys_flag | lane.sys_flag,
                    reconsume_times=request.reconsume_times or 0,
                )
            except RemoteProtocolError:
                return None
        else:
            result = self._store.append(
                lane.topic,
                lane.queue_id,
                body,
                (text + self._stamp.suffix).encode(),
                born_timestamp=request.born_timestamp,
                born_host=self._born_host,
                store_host=self._store_host,
                flag=request.flag,
                sys_flag=request.sys_flag | lane.sys_flag,
                reconsume_times=request.reconsume_times or 0,
            )
        if result.status is not AppendStatus.PUT_OK:
            return None
        self._statistics.put(lane.topic, lane.queue_id, result.message_count, result.size_bytes)
        if read.flag:
            return result
        if isinstance(read, Frame):
            ext = {
                "msgId": self._appending.message_ids(result),
                "queueId": str(lane.queue_id),
                "queueOffset": str(result.queue_offset),
                **self._stamp.answer_fields,
            }
            if key:
                ext["transactionId"] = key
            answers.append(encode_frame(_answer(read, ext)))
            return result
        ids = self._appending.message_ids(result)
        transaction_id = f',"transactionId":"{key}"' if key else ""
        answers.append(
            _framed(
                f'{{"code":0,"extFields":{{"msgId":"{ids}","queueId":"{lane.queue_id}",'
                f'"queueOffset":"{result.queue_offset}",{self._fields()}{transaction_id}}},"flag":1,'
                f'"language":"PYTHON","opaque":{read.opaque},"serializeTypeCurrentRPC":"JSON",'
                f'"version":{CURRENT_VERSION}}}'
            )
        )
        return result

    def _is_admitted(self, connection: Connection) -> bool:
        """Whether anything may be sent now; asked once for each read."""
        if not self._pressure.admits():
            return False
        self._born_host = self._born_hosts.of(connection)
        return True

    def _fields(self) -> str:
        """The fields that every answer has, as JSON without its braces."""
        fields = self._stamp.answer_fields
        if fields is not self._answer_fields:
            self._answer_fields = fields
            self._fields_text = self._stamp.encoded_answer_fields()[0].decode()
        return self._fields_text

    # Pulls

    def _pull(self, request: PullMessage, read: Any) -> tuple[bytes, ...] | None:
        """The answer to a pull that finds something now; None if somebody else has to see it."""
        if self._outlets is None or read.flag:
            return None
        brings_subscription = request.sys_flag & SUBSCRIPTION_FLAG != 0
        outlet = self._outlets.find(
            read.code,
            request.consumer_group,
            request.topic,
            request.subscription if brings_subscription else None,
            request.expression_type if brings_subscription else None,
        )
        if (
            outlet is None
            or not 0 <= request.queue_id < outlet.queues
            or request.sub_version > outlet.newest_version
            or self._offsets.resets
        ):
            return None
        result = self._store.read(
            outlet.topic,
            request.queue_id,
            request.queue_offset,
            request.max_msg_nums,
            request.max_msg_bytes or _MOST_BYTES,
            tag_codes=outlet.tag_codes,
        )
        if result.status is not ReadStatus.FOUND:
            return None
        ext = {
            "suggestWhichBrokerId": str(
                outlet.suggested_far if result.suggest_replica else outlet.suggested_near
            ),
            "nextBeginOffset": str(result.next_offset),
            "minOffset": str(result.min_offset),
            "maxOffset": str(result.max_offset),
        }
        answer = _answer(read, ext)
        answer.remark = ReadStatus.FOUND.value
        head = encode_head(answer, result.size_bytes, result.size_bytes + _MOST_BYTES)
        if len(head) + result.size_bytes > self._max_frame_bytes:
            return None
        group, topic = outlet.group, outlet.topic
        if request.sys_flag & COMMIT_FLAG:
            self._offsets.commit(group, topic, request.queue_id, request.commit_offset)
        self._statistics.got(group, topic, request.queue_id, result.message_count, result.size_bytes)
        self._offsets.pulled(group, topic, request.queue_id, result.next_offset)
        return (head, b"".join(result.views))


def _unique_key(text: str) -> str | None:
    """The unique key among properties, empty if there is none; None if it is an odd one."""
    found = text.rfind(_UNIQUE_KEY)
    if found < 0:
        return ""
    if found and text[found - 1] != "\x02":
        return None
    key = text[found + len(_UNIQUE_KEY) :].partition("\x02")[0]
    return key if key.isalnum() else None


def _answer(to: Any, ext: dict[str, str]) -> Frame:
    form = to.form if isinstance(to, Frame) else HeaderForm.JSON
    return Frame(
        ResponseCode.SUCCESS,
        to.opaque,
        RESPONSE_FLAG,
        Language.PYTHON,
        CURRENT_VERSION,
        ext=ext,
        form=form,
    )


def _framed(header: str) -> bytes:
    encoded = header.encode()
    return _PREFIX.pack(4 + len(encoded), len(encoded)) + encoded
