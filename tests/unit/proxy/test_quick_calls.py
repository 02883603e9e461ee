"""A quick call whose broker does not answer as usual goes on where every other call is answered."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pyromq.errors import CallTimeout, ConnectionLost, Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame
from pyromq.protocol.requests.popping import AckMessage
from pyromq.proxy.quick_calls import QuickCall


class _Waiting:
    """A quick call, its connection to a broker and its client."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.answers: list[tuple[bytes, int]] = []
        self.problems: list[Exception] = []
        calls = SimpleNamespace(request_type=AckMessage, timeout_s=2.0)
        connection = SimpleNamespace(
            end_quick_call=self.ended.append, forget=lambda opaque: None, peer_address="10.0.0.1:10911"
        )
        call = SimpleNamespace(
            answer_quickly=lambda framed, status: self.answers.append((framed, status)),
            go_on=lambda work: work(),
        )
        made: Any = QuickCall
        self.quick: QuickCall = made(calls, None, call, "broker-a", connection, 7, self._resume)

    def _resume(self, quick: QuickCall, started: Any) -> None:
        assert quick is self.quick
        try:
            started.result()
        except (CallTimeout, ConnectionLost, Refused) as problem:
            self.problems.append(problem)


async def test_the_usual_answer_goes_to_the_client_as_it_is() -> None:
    waiting = _Waiting()
    waiting.quick.settle(b"framed")
    assert waiting.answers == [(b"framed", 20000)]
    assert waiting.ended == [7]


@pytest.mark.parametrize(
    ("problem", "expected"), [(TimeoutError(), CallTimeout), (ConnectionLost("gone"), ConnectionLost)]
)
async def test_a_broker_that_does_not_answer_is_a_problem_of_the_general_path(
    problem: Exception, expected: type[Exception]
) -> None:
    waiting = _Waiting()
    waiting.quick.set_exception(problem)
    assert [type(each) for each in waiting.problems] == [expected]
    assert (waiting.ended, waiting.answers) == ([7], [])


async def test_a_refusal_of_a_broker_is_a_problem_of_the_general_path() -> None:
    waiting = _Waiting()
    assert not waiting.quick.done()
    waiting.quick.set_result(Frame(ResponseCode.NO_PERMISSION, 7, 1, remark="no"))
    [problem] = waiting.problems
    assert isinstance(problem, Refused)
    assert problem.code == ResponseCode.NO_PERMISSION
    await asyncio.sleep(0)
