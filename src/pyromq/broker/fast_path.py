"""The fast path, compiled: bytes of a read become bytes of a write.

It takes the common requests: a message with a unique key or a batch, without unusual properties, for a known
writable queue, into a lite topic too; a message like that with a time of delivery, or a half message, and the
end of its transaction if the producer waits for no answer; pulls with a read grant that find messages; and
acknowledgements of popped messages. It stops at the first other frame, and the general path continues there.
Both paths write the same log and the same answers, byte for byte. Without the compiled core there is only the
general path.
"""

from typing import Protocol, cast

from pyromq.broker.context import Context
from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.inbound import Inbound
from pyromq.broker.flow.open_transactions import OpenTransactions
from pyromq.broker.flow.quotas import Quotas
from pyromq.broker.flow.read_grants import ReadGrants
from pyromq.broker.flow.send_answers import SEND_CODES
from pyromq.broker.services.acknowledging import AckedPop, Acknowledging
from pyromq.compiled import twin
from pyromq.errors import Refused
from pyromq.protocol.catalogue import Answer, declaration_of, encode_answer
from pyromq.protocol.frame import Frame
from pyromq.protocol.framing import FrameReader, encode_frame
from pyromq.protocol.requests.popping import AckMessage
from pyromq.remoting.connection import Connection
from pyromq.store.results import AppendResult, AppendStatus

_native = twin("broker.fast_path")

_PREFIX_BYTES = 8
_OPAQUE = 1234567890
"""A number that appears nowhere else in an answer."""


class BrokerFastPath(Protocol):
    pulls_taken: int
    """Number of pulls among the frames of the last call."""
    ends_taken: int
    """The same of ends of transactions."""
    acks_taken: int
    """The same of acknowledgements."""

    def __call__(self, data: bytes, connection: Connection) -> tuple[int, int]: ...


def fast_path(
    context: Context,
    inbound: Inbound,
    transactions: OpenTransactions,
    acknowledging: Acknowledging,
    read_grants: ReadGrants | None,
) -> BrokerFastPath | None:
    """None without the compiled core. Without `read_grants` it takes no pulls."""
    if _native is None:
        return None
    tables, limits = context.tables, context.live.now.limits
    return cast(
        BrokerFastPath,
        _native.FastPath(
            context.store,
            inbound.appending.store_host,
            inbound.appending,
            inbound.writable_queues,
            inbound.send_throttle,
            inbound.broker_properties,
            inbound.born_hosts,
            tables.statistics,
            transactions,
            read_grants,
            tables.offsets,
            GatheredAcks(acknowledging),
            max_frame_bytes=limits.max_frame_bytes,
            high_water_bytes=limits.write_high_water_bytes,
            answer_when_safe=SafeAnswers(inbound.appending, inbound.quotas),
        ),
    )


class SafeAnswers:
    """Sends the answers to sends once their messages are safe, or after the time-out; with a quota, later."""

    def __init__(self, appending: Appending, quotas: Quotas) -> None:
        self._appending = appending
        self.quotas = quotas

    def __call__(self, connection: Connection, answers: bytes, last: AppendResult) -> None:
        """`answers` say SUCCESS; the messages before `last` are safe when `last` is."""
        size_bytes = len(answers)
        connection.defer(size_bytes)

        def settle(status: AppendStatus) -> None:
            is_safe = status is AppendStatus.PUT_OK
            connection.settle(answers if is_safe else recoded(answers, SEND_CODES[status]), size_bytes)

        self._appending.durability.when_safe(last, settle)

    def later(
        self, connection: Connection, answers: bytes, last: AppendResult | None, delay_s: float
    ) -> None:
        """The same after a delay at least. Without `last` the messages are safe."""
        size_bytes = len(answers)
        connection.defer(size_bytes)
        found: AppendStatus | None = None if last is not None else AppendStatus.PUT_OK
        is_due = False

        def go_on() -> None:
            if is_due and found is not None:
                is_safe = found is AppendStatus.PUT_OK
                connection.settle(answers if is_safe else recoded(answers, SEND_CODES[found]), size_bytes)

        def due() -> None:
            nonlocal is_due
            is_due = True
            go_on()

        def settle(status: AppendStatus) -> None:
            nonlocal found
            found = status
            go_on()

        self.quotas.call_later(delay_s, due)
        if last is not None:
            self._appending.durability.when_safe(last, settle)


class GatheredAcks:
    """Acknowledgements of one pop that came in one read: they are checked, written and answered together."""

    def __init__(self, acknowledging: Acknowledging) -> None:
        self._acknowledging = acknowledging
        answer = encode_answer(declaration_of(AckMessage), Answer(), Frame(0, _OPAQUE))
        begin, end = encode_frame(answer)[_PREFIX_BYTES:].split(b"%d" % _OPAQUE)
        self.answer_pieces = begin, end
        """The header of an answer before and after its opaque number."""

    def begin(self, topic: bytes, group: bytes, queue_id: int, receipt: bytes) -> AckedPop | None:
        """None if the general path must handle them."""
        try:
            return self._acknowledging.find_pop(topic.decode(), group.decode(), queue_id, receipt.decode())
        except (Refused, UnicodeDecodeError):
            return None

    def gather(self, pop: AckedPop, offsets: list[int], connection: Connection, answers: bytes) -> None:
        """`answers` say SUCCESS."""
        size_bytes = len(answers)
        connection.defer(size_bytes)

        def settle(refusal: Refused | None) -> None:
            told = answers if refusal is None else recoded(answers, refusal.code, refusal.remark)
            connection.settle(told, size_bytes)

        self._acknowledging.gather(pop, offsets, settle)


def recoded(answers: bytes, code: int, remark: str | None = None) -> bytes:
    """The same answers with another code and remark."""
    frames = FrameReader(len(answers)).feed(answers)
    for frame in frames:
        frame.code, frame.remark = code, remark
    return b"".join([encode_frame(frame) for frame in frames])
