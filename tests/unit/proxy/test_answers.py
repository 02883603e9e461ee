"""Handlers of unary calls answer at once, later, or as coroutines; a refusal is an answer in each case."""

import asyncio
from typing import Any

import pytest

from pyromq.proxy.codes import Code, Rejected
from pyromq.proxy.grpc.call import Later
from pyromq.proxy.messages import SERVICE, message
from pyromq.proxy.service import methods

AckMessageResponse = message("AckMessageResponse")
REFUSED = Rejected(Code.ILLEGAL_TOPIC, "no such topic")


async def _answer(handler: Any, seen: list[tuple[str, int, float | None]]) -> Any:
    table = methods({"AckMessage": handler}, None, lambda *ended: seen.append(ended))
    answer = table[f"/{SERVICE}/AckMessage"].handler(None, None)
    while type(answer) is Later:
        await asyncio.wait([answer.waiting])
        answer = answer.answer()
    return await answer if asyncio.iscoroutine(answer) else answer


def _raise() -> Any:
    raise REFUSED


async def _raise_later() -> Any:
    raise REFUSED


def _later(work: Any) -> Later:
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting.set_result(None)
    return Later(waiting, work)


@pytest.mark.parametrize(
    "handler",
    [
        lambda *_: _raise(),
        lambda *_: _raise_later(),
        lambda *_: _later(_raise),
        lambda *_: _later(_raise_later),
        lambda *_: _later(lambda: _later(_raise)),
    ],
)
async def test_a_refusal_is_an_answer_whenever_it_comes(handler: Any) -> None:
    seen: list[tuple[str, int, float | None]] = []
    answer = await _answer(handler, seen)
    assert (answer.status.code, answer.status.message) == (Code.ILLEGAL_TOPIC, "no such topic")
    assert [(name, status) for name, status, _ in seen] == [("AckMessage", Code.ILLEGAL_TOPIC)]


async def test_an_answer_passes_as_it_is() -> None:
    given = AckMessageResponse()
    assert await _answer(lambda *_: given, []) is given
    assert await _answer(lambda *_: _later(lambda: given), []) is given
