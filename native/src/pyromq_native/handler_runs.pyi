from collections.abc import Callable

from pyromq.client.consumer.handling.runs import Lot, Run

def run_handlers(
    function: Callable[..., object],
    lot: Lot,
    monotonic: Callable[[], float],
    turn_ends: float,
) -> Run: ...
