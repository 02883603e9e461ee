"""What brokers say about topics and groups: whom the front asks when some do not answer, or do not know."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyromq.clock import SystemClock
from pyromq.errors import ConnectFailed, Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.proxy.topics import FIFO, ProxyTopics

GONE = ConnectFailed("gone")
UNKNOWN = Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "unknown")
ORDERLY = SubscriptionGroupConfig(group_name="billing", consume_message_orderly=True)


class Brokers:
    """Each answers, or raises, the same to every question."""

    def __init__(self, *answers: Any) -> None:
        self._answers = answers

    async def route(self, topic: str) -> str:
        return topic

    def addresses_of(self, route: str) -> list[int]:
        return list(range(len(self._answers)))

    async def addresses(self) -> list[int]:
        return self.addresses_of("")

    async def call_address(self, address: int, request: Any) -> Any:
        answer = self._answers[address]
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(body=answer)


def topics_at(*answers: Any) -> ProxyTopics:
    return ProxyTopics(cast(Any, Brokers(*answers)), SystemClock(), 20)


async def test_the_type_of_a_topic_is_known_while_one_of_its_brokers_answers() -> None:
    topic = SimpleNamespace(attributes={"message.type": FIFO})
    assert await topics_at(GONE, topic).type_of("Orders") == FIFO
    with pytest.raises(ConnectFailed):
        await topics_at(GONE, GONE).type_of("Orders")


@pytest.mark.parametrize("first", [GONE, UNKNOWN], ids=["does not answer", "does not know it"])
async def test_the_settings_of_a_group_come_from_a_broker_that_has_it(first: Exception) -> None:
    assert await topics_at(first, ORDERLY).group("billing") is ORDERLY


async def test_a_group_that_no_broker_has_gets_the_defaults() -> None:
    assert not (await topics_at(UNKNOWN, GONE).group("billing")).consume_message_orderly
    with pytest.raises(ConnectFailed):
        await topics_at(GONE).group("billing")
