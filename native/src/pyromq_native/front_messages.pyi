from pyromq.remoting.connection import Connection

class Plain:
    data: bytes

class PlainSend(Plain):
    topic: str
    message_group: str | None
    def frame(
        self, pieces: tuple[bytes, ...], queue_id: int, now_ms: int, opaque: int, max_frame_bytes: int
    ) -> bytes | None: ...

class SendReader:
    def __init__(
        self,
        unusual: frozenset[bytes],
        *,
        max_body_bytes: int,
        refuses_empty: bool,
        max_properties: int,
        max_properties_bytes: int,
        max_group_bytes: int,
    ) -> None: ...
    def read(self, data: bytes, peer_host: bytes) -> PlainSend | None: ...

class PlainAck(Plain):
    topic: str
    group: str
    handle: str
    broker_name: str
    expires_ms: int
    def frame(self, pieces: tuple[bytes, ...], opaque: int, max_frame_bytes: int) -> bytes | None: ...

def read_ack(data: bytes) -> PlainAck | None: ...

class QuickAnswers:
    def __init__(self, max_frame_bytes: int) -> None: ...
    def __call__(self, data: bytes, connection: Connection) -> tuple[int, int]: ...

class ReceiptMaker:
    def __init__(
        self,
        times: bytes,
        broker: bytes,
        starts: dict[tuple[str, int], int],
        offsets: dict[tuple[str, int], list[int]],
    ) -> None: ...

def received(
    body: bytes,
    topic: bytes,
    receipts: ReceiptMaker,
    hidden: frozenset[bytes],
    unusual: frozenset[bytes],
    wanted_tags: frozenset[bytes] | None,
    max_retries: int,
) -> tuple[bytes, list[tuple[str, int]]] | None: ...
