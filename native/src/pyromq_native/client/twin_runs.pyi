from collections.abc import Callable

from pyromq.client.consumer.handling.runs import InterpretedLot, Run

class Lot(InterpretedLot): ...

def run_handlers(
    function: Callable[..., object],
    lot: Lot,
    monotonic: Callable[[], float],
    turn_ends: float,
) -> Run: ...
