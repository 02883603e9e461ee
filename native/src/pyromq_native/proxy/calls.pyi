from pyromq.remoting.connection import Connection

class Plain:
    data: bytes

class QuickAnswers:
    def __init__(self, max_frame_bytes: int) -> None: ...
    def __call__(self, data: bytes, connection: Connection) -> tuple[int, int]: ...
