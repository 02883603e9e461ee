"""How a loop over a stream was left: by `break` or `return` on purpose, else by an exception.

A loop that is left on purpose has handled its last message. One that is left in any other way has failed with
it.
"""

import dis
from types import FrameType
from typing import Final

from pyromq.client.consumer.handling.outcomes import RetryLater

FAILED: Final = RetryLater("the loop over the stream was left by an exception")

_LEAVING = frozenset(dis.opmap[name] for name in ("POP_TOP", "POP_ITER") if name in dis.opmap)
"""The instructions by which `break` and `return` drop the iterator of a loop."""


def is_left_on_purpose(frame: FrameType) -> bool:
    """Whether the loop in this frame, which drops its iterator right now, is left by `break` or `return`.

    An exception drops it, too, and Python does not notify the iterator; but it stops at another instruction.
    """
    return frame.f_code.co_code[frame.f_lasti] in _LEAVING
