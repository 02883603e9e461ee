"""What a program has shown on a terminal of its own."""

import os
from contextlib import suppress


def all_shown(ours: int) -> str:
    """Everything, once its end of the terminal is closed; what it wrote may still be on its way to ours."""
    shown = b""
    with suppress(OSError):  # how Linux says that the other end is closed and nothing is left
        while data := os.read(ours, 65536):
            shown += data
    return shown.decode()
