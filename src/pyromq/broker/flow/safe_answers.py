"""Answers that promise what was written: they leave when that is as safe as an acknowledged message.

If it takes too long the request is refused. What was written is stored here, but the next master may not have
it; whoever asked tries again.
"""

import asyncio
from typing import TypeVar

from pyromq.broker.flow.durability import Durability
from pyromq.broker.flow.send_answers import SEND_CODES
from pyromq.errors import Refused
from pyromq.protocol.catalogue import Answer
from pyromq.store.results import AppendResult, AppendStatus

A = TypeVar("A", bound=Answer)


def refusal_of(status: AppendStatus) -> Refused | None:
    if status is AppendStatus.PUT_OK:
        return None
    # java: Apache's broker says SUCCESS
    return Refused(SEND_CODES[status], f"it is stored, but not safe yet ({status.value}): try again")


def when_safe(durability: Durability, answer: A, *written: AppendResult) -> "A | asyncio.Future[A]":
    """The answer, or a future of it: that raises Refused if it takes too long."""
    if durability.is_immediate or not written:
        return answer
    answered: asyncio.Future[A] = asyncio.get_running_loop().create_future()

    def settle(status: AppendStatus) -> None:
        if answered.done():
            return
        if (refusal := refusal_of(status)) is None:
            answered.set_result(answer)
        else:
            answered.set_exception(refusal)

    durability.when_all_safe(written, settle)
    return answered
