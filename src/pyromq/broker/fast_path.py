"""The fast path of plain sends and pulls: from the bytes of a read straight to those of a write, compiled.

It takes what nearly every client sends: one message with a unique key, or a batch, with nothing unusual
about it, for a queue that is open; and pulls that find something, by groups that were let in before. The
first frame that is anything else ends it, and the general path goes on from there. Both give the same log and
the same answers, byte for byte. Without the compiled core there is the general path alone.
"""

from typing import Protocol, cast

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.inbound import Inbound
from pyromq.broker.flow.read_grants import ReadGrants
from pyromq.broker.flow.send_answers import SEND_CODES
from pyromq.broker.tables.all_tables import Tables
from pyromq.compiled import twin
from pyromq.protocol.framing import FrameReader, encode_frame
from pyromq.remoting.connection import Connection
from pyromq.remoting.limits import ServerLimits
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus

_native = twin("fast_path")


class FastPath(Protocol):
    pulls_taken: int
    """How many of the frames it last took were pulls."""

    def __call__(self, data: bytes, connection: Connection) -> tuple[int, int]: ...


def fast_path(
    store: MessageStore,
    store_host: bytes,
    inbound: Inbound,
    tables: Tables,
    limits: ServerLimits,
    read_grants: ReadGrants | None,
) -> FastPath | None:
    """None where there is no compiled core. Without `read_grants` it takes no pulls."""
    if _native is None:
        return None
    return cast(
        FastPath,
        _native.FastPath(
            store,
            store_host,
            inbound.appending,
            inbound.writable_queues,
            inbound.send_throttle,
            inbound.broker_properties,
            inbound.born_hosts,
            tables.statistics,
            read_grants,
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
