from pyromq_native.proxy.calls import Plain

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
