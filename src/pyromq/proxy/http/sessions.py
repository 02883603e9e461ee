"""Sessions: a lite topic that a writer appends to, and that readers tail from any offset on.

The place of a reader is the offset of the last message that it has; the front keeps nothing of a session. A
reader that comes back, to this front or to another one, names its place and continues there. Writers take
turns by epochs: whoever claims a session has the next one, and the broker refuses appends of those before.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from pyromq.client.consumer.reading.fetching import Fetching, PullLimits
from pyromq.client.consumer.reading.subscriptions import Subscription
from pyromq.client.values import MessageQueue
from pyromq.cluster.sending.choice import queue_of_lite_topic
from pyromq.cluster.sending.request import PreparedMessage, SendForms
from pyromq.errors import NoRoute, PyroError, Refused, RemoteProtocolError, TransportError
from pyromq.protocol import properties as props
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import TOOLS_GROUP, lite_queue
from pyromq.protocol.needs import DELETE, PUB, SUB, Action, ResourceType, need_of
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.requests.lite import GetLiteTopicInfo, GetParentTopicInfo
from pyromq.protocol.requests.topics import DeleteTopicFromBroker
from pyromq.proxy.checks import check_body, check_lite_topic, check_topic
from pyromq.proxy.context import FrontContext
from pyromq.proxy.http.app import Answered, Asked, HttpApp, http_error
from pyromq.proxy.http.bodies import read_body, shown_body
from pyromq.proxy.http.exchange import Exchange, Headers
from pyromq.proxy.http.identity import Grant, HttpAccess, HttpCaller
from pyromq.proxy.http.problems import HttpError
from pyromq.proxy.http.websocket import WebSocket
from pyromq.proxy.sending import TERMS
from pyromq.proxy.topics import LITE

CLAIM, STOP, END = "claim", "stop", "end"
_SIGNALS: Final = (CLAIM, STOP)
"""Kinds of messages that take the session from its writer."""
_KIND: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_PROTOCOL: Final = "pyromq"
_MAX_READ: Final = 256
_MAX_WAIT_S: Final = 20.0
_CLAIM_ATTEMPTS: Final = 8
_RETRY_S: Final = 0.5
_MAX_NUMBER: Final = 2**63 - 1
_EVENTS: Final[Headers] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]


class SessionMessage(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    offset: int
    stored_ms: int
    text: str | None = None
    """The body, if it is UTF-8; else `base64` has it."""
    base64: str | None = None
    epoch: int = 0
    kind: str | None = None


class SessionMoved(msgspec.Struct, frozen=True):
    """The session does not have what a reader asked for: it continues elsewhere."""

    asked: int
    next: int


class Append(msgspec.Struct, frozen=True, rename="camel"):
    """A WebSocket's request to append a message."""

    text: str | None = None
    base64: str | None = None
    epoch: int = 0
    expected_offset: int | None = None
    kind: str | None = None


class _Command(msgspec.Struct, frozen=True):
    id: int = 0
    append: Append | None = None
    claim: dict[str, Any] | None = None
    stop: dict[str, Any] | None = None


class _TokenRequest(msgspec.Struct, frozen=True, rename="camel"):
    topic: str
    session: str
    may_append: bool = False
    seconds: int = 3600


class _Place(msgspec.Struct, frozen=True):
    """A session, and where its messages are."""

    topic: str
    session: str
    queue: MessageQueue
    """The queue of the parent topic that its messages go to."""

    @property
    def light_queue(self) -> MessageQueue:
        name = lite_queue(self.topic, self.session)
        return MessageQueue(topic=name, broker_name=self.queue.broker_name, queue_id=0)


