from collections.abc import Callable, Coroutine
from typing import Any

from pyromq.client.in_flight_limit import InFlightLimit
from pyromq.client.quick_targets import Target
from pyromq.client.sending import Sender
from pyromq.client.session import Session
from pyromq.client.values import Message, SendResult, SendStatus
from pyromq.cluster.route_table import KnownRoutes
from pyromq.remoting.connection import Connection
from pyromq_native.client.sent import PlainSends, Sent

def plain_frame(
    pieces: tuple[bytes, ...],
    message: Message,
    unique_key: str,
    suffix: str,
    body_limit: int,
    queue_id: int,
    born_ms: int,
    opaque: int,
) -> bytes | None: ...

class QuickAnswers:
    def __init__(
        self, result: Callable[..., SendResult], ok: SendStatus, region: str, max_frame_bytes: int
    ) -> None: ...
    def __call__(self, data: bytes, connection: Connection) -> tuple[int, int]: ...

class Call(Sent):
    message: Message
    unique_key: str
    born_ms: int
    target: Target
    connection: Connection
    started: float

class Sending(PlainSends):
    def __init__(
        self,
        topics: dict[str, str],
        targets_of: Callable[[str], list[Target]],
        routes: KnownRoutes,
        sender: Sender,
        session: Session,
        in_flight: InFlightLimit,
        answers: QuickAnswers,
        generally: Callable[..., Coroutine[Any, Any, Any]],
        end_otherwise: Callable[[Call, Any], Coroutine[Any, Any, SendResult]],
        soon: Callable[[Callable[[], object]], None],
        *,
        now_ms: Callable[[], int] | None,
        monotonic: Callable[[], float] | None,
        suffix: str,
        body_limit: int,
        slow_us: int,
    ) -> None: ...
