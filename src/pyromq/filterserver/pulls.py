"""Pulls through a filter: asks the broker, and passes on only what matches.

As long as nothing matches it keeps pulling, until the time is over that the consumer would wait. If the
filter fails, the consumer gets an error and stays where it is: no message is lost by a broken filter.
"""

from msgspec.structs import replace

from pyromq.clock import Clock
from pyromq.errors import Refused, TransportError
from pyromq.filterserver.filters import Filters, UploadedFilter
from pyromq.filterserver.metering import FilterMetering
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message import open_message
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.record import SysFlag, decode_record, encode_record, peek_size, peek_sys_flag
from pyromq.protocol.requests.pulling import (
    CLASS_FILTER_FLAG,
    COMMIT_FLAG,
    SUBSCRIPTION_FLAG,
    SUSPEND_FLAG,
    PullMessage,
    PullMessageAnswer,
)
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.routing import Caller, handles

_LONGEST_WAIT_MS = 15_000
_CALL_S = 10.0


class FilteredPulls:
    def __init__(
        self, filters: Filters, dialer: Dialer, broker: str, clock: Clock, metering: FilterMetering
    ) -> None:
        self._filters = filters
        self._dialer = dialer
        self._broker = broker
        self._clock = clock
        self._metering = metering

    def __repr__(self) -> str:
        return f"<FilteredPulls of {self._broker} {self._filters!r}>"

    @handles(PullMessage)
    async def pull(self, request: PullMessage, caller: Caller) -> PullMessageAnswer:
        if not request.sys_flag & CLASS_FILTER_FLAG:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                "a pull from a filter server without the bit of a class filter",
            )
        wait_ms = request.suspend_timeout_millis if request.sys_flag & SUSPEND_FLAG else 0
        end = self._clock.monotonic() + min(max(wait_ms, 0), _LONGEST_WAIT_MS) / 1000
        flags = request.sys_flag & (COMMIT_FLAG | SUSPEND_FLAG)
        offset = request.queue_offset
        while True:
            # Looked up each time: a better one may have been uploaded meanwhile.
            used = self._filters.find(request.consumer_group, request.topic)
            if used is None:
                raise Refused(
                    ResponseCode.FILTER_DATA_NOT_EXIST,
                    f"no filter of {request.consumer_group} for {request.topic} was uploaded to this server",
                )
            left_s = max(0.0, end - self._clock.monotonic())
            found = await self._ask_broker(request, offset, flags, left_s)
            # java: consumers would ask another broker, but these may have no filter server
            found = replace(found, suggest_which_broker_id=MASTER_ID)
            if found.code == ResponseCode.PULL_RETRY_IMMEDIATELY and found.next_begin_offset > offset:
                matching = found
            elif found.code != ResponseCode.SUCCESS:
                return found
            else:
                matching = await self._matching(used, replace(request, queue_offset=offset), found)
            is_over = self._clock.monotonic() >= end or not caller.channel.is_open
            if matching.code == ResponseCode.SUCCESS or is_over:
                return matching
            offset, flags = found.next_begin_offset, flags & ~COMMIT_FLAG

    async def _ask_broker(
        self, request: PullMessage, offset: int, flags: int, left_s: float
    ) -> PullMessageAnswer:
        asked = replace(
            request,
            queue_offset=offset,
            sys_flag=flags | SUBSCRIPTION_FLAG,
            suspend_timeout_millis=round(left_s * 1000),
            subscription="*",
            expression_type="TAG",
            sub_version=0,
        )
        try:
            return await self._dialer.call(self._broker, asked, left_s + _CALL_S)
        except TransportError as problem:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the broker cannot be asked: {problem}") from None

    async def _matching(
        self, used: UploadedFilter, request: PullMessage, found: PullMessageAnswer
    ) -> PullMessageAnswer:
        records = _records(found.body, request.queue_offset - (found.offset_delta or 0))
        verdicts = await self._filters.match(used, request.queue_id, records)
        passed = [record for record, matches in zip(records, verdicts, strict=True) if matches]
        body = b"".join(passed)
        self._metering.filtered(request.consumer_group, request.topic, len(records), len(passed), len(body))
        if passed:
            return replace(found, body=body)
        return replace(found, code=ResponseCode.PULL_RETRY_IMMEDIATELY, body=b"")


def _records(body: bytes, first: int) -> list[bytes | memoryview]:
    """The stored messages of an answer, those in batches from `first` on each by itself."""
    view, records, position = memoryview(body), list[bytes | memoryview](), 0
    while position < len(view):
        size = peek_size(view, position)
        record = view[position : position + size]
        if peek_sys_flag(record) & SysFlag.INNER_BATCH:
            inside = open_message(decode_record(record, check_crc=False), on_problem=lambda _: None)
            records += [encode_record(each) for each in inside if each.queue_offset >= first]
        else:
            records.append(record)
        position += size
    return records
