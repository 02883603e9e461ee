"""Whatever servers answer, functions for operators return or raise an error of ours, and end."""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect as types
from tests.support.chance import examples

from pyromq.admin import (
    access,
    brokers,
    connections,
    exports,
    groups,
    kv,
    messages,
    name_servers,
    offsets,
    progress,
    throughput,
    topics,
    traces,
    tracks,
)
from pyromq.admin.cluster import Cluster
from pyromq.errors import CallTimeout, PyroError, Refused
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import Answer, Request, declaration_of, decode_answer, encode_answer
from pyromq.protocol.frame import Frame
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.needs import PUB, Need, ResourceType
from pyromq.protocol.record import StoredMessage, encode_record
from pyromq.protocol.requests.access import AclInfo, UserInfo
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.popping import SetMessageRequestModeRequestBody
from pyromq.protocol.requests.routes import BrokerData, TopicRouteData
from pyromq.protocol.requests.topics import TopicConfig

A = TypeVar("A", bound=Answer)

MODULES = (
    access,
    brokers,
    connections,
    exports,
    groups,
    kv,
    messages,
    name_servers,
    offsets,
    progress,
    throughput,
    topics,
    traces,
    tracks,
)
FUNCTIONS = [
    function
    for module in MODULES
    for name, function in vars(module).items()
    if not name.startswith("_")
    and (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function))
    and function.__module__ == module.__name__
]
PLACE = "7F00000100002A9F0000000000000001"
STORED = StoredMessage("Orders", b"hello", queue_offset=5)
ARGUMENTS: dict[str, Any] = {
    "address": "a:1",
    "addresses": ["a:1"],
    "broker_name": "broker-a",
    "client_id": "me",
    "cluster_name": "c",
    "group": "billing",
    "key": "key",
    "message": STORED,
    "message_id": PLACE,
    "name": "Orders",
    "name_server": "n:1",
    "namespace": "shop",
    "offset": 5,
    "with_offsets": True,
    "unique_key": PLACE,
    "route": TopicRouteData(broker_datas=[BrokerData(broker_name="broker-a", broker_addrs={0: "a:1"})]),
    "permission": 6,
    "place": decode_offset_message_id(PLACE),
    "properties": {"TAGS": "a"},
    "queue": MessageQueue("Orders", "broker-a", 0),
    "queue_id": 0,
    "queues": 4,
    "source": "billing",
    "target": "paying",
    "timestamp_ms": 0,
    "topic": "Orders",
    "value": "value",
    "wanted": ["Orders"],
    "count": 3,
    "size_bytes": 8,
    "body": b"hello",
    "index": 0,
    "begin": 0,
    "end": 9,
    "is_on": True,
    "is_drained": True,
    "mode": SetMessageRequestModeRequestBody(topic="Orders", consumer_group="billing"),
    "subject": "User:alice",
    "resource": "Topic:Orders",
    "access_key": "account",
    "path": None,
    "need": Need((PUB,), ResourceType.TOPIC, "Orders"),
    "source_ip": "10.0.0.1",
}
SPECIAL_ARGUMENTS: dict[Callable[..., Any], dict[str, Any]] = {
    access.create_user: {"info": UserInfo(password="secret")},
    access.update_user: {"info": UserInfo()},
    access.create_acl: {"info": AclInfo()},
    access.update_acl: {"info": AclInfo()},
    access.set_trusted_addresses: {"addresses": "10.0.0.1"},
    groups.put: {"config": SubscriptionGroupConfig(group_name="billing")},
    groups.put_many: {"wanted": [SubscriptionGroupConfig(group_name="billing")]},
    topics.put: {"wanted": TopicConfig(topic_name="Orders")},
    topics.put_many: {"wanted": [TopicConfig(topic_name="Orders")]},
}
MAX_QUESTIONS = 400
"""A function that asks more often after answers that are so small goes round in a circle."""

TEXTS = st.sampled_from(
    (
        "Orders",
        "broker-a",
        "c",
        "a:1",
        "billing",
        "me",
        "",
        "5",
        "-1",
        "0",
        "key",
        PLACE,
        "%RETRY%billing",
        "é\x01",
    )
)
BYTES = st.sampled_from((b"", b"garbage", encode_record(STORED), encode_record(STORED)[:-1], b"a=b\n=\nc"))


def values(described: types.Type) -> st.SearchStrategy[Any]:
    """Of the declared type, often with names that are asked about, and often absurd."""
    match described:
        case types.BoolType():
            return st.booleans()
        case types.IntType(ge=least, le=most):
            return st.sampled_from((0, 1, 5, 6, -1)) | st.sampled_from((least or 0, most or 0))
        case types.FloatType():
            return st.sampled_from((0.0, -1.0, float("inf"), float("nan"), 1e308))
        case types.StrType():
            return TEXTS
        case types.BytesType():
            return BYTES
        case types.EnumType(cls=members):
            return st.sampled_from(list(members))
        case types.StructType(cls=inner):
            return structs(inner)
        case types.ListType(item_type=item):
            return st.lists(values(item), max_size=2)
        case types.SetType(item_type=item):
            return st.sets(values(item), max_size=2)
        case types.DictType(key_type=key, value_type=value):
            return st.dictionaries(values(key), values(value), max_size=2)
        case types.UnionType(types=choices):
            return st.one_of(*map(values, choices))
        case types.NoneType():
            return st.none()
    raise TypeError(f"no strategy is known for {described}")


@cache
def structs(type_: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    described = types.type_info(type_)
    assert isinstance(described, types.StructType)
    fields = {field.name: values(field.type) for field in described.fields}
    return st.fixed_dictionaries(fields).map(lambda drawn: type_(**drawn))


class HostileCluster(Cluster):
    """Every question is answered by chance."""

    def __init__(self, data: st.DataObject) -> None:
        super().__init__("n:1")
        self._data = data
        self.questions = 0

    async def ask(self, address: str, request: Request[A], timeout_s: float | None = None) -> A:
        self.questions += 1
        assert self.questions < MAX_QUESTIONS, "asked without end"
        declaration = declaration_of(type(request))
        turn = self._data.draw(st.integers(0, 9))
        if turn == 0:
            raise Refused(self._data.draw(st.sampled_from((1, 17, 22, 25, 206))), "no")
        if turn == 1:
            raise CallTimeout(f"{address}: no answer")
        answer = self._data.draw(structs(declaration.answer_type))
        answer.code = self._data.draw(st.sampled_from(sorted(declaration.accepts)))
        return decode_answer(type(request), encode_answer(declaration, answer, Frame(0)))


def arguments_for(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    known = ARGUMENTS | SPECIAL_ARGUMENTS.get(function, {})
    return {each.name: known[each.name] for each in parameters if each.default is each.empty}


@pytest.mark.parametrize(
    "function", FUNCTIONS, ids=lambda each: f"{each.__module__.rpartition('.')[2]}.{each.__name__}"
)
@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_whatever_is_answered_operators_get_a_result_or_an_error_of_ours(
    function: Callable[..., Any], data: st.DataObject
) -> None:
    async def work() -> None:
        called = function(HostileCluster(data), **arguments_for(function))
        if isinstance(called, AsyncIterator):
            async for _ in called:
                pass
        else:
            await called

    with contextlib.suppress(PyroError):
        asyncio.run(work())
