from collections.abc import Callable

from pyromq.client.values import Message, SendResult, SendStatus
from pyromq.remoting.connection import Connection

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
