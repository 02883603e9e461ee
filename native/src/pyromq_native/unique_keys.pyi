from collections.abc import Callable

from pyromq.protocol.message_id import UniqueKeys

class KeyMaker:
    def __init__(self, unique_keys: UniqueKeys, now_ms: Callable[[], int] | None) -> None: ...
