"""A gRPC front under access control, attacked with hostile calls of every rpc by callers with various rights.

Its broker lets everyone do everything and notes what the front asks of it: nothing that the caller may not.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

import grpc
import grpc.aio
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from tests.support.access import ALICE, ROOT
from tests.support.front import Front, front, user
from tests.support.front_user import CLIENT_TYPES, CODES, RPCS, FrontUser
from tests.support.guarded_servers import BOB, CALLERS, RIGHTS, UNKNOWN

from pyromq.protocol.catalogue import Declaration, Request
from pyromq.protocol.requests.access import PolicyEntryInfo
from pyromq.protocol.requests.groups import GetGroupConfig
from pyromq.protocol.requests.topics import GetTopicConfig
from pyromq.proxy.messages import SERVICE
from pyromq.remoting.access.users_file import UsersFile
from pyromq.remoting.routing import Caller
from pyromq.security.users import PolicyType, User, UserRules, UserType, entry_of

TOPICS: Final = ("Orders", "Secrets")
GROUPS: Final = ("shop", "vault")
_OWN: Final = (GetTopicConfig, GetGroupConfig)
"""What the front asks to know its topics and groups."""
_ODD: Final = ("%RETRY%vault", "", " ", "*", "id-1", "a" * 300, "\x00")
_TEXTS: Final = (*TOPICS * 5, *GROUPS * 3, *_ODD)
_NUMBERS: Final = (0, 0, 1, 2, 3, 1000, 2**31 - 1)
_DEEPEST: Final = 5


def _entries() -> Any:
    rights = [right.partition(" on ") for right in RIGHTS]
    return tuple(
        entry_of(PolicyEntryInfo(resource=resource, actions=actions.split(","), decision="Allow"))
        for actions, _, resource in rights
    )


RULES: Final = UserRules(
    {
        ROOT.access_key: User(ROOT.access_key, ROOT.secret_key, UserType.SUPER),
        ALICE.access_key: User(ALICE.access_key, ALICE.secret_key),
        BOB.access_key: User(BOB.access_key, BOB.secret_key),
    },
    {BOB.access_key: {PolicyType.CUSTOM: _entries()}},
    decides=True,
)


class Noting:
    """An admission that lets everyone in."""

    def __init__(self) -> None:
        self.version = 0
        self.asked: list[tuple[Declaration, Request[Any]]] = []

    def identify(self, caller: Caller) -> None:
        pass

    def authorize(self, declaration: Declaration, request: Request[Any], caller: Caller) -> None:
        self.asked.append((declaration, request))

    def finished(self, caller: Caller, declaration: Declaration, code: int) -> None:
        pass


class GuardedFront:
    def __init__(self, running: Front, noting: Noting) -> None:
        self._running = running
        self._noting = noting

    async def attack(self, random: Random, caller: str) -> int:
        """One hostile call of every rpc, and some decent ones; how many were made."""
        who = CALLERS[caller]
        self._noting.asked.clear()
        async with user(self._running.target, random.choice(("id-1", "id-2"))) as client:
            if who is not None:
                client.sign(who.access_key, who.secret_key)
            requests = [(name, hostile_message(rpc.request_type, random)) for name, rpc in RPCS.items()]
            requests += decent_requests(client, random)
            calls = [_call(client, *each, caller not in UNKNOWN) for each in requests]
            answers = await asyncio.gather(*calls)
        if caller in UNKNOWN:
            assert {*answers} <= {"UNAUTHORIZED", "UNAUTHENTICATED", "UNIMPLEMENTED"}, answers
        for declaration, request in self._noting.asked:
            if not isinstance(request, _OWN):
                for need in declaration.needs_of(request):
                    name = "" if who is None else who.access_key
                    assert RULES.decide(name, need, "127.0.0.1").is_allowed, (caller, request)
        if caller != "administrator":
            membership = self._running.proxy._membership
            assert membership is not None
            assert not membership.publishers("Secrets")
        return len(answers)


async def _call(client: FrontUser, name: str, request: Any, is_known: bool) -> str:
    """The status of the first answer, or of the end."""
    rpc, path = RPCS[name], f"/{SERVICE}/{name}"
    read, write = rpc.answer_type.FromString, rpc.request_type.SerializeToString
    options: dict[str, Any] = {"metadata": client.metadata, "timeout": 5}
    channel = client._channel
    try:
        if rpc.has_request_stream:
            return await _stream(channel.stream_stream(path, write, read)(**options), request, is_known)
        if rpc.has_answer_stream:
            first, *_ = [each async for each in channel.unary_stream(path, write, read)(request, **options)]
        else:
            first = await channel.unary_unary(path, write, read)(request, **options)
    except grpc.aio.AioRpcError as problem:
        return str(problem.code().name)
    return CODES[first.status.code]


async def _stream(stream: Any, request: Any, is_known: bool) -> str:
    try:
        if is_known:  # the stream of anybody else ends at once; a write at this moment would hide why
            await stream.write(request)
            await stream.done_writing()
        first = await stream.read()
        if first is not grpc.aio.EOF:
            return CODES[first.status.code]
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass
    return str((await stream.code()).name)


def decent_requests(client: FrontUser, random: Random) -> list[tuple[str, Any]]:
    """Those that are nearly never found by chance."""
    topic, group = {"name": random.choice(TOPICS)}, {"name": random.choice(GROUPS)}
    producer = {"client_type": CLIENT_TYPES["PRODUCER"], "publishing": {"topics": [topic]}}
    subscription = {"group": group, "subscriptions": [{"topic": topic, "expression": {"expression": "*"}}]}
    consumer = {"client_type": CLIENT_TYPES["SIMPLE_CONSUMER"], "subscription": subscription}
    described: list[tuple[str, dict[str, Any]]] = [
        ("Telemetry", {"settings": random.choice((producer, consumer))}),
        ("SendMessage", {"messages": [client.message(topic["name"])]}),
        (
            "ReceiveMessage",
            {
                "group": group,
                "message_queue": {"topic": topic},
                "batch_size": 1,
                "invisible_duration": {"seconds": 30},
                "filter_expression": {"expression": "*", "type": 1},
                "long_polling_timeout": {"nanos": 1_000_000},
            },
        ),
        ("QueryAssignment", {"topic": topic, "group": group}),
    ]
    return [(name, RPCS[name].request_type(**fields)) for name, fields in described]


def hostile_message(kind: Any, random: Random, depth: int = 0) -> Any:
    """A message of this type, most of its fields set to something odd."""
    made = kind()
    chosen = {each.name: random.choice(list(each.fields)).name for each in kind.DESCRIPTOR.oneofs}
    for field in kind.DESCRIPTOR.fields:
        one_of = field.containing_oneof
        if one_of is not None and chosen[one_of.name] != field.name:
            continue
        if random.random() < 0.2 or depth == _DEEPEST:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(made, field.name)["key"] = random.choice(_TEXTS)
        elif field.is_repeated:
            for _ in range(random.randrange(3)):
                value = _value(field, random, depth)
                getattr(made, field.name).append(value)
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(_value(field, random, depth))
        else:
            setattr(made, field.name, _value(field, random, depth))
    return made


def _value(field: FieldDescriptor, random: Random, depth: int) -> Any:
    if field.message_type is not None:
        return hostile_message(GetMessageClass(field.message_type), random, depth + 1)
    if field.enum_type is not None:
        return random.choice(list(field.enum_type.values)).number
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return random.random() < 0.5
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        text = random.choice(_TEXTS)
        return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    return random.choice(_NUMBERS)


@asynccontextmanager
async def guarded_front(directory: Path) -> AsyncIterator[GuardedFront]:
    """It knows the administrator, a user without rights, and a customer of the topic Orders."""
    UsersFile(directory).save(RULES)
    settings = {
        "deny_by_default": True,
        "auth_config_path": directory,
        "min_polling_ms": 1,
        "max_polling_ms": 1,
        "send_timeout_ms": 3000,
    }
    noting = Noting()
    with patch("pyromq.proxy.clients._SETTINGS_WAIT_S", 0.01):
        async with front(settings=settings) as running:
            running.cluster.broker._started.server._group.admission = noting
            for topic in TOPICS:
                await running.create_topic(topic)
            yield GuardedFront(running, noting)
