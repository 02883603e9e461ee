"""What a load costs between two moments. It needs nothing but Python: any client can be measured with it."""

import time


class Marks:
    """Time and CPU time between two moments."""

    def __init__(self) -> None:
        self._times: list[tuple[float, float]] = []

    def set(self) -> None:
        self._times.append((time.perf_counter(), time.process_time()))

    def report(self, messages: int, failed: int = 0) -> dict[str, float]:
        (began, cpu_before), (ended, cpu_after) = self._times
        return {
            "messages": messages,
            "seconds": ended - began,
            "cpu_s": cpu_after - cpu_before,
            "failed": failed,
        }
