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
