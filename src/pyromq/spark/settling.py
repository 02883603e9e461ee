"""Spark collects garbage after everything its Python processes do; what they have imported need not be looked
at again and again.
"""

import gc

_FREEZES = 3
"""The first things a process does still import something."""

_frozen = 0


def settle_in() -> None:
    global _frozen
    if _frozen < _FREEZES:
        _frozen += 1
        gc.freeze()
