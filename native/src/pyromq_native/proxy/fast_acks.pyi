from pyromq_native.proxy.calls import Plain

class PlainAck(Plain):
    topic: str
    group: str
    handle: str
    broker_name: str
    expires_ms: int
    def frame(self, pieces: tuple[bytes, ...], opaque: int, max_frame_bytes: int) -> bytes | None: ...

def read_ack(data: bytes) -> PlainAck | None: ...
