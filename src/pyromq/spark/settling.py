"""Spark's Python processes collect garbage after every step, and need not scan imported modules each time."""

import gc

_FREEZES = 3
"""The first things a process does still import something."""

_frozen = 0


def settle_in() -> None:
    global _frozen
    if _frozen < _FREEZES:
        _frozen += 1
        gc.freeze()