class HttpSessions:
    def __init__(self, context: FrontContext, access: HttpAccess, app: HttpApp) -> None:
        self._cluster = context.cluster
        self._session = context.cluster.session
        self._topics = context.topics
        self._clock = context.clock
        self._settings = context.settings
        self._access = access
        self._app = app
        self._forms = SendForms(TERMS)
        ping_s = context.settings.http_ping_seconds
        limits = PullLimits(
            messages=64, suspend_s=ping_s, timeout_s=ping_s + context.settings.send_timeout_ms / 1000
        )
        self._fetching = Fetching(self._session, TOOLS_GROUP, is_lite=True, limits=limits)
        path = "v1/sessions/*/*"
        app.add("GET", path, self.look)
        app.add("DELETE", path, self.delete)
        app.add("GET", f"{path}/messages", self.read)
        app.add("POST", f"{path}/messages", self.append)
        app.add("GET", f"{path}/events", self.events)
        for method in ("GET", "CONNECT"):
            app.add(method, f"{path}/socket", self.socket)
        app.add("POST", f"{path}/claim", self.claim)
        app.add("POST", f"{path}/stop", self.stop)
        app.add("POST", "v1/tokens", self.issue_token)

    def __repr__(self) -> str:
        return f"<HttpSessions {self._fetching!r}>"

    # Who may do what, and where

    def _admit(
        self, exchange: Exchange, asked: Asked, right: Action, *, socket: WebSocket | None = None
    ) -> tuple[str, str, HttpCaller]:
        """The parent topic and the session. Nothing is looked up before: an error would say what exists."""
        caller = self._access.identify(exchange.head, socket.protocols if socket is not None else ())
        topic, session = check_topic(asked[0]), check_lite_topic(asked[1], self._settings)
        self._authorize(caller, topic, session, right)
        return topic, session, caller

    def _authorize(self, caller: HttpCaller, topic: str, session: str, right: Action) -> None:
        need = need_of((right,), ResourceType.TOPIC, topic)
        self._access.authorize(caller, (need,), (topic, session), appends=right != SUB)

    async def _place(self, topic: str, session: str) -> _Place:
        if await self._topics.type_of(topic) != LITE:
            raise HttpError(400, f"the topic {topic} has no sessions: it is not of the type LITE")
        queues = (await self._cluster.route(topic)).publish_queues
        if not queues:
            raise NoRoute(topic, self._cluster.name_servers)
        return _Place(topic, session, queue_of_lite_topic(queues, session))

    # Reading

    async def look(self, exchange: Exchange, asked: Asked) -> Answered:
        topic, session, _ = self._admit(exchange, asked, SUB)
        place = await self._place(topic, session)
        first, following, changed_ms = await self._bounds(place)
        epoch, kind = await self._last(place, following)
        parent = (await self._ask(place, GetParentTopicInfo(topic=topic))).body
        return Answered(
            200,
            {
                "topic": topic,
                "session": session,
                "first": first,
                "next": following,
                "epoch": epoch,
                "hasEnded": kind == END,
                "changedMs": changed_ms,
                "expiresAfterMinutes": parent.ttl,
            },
        )

    async def _ask(self, place: _Place, request: Any) -> Any:
        return await self._cluster.call(place.queue.broker_name, request, None)

    async def _bounds(self, place: _Place) -> tuple[int, int, int]:
        """The first offset, the next one, and the time of the last message."""
        request = GetLiteTopicInfo(parent_topic=place.topic, lite_topic=place.session)
        found = (await self._ask(place, request)).body.topic_offset
        if found is None:
            return 0, 0, 0
        return max(found.min_offset, 0), max(found.max_offset, 0), max(found.last_update_timestamp, 0)

    async def _last(self, place: _Place, following: int) -> tuple[int, str | None]:
        """Epoch and kind of the last message."""
        if not following:
            return 0, None
        found, _ = await self._pull(place, following - 1)
        return (found[-1].epoch, found[-1].kind) if isinstance(found, list) and found else (0, None)

    async def _pull(self, place: _Place, offset: int) -> tuple[list[SessionMessage] | SessionMoved, int]:
        """The next messages, and where to continue. It waits if there are none."""
        name = lite_queue(place.topic, place.session)
        pulled = await self._fetching.pull(place.light_queue, _everything(name), offset)
        if pulled.is_moved:
            following = pulled.min_offset if offset > pulled.max_offset else pulled.next_offset
            return SessionMoved(offset, following), following
        messages = [_message(each.stored, name) for each in pulled.messages]
        return messages, pulled.next_offset

    async def read(self, exchange: Exchange, asked: Asked) -> Answered:
        topic, session, _ = self._admit(exchange, asked, SUB)
        query = exchange.head.query
        limit = _whole(query.get("limit"), "limit", _MAX_READ) or _MAX_READ
        wait_s = min(float(_whole(query.get("waitSeconds"), "waitSeconds", 3600) or 0), _MAX_WAIT_S)
        place = await self._place(topic, session)
        first, following, _ = await self._bounds(place)
        offset = _start(exchange, first, following)
        found: list[SessionMessage] | SessionMoved = []
        if offset != following or wait_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s if offset == following else None):
                    found, _ = await self._pull(place, offset)
        if isinstance(found, SessionMoved):
            raise HttpError(
                410, f"the session does not have the offset {offset}", first=first, next=following
            )
        messages = found[:limit]
        goes_on = messages[-1].offset + 1 if messages else offset
        return Answered(200, {"messages": messages, "next": goes_on})

    async def _follow(
        self, topic: str, session: str, offset: int
    ) -> AsyncIterator[list[SessionMessage] | SessionMoved]:
        """The messages of a session from an offset on, for ever; empty lists while there are none.

        A broker that cannot be reached is asked again: the reader keeps its place.
        """
        while True:
            try:
                found, offset = await self._pull(await self._place(topic, session), offset)
            except (TransportError, NoRoute, RemoteProtocolError):
                found = []
                await asyncio.sleep(_RETRY_S)
            except Refused as refusal:
                if refusal.code not in _PASSING:
                    raise
                found = []
                await asyncio.sleep(_RETRY_S)
            yield found

    async def events(self, exchange: Exchange, asked: Asked) -> Answered | None:
        topic, session, caller = self._admit(exchange, asked, SUB)
        as_text = {"text": True, "json": False}.get(exchange.head.query.get("format", "json"))
        if as_text is None:
            raise HttpError(400, "format is neither json nor text")
        place = await self._place(topic, session)
        first, following, _ = await self._bounds(place)
        offset = _start(exchange, first, following)
        if 0 < offset == following and (await self._last(place, following))[1] == END:
            return Answered(204)  # a browser does not come back after this
        await exchange.begin(200, [*_EVENTS, *self._app.headers_for(exchange.head)])
        await exchange.write(b": from %d\n\n" % offset)
        async for found in self._follow(topic, session, offset):
            if self._is_revoked(exchange, caller, topic, session):
                break
            await exchange.write(_events(found, as_text))
            if isinstance(found, list) and found and found[-1].kind == END:
                break
        exchange.end()
        return None

    def _is_revoked(self, exchange: Exchange, caller: HttpCaller, topic: str, session: str) -> bool:
        """Whether a reader may not read any more: its token is over, or the rules have changed."""
        if caller.grant is not None and caller.grant.until_ms < self._clock.now_ms():
            return True
        try:
            if caller.grant is None:
                self._access.identify(exchange.head)
            self._authorize(caller, topic, session, SUB)
        except HttpError:
            return True
        return False

    # Writing

    async def append(self, exchange: Exchange, asked: Asked) -> Answered:
        topic, session, _ = self._admit(exchange, asked, PUB)
        headers = exchange.head.headers
        epoch = _whole(headers.get("session-epoch"), "Session-Epoch", _MAX_NUMBER) or 0
        expected = _whole(headers.get("expected-offset"), "Expected-Offset", _MAX_NUMBER)
        kind = _checked_kind(headers.get("session-kind"))
        body = await exchange.body.read()
        return Answered(201, await self._append(topic, session, body, epoch, expected, kind))

    async def _append(
        self, topic: str, session: str, body: bytes, epoch: int, expected: int | None, kind: str | None
    ) -> dict[str, Any]:
        if not body and kind is not None:
            body = kind.encode()  # brokers take no message without a body
        check_body(body, self._settings)
        place = await self._place(topic, session)
        key = self._session.unique_keys.next(self._clock.now_ms())
        properties = encode_properties(
            {
                props.UNIQ_KEY: key,
                props.PRODUCER_GROUP: topic,
                props.WAIT: "true",
                props.LITE_TOPIC: session,
                props.LITE_EPOCH: str(epoch),
                props.LITE_OFFSET: None if expected is None else str(expected),
                props.LITE_KIND: kind,
            }
        )
        message = PreparedMessage(topic, body, properties, key, self._clock.now_ms())
        request = self._forms.request(message, place.queue.queue_id)
        answer = await self._ask(place, request)
        if answer.code != ResponseCode.SUCCESS:
            name = ResponseCode(answer.code).name
            raise HttpError(503, f"the message is stored, but not as safely as it should be: {name}")
        return {"offset": answer.lite_offset, "epoch": epoch, "messageId": key}

    async def claim(self, exchange: Exchange, asked: Asked) -> Answered:
        return Answered(201, await self._signal(exchange, asked, CLAIM))

    async def stop(self, exchange: Exchange, asked: Asked) -> Answered:
        return Answered(201, await self._signal(exchange, asked, STOP))

    async def _signal(self, exchange: Exchange, asked: Asked, kind: str) -> dict[str, Any]:
        topic, session, _ = self._admit(exchange, asked, PUB)
        return await self._take(topic, session, await exchange.body.read(), kind)

    async def _take(self, topic: str, session: str, body: bytes, kind: str) -> dict[str, Any]:
        """Begin a new epoch. Others may do so at the same time: each gets its own."""
        for _ in range(_CLAIM_ATTEMPTS):
            place = await self._place(topic, session)
            _, following, _ = await self._bounds(place)
            epoch, _ = await self._last(place, following)
            try:
                return await self._append(topic, session, body, epoch + 1, following, kind)
            except Refused as refusal:
                if refusal.code not in (ResponseCode.LITE_FENCED, ResponseCode.LITE_OFFSET_TAKEN):
                    raise
        raise HttpError(503, f"others append to the session {session} all the time; try again")

    async def delete(self, exchange: Exchange, asked: Asked) -> Answered:
        topic, session, _ = self._admit(exchange, asked, DELETE)
        place = await self._place(topic, session)
        if not (await self._bounds(place))[1]:
            raise HttpError(404, f"the topic {topic} has no session {session}")
        await self._ask(place, DeleteTopicFromBroker(topic=lite_queue(topic, session)))
        return Answered(204)

    # Both, on one connection

    async def socket(self, exchange: Exchange, asked: Asked) -> None:
        socket = exchange.socket()
        if socket is None:
            raise HttpError(426, "this path is a WebSocket")
        topic, session, caller = self._admit(exchange, asked, SUB, socket=socket)
        first, following, _ = await self._bounds(await self._place(topic, session))
        offset = _start(exchange, first, following)
        await socket.accept(_PROTOCOL if _PROTOCOL in socket.protocols else None)

        def is_revoked() -> bool:
            return self._is_revoked(exchange, caller, topic, session)

        sending = asyncio.create_task(self._send_messages(socket, topic, session, offset, is_revoked))
        try:
            while (text := await socket.receive()) is not None:
                await socket.send(
                    msgspec.json.encode(await self._obey(text, caller, topic, session)).decode()
                )
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError, PyroError):
                await sending

    async def _send_messages(
        self, socket: WebSocket, topic: str, session: str, offset: int, is_revoked: Callable[[], bool]
    ) -> None:
        try:
            async for found in self._follow(topic, session, offset):
                if is_revoked():
                    await socket.close(1008, "the credentials are not valid any more")
                    return
                if isinstance(found, SessionMoved):
                    await socket.send(msgspec.json.encode({"moved": found}).decode())
                    continue
                for message in found:
                    await socket.send(msgspec.json.encode({"message": message}).decode())
                if not found:
                    await socket.ping()
        except PyroError as problem:
            await socket.close(1011, str(problem))

    async def _obey(self, text: str, caller: HttpCaller, topic: str, session: str) -> dict[str, Any]:
        """Do what a message of a WebSocket asks for; returns the answer."""
        number = 0
        try:
            try:
                command = msgspec.json.decode(text, type=_Command)
            except msgspec.MsgspecError as problem:
                raise HttpError(400, f"the message cannot be understood: {problem}") from None
            number = command.id
            self._authorize(caller, topic, session, PUB)
            if command.append is not None:
                asked = command.append
                kind = _checked_kind(asked.kind)
                if asked.epoch < 0 or (asked.expected_offset or 0) < 0:
                    raise HttpError(400, "epoch and expectedOffset must not be negative")
                done = await self._append(
                    topic, session, _body(asked), asked.epoch, asked.expected_offset, kind
                )
            elif command.claim is not None or command.stop is not None:
                done = await self._take(topic, session, b"", CLAIM if command.claim is not None else STOP)
            else:
                raise HttpError(400, "expected append, claim or stop")
        except PyroError as problem:
            error = http_error(problem)
            return {"id": number, "error": {"status": error.status, "message": str(error)}}
        return {"id": number, "done": done}

    # Tokens

    async def issue_token(self, exchange: Exchange, _: Asked) -> Answered:
        caller = self._access.identify(exchange.head)
        if caller.grant is not None:
            raise HttpError(403, "a token does not give another one")
        try:
            wanted = msgspec.json.decode(await exchange.body.read(), type=_TokenRequest)
        except msgspec.MsgspecError as problem:
            raise HttpError(400, f"the body is not as expected: {problem}") from None
        longest = self._settings.http_token_max_seconds
        if not 1 <= wanted.seconds <= longest:
            raise HttpError(400, f"seconds is {wanted.seconds}, expected 1 to {longest}")
        topic, session = check_topic(wanted.topic), check_lite_topic(wanted.session, self._settings)
        for right in (SUB, PUB) if wanted.may_append else (SUB,):
            self._authorize(caller, topic, session, right)
        until_ms = self._clock.now_ms() + wanted.seconds * 1000
        token = self._access.issue(Grant(caller.user, topic, session, wanted.may_append, until_ms))
        return Answered(201, {"token": token, "untilMs": until_ms})


