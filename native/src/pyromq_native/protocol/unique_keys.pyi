from collections.abc import Callable

from pyromq.protocol.message_id import UniqueKeys

def set_monotonic(function: Callable[[], float] | None) -> None: ...

class KeyMaker:
    def __init__(self, unique_keys: UniqueKeys, now_ms: Callable[[], int] | None) -> None: ...
