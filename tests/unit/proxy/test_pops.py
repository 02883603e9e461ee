"""Pops whose client gave up: the next receive goes on with them, and only what nobody takes is given back."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from pyromq.clock import SystemClock
from pyromq.errors import ConnectionLost
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.popping import PopMessage, PopMessageAnswer
from pyromq.proxy.pops import AnyPop, AnyPopAnswer, Pops


class Brokers:
    """Answers a pop when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[PopMessage, asyncio.Future[PopMessageAnswer]]] = []
        self.given_back: list[AnyPopAnswer] = []

    async def call(self, client: Any, broker_name: str, pop: PopMessage, timeout_s: float) -> Any:
        answer: asyncio.Future[PopMessageAnswer] = asyncio.get_running_loop().create_future()
        self.asked.append((pop, answer))
        return await answer

    def give_back(self, answer: AnyPopAnswer, broker_name: str, pop: AnyPop) -> None:
        self.given_back.append(answer)


def answer(code: ResponseCode = ResponseCode.SUCCESS) -> PopMessageAnswer:
    return PopMessageAnswer(code=code)


def pop(**fields: Any) -> PopMessage:
    chosen = {"poll_time": 60_000, "exp": "*", "max_msg_nums": 32, "invisible_time": 1000} | fields
    return PopMessage(
        consumer_group="billing", topic="Orders", queue_id=-1, born_time=0, init_mode=1, **cast(Any, chosen)
    )


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
async def pops(brokers: Brokers) -> AsyncIterator[Pops]:
    waiting = Pops(cast(Any, brokers), brokers.give_back, SystemClock(), 1.0)
    yield waiting
    for _, answered in brokers.asked:
        answered.cancel()
    await asyncio.sleep(0)
    await waiting.close()


async def begun(pops: Pops, asked: PopMessage) -> "asyncio.Task[AnyPopAnswer | None]":
    calling = asyncio.create_task(pops.call(cast(Any, "client"), "broker-a", asked))
    await _a_few_turns()
    return calling


async def _a_few_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def give_up(pops: Pops, asked: PopMessage) -> None:
    calling = await begun(pops, asked)
    calling.cancel()
    await asyncio.wait([calling])


async def test_a_client_that_gives_up_again_and_again_leaves_one_pop(pops: Pops, brokers: Brokers) -> None:
    for _ in range(20):
        await give_up(pops, pop())
    assert (len(pops), len(brokers.asked)) == (1, 1)
    calling = await begun(pops, pop())
    brokers.asked[0][1].set_result(found := answer())
    assert await calling is found
    assert not brokers.given_back


async def test_another_client_of_the_group_goes_on_as_well(pops: Pops, brokers: Brokers) -> None:
    await give_up(pops, pop())
    calling = asyncio.create_task(pops.call(cast(Any, "another client"), "broker-a", pop()))
    await _a_few_turns()
    brokers.asked[0][1].set_result(found := answer())
    assert await calling is found


async def test_what_nobody_takes_is_given_back(pops: Pops, brokers: Brokers) -> None:
    await give_up(pops, pop())
    brokers.asked[0][1].set_result(found := answer())
    await _a_few_turns()
    assert brokers.given_back == [found]


@pytest.mark.parametrize("other", [{"exp": "Paid"}, {"invisible_time": 5}, {"max_msg_nums": 1}])
async def test_a_receive_of_another_kind_has_a_pop_of_its_own(
    pops: Pops, brokers: Brokers, other: dict[str, Any]
) -> None:
    await give_up(pops, pop())
    await begun(pops, pop(**other))
    assert len(brokers.asked) == 2


async def test_the_same_attempt_goes_on_before_others_do(pops: Pops, brokers: Brokers) -> None:
    calls = [await begun(pops, pop(order=True, attempt_id=each)) for each in ("one", "two")]
    for each in calls:
        each.cancel()
    second = await begun(pops, pop(order=True, attempt_id="two"))
    first = await begun(pops, pop(order=True, attempt_id="three"))
    for (_, answered), calling in zip(brokers.asked, (first, second), strict=True):
        answered.set_result(found := answer())
        assert await calling is found


async def test_the_time_of_a_receive_counts_and_not_that_of_the_pop(pops: Pops, brokers: Brokers) -> None:
    await give_up(pops, pop())
    assert await (await begun(pops, pop(poll_time=1))) is None
    assert (len(pops), len(brokers.asked)) == (1, 1)


@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_pop_that_ends_without_messages_is_followed_by_another(
    pops: Pops, brokers: Brokers, is_lost: bool
) -> None:
    await give_up(pops, pop())
    calling = await begun(pops, pop())
    if is_lost:
        brokers.asked[0][1].set_exception(ConnectionLost("gone"))
    else:
        brokers.asked[0][1].set_result(answer(ResponseCode.POLLING_TIMEOUT))
    await _a_few_turns()
    brokers.asked[1][1].set_result(found := answer())
    assert await calling is found
    assert 0 < brokers.asked[1][0].poll_time <= 60_000
