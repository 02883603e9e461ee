"""Quick pulls: their answers, whatever these are, mean what they mean on the general path."""

import asyncio
from typing import Any, cast

import pytest
from tests.support.fake_network import FakeNetwork
from tests.support.held_messages import QUEUE, RETRY_QUEUE

from pyromq.client.consumer.reading.fetching import _VARYING, Fetching
from pyromq.client.consumer.reading.quick_pulls import Pulled, QuickPulls, _native
from pyromq.client.consumer.reading.subscriptions import Subscription
from pyromq.client.quick_sends import quick_answers
from pyromq.client.values import MessageQueue
from pyromq.compiled import WHY
from pyromq.errors import CallTimeout, ConnectionLost, Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import RESPONSE_FLAG, Frame
from pyromq.protocol.request_forms import RequestForm
from pyromq.protocol.requests.pulling import PullMessage, PullMessageAnswer

pytestmark = pytest.mark.skipif(_native is None, reason=f"no quick pulls: {WHY}")

FROM_ELSEWHERE = PullMessageAnswer(suggest_which_broker_id=0, next_begin_offset=3, min_offset=0, max_offset=3)


class FakeConnection:
    def __init__(self) -> None:
        self.fast_path: Any = None
        self.quick: dict[int, tuple[Any, ...]] = {}
        self.answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def take_opaque(self) -> int:
        return 5

    def send_quickly(self, frame: bytes, opaque: int, timeout_s: float) -> "asyncio.Future[Any]":
        return self.answered

    def end_quick_call(self, opaque: int) -> None:
        del self.quick[opaque]


class FakeSession:
    fills_forms = True
    max_frame_bytes = 10_000

    def __init__(self) -> None:
        self.settings = type("Settings", (), {"namespace": None})()
        self.connection = FakeConnection()
        self.retired: list[str] = []

    def writable(self, address: str) -> FakeConnection:
        return self.connection

    def retire(self, address: str, connection: FakeConnection) -> None:
        assert connection is self.connection
        self.retired.append(address)

    async def call(self, address: str, request: Any, timeout_s: float) -> PullMessageAnswer:
        return FROM_ELSEWHERE


class Bench:
    def __init__(self) -> None:
        self.session = FakeSession()
        self.pulls = QuickPulls(cast(Any, self.session), "billing")
        sample = Fetching(FakeNetwork(), "billing")._request(
            PullMessage, QUEUE, Subscription.of("Orders", "*", 0)
        )
        self.form: RequestForm[PullMessageAnswer] = RequestForm(sample, _VARYING)
        self.answered = self.session.connection.answered

    def begin(self) -> "asyncio.Task[Pulled | PullMessageAnswer]":
        connection, wanted = self.pulls.connection("a:1"), self.pulls.wanted(QUEUE)
        assert connection is not None
        assert wanted is not None
        return asyncio.create_task(self.pulls.call(connection, "a:1", self.form, (0, 2, 0), wanted, 1.5))


@pytest.fixture
async def bench() -> Bench:
    return Bench()


def refusal(code: int) -> Frame:
    return Frame(code, 5, RESPONSE_FLAG, remark="why")


async def test_a_plain_answer_is_the_result(bench: Bench) -> None:
    pulled = Pulled([], 1, 0, 1)
    bench.answered.set_result(pulled)
    assert await bench.begin() is pulled
    assert not bench.session.connection.quick


async def test_an_unusual_answer_is_decoded(bench: Bench) -> None:
    ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": "4", "minOffset": "1", "maxOffset": "4"}
    bench.answered.set_result(Frame(ResponseCode.PULL_NOT_FOUND, 5, RESPONSE_FLAG, ext=ext))
    answer = await bench.begin()
    assert isinstance(answer, PullMessageAnswer)
    assert (answer.code, answer.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, 4)


async def test_a_refusal_is_raised(bench: Bench) -> None:
    bench.answered.set_result(refusal(ResponseCode.NO_PERMISSION))
    with pytest.raises(Refused, match="why"):
        await bench.begin()
    assert bench.session.retired == []


async def test_a_broker_that_goes_away_is_asked_on_another_connection(bench: Bench) -> None:
    bench.answered.set_result(refusal(ResponseCode.GO_AWAY))
    assert await bench.begin() is FROM_ELSEWHERE
    assert bench.session.retired == ["a:1"]


async def test_no_answer_in_time_is_a_timeout_of_the_call(bench: Bench) -> None:
    bench.answered.set_exception(TimeoutError())
    with pytest.raises(CallTimeout, match=r"a:1: no answer to PullMessage in 1\.5 s"):
        await bench.begin()


async def test_a_lost_connection_is_told(bench: Bench) -> None:
    bench.answered.set_exception(ConnectionLost("a:1: gone"))
    with pytest.raises(ConnectionLost):
        await bench.begin()


async def test_a_pull_that_is_given_up_is_forgotten(bench: Bench) -> None:
    pulling = bench.begin()
    await asyncio.sleep(0)
    assert 5 in bench.session.connection.quick
    pulling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pulling
    assert not bench.session.connection.quick


async def test_queues_whose_messages_are_of_other_topics_are_not_for_this_path(bench: Bench) -> None:
    assert bench.pulls.wanted(RETRY_QUEUE) is None
    assert bench.pulls.wanted(MessageQueue("%LMQ%light", "a", 0)) is None


async def test_a_connection_is_shared_with_producers(bench: Bench) -> None:
    connection = bench.session.connection
    connection.fast_path = quick_answers(10_000)
    taken: object = bench.pulls.connection("a:1")
    assert taken is connection
    assert connection.fast_path is bench.pulls._answers


async def test_a_connection_that_others_read_is_not_for_this_path(bench: Bench) -> None:
    bench.session.connection.fast_path = object()
    assert bench.pulls.connection("a:1") is None