_PASSING: Final = frozenset(
    (
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
        ResponseCode.TOPIC_NOT_EXIST,
    )
)
"""Refusals of a broker that starts, stops, or is not the master any more."""


def _everything(topic: str) -> Subscription:
    return Subscription.of(topic, "*", 0)


def _message(stored: Any, light_queue: str) -> SessionMessage:
    """Its place in the session is among those that it has in light queues."""
    names = (stored.get(props.INNER_MULTI_DISPATCH) or "").split(",")
    offsets = (stored.get(props.INNER_MULTI_QUEUE_OFFSET) or "").split(",")
    place = next((each for name, each in zip(names, offsets, strict=False) if name == light_queue), "")
    if not place.isdecimal():
        raise RemoteProtocolError(f"a message of {light_queue} does not say its offset there")
    epoch = stored.get(props.LITE_EPOCH) or "0"
    text, closed = shown_body(stored.body)
    return SessionMessage(
        int(place),
        stored.store_timestamp,
        text,
        closed,
        int(epoch) if epoch.isdecimal() else 0,
        stored.get(props.LITE_KIND),
    )


def _events(found: list[SessionMessage] | SessionMoved, as_text: bool) -> bytes:
    """As server-sent events. A comment keeps connections open, and finds out whether the reader is there."""
    if isinstance(found, SessionMoved):
        return b"event: moved\ndata: " + msgspec.json.encode(found) + b"\n\n"
    if not found:
        return b": \n\n"
    parts: list[bytes] = []
    for message in found:
        parts.append(b"id: %d\n" % message.offset)
        if message.kind is not None and _KIND.fullmatch(message.kind):
            parts.append(b"event: %s\n" % message.kind.encode())
        if as_text:
            shown = message.text if message.text is not None else message.base64 or ""
            # These end a line there, whichever it was here.
            lines = shown.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            parts += [b"data: " + line.encode() + b"\n" for line in lines]
        else:
            parts.append(b"data: " + msgspec.json.encode(message) + b"\n")
        parts.append(b"\n")
    return b"".join(parts)


def _start(exchange: Exchange, first: int, following: int) -> int:
    """Where a reader begins: behind the last message that it has, or where it asks for."""
    query = exchange.head.query
    last = exchange.head.headers.get("last-event-id") or query.get("after")
    if last is not None:
        return (_whole(last, "Last-Event-ID", _MAX_NUMBER - 1) or 0) + 1
    wanted = query.get("from", "first")
    if wanted in ("first", "end"):
        return first if wanted == "first" else following
    return _whole(wanted, "from", _MAX_NUMBER) or 0


def _whole(text: str | None, name: str, most: int) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) > most:
        raise HttpError(400, f"{name} is {text[:40]!r}, expected a whole number up to {most}")
    return int(text)


def _checked_kind(kind: str | None) -> str | None:
    if kind is None:
        return None
    if not _KIND.fullmatch(kind) or kind in _SIGNALS:
        raise HttpError(
            400,
            f"the kind {kind[:40]!r} is not allowed: expected up to 32 lower-case letters, digits, _ and -,"
            " and neither claim nor stop, which have their own paths",
        )
    return kind


def _body(asked: Append) -> bytes:
    if asked.kind is not None and asked.text is None and asked.base64 is None:
        return b""
    return read_body(asked.text, asked.base64)
