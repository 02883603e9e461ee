"""The clients of the front: their settings, their open streams, and when they were last heard of.

A client is known from its first settings until it says goodbye or stays silent for too long. A stream that
breaks changes nothing: the client opens another one, and the newest counts. A client belongs to the user who
sent its settings: no other user can act in its name.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

from pyromq.clock import Clock
from pyromq.errors import CallTimeout, ConnectionLost
from pyromq.protocol.codes import Language
from pyromq.proxy.codes import Code, Rejected
from pyromq.proxy.grpc.call import Call
from pyromq.proxy.messages import enum_values, message

_log = logging.getLogger(__name__)

Command = message("TelemetryCommand")

CLIENT_ID = b"x-mq-client-id"
_LANGUAGE = b"x-mq-language"
_SETTINGS_WAIT_S = 3.0
_ID_PARTS = 4
_BASE_36 = re.compile(r"[0-9a-zA-Z]{1,13}")
_MIN_AGE_MS, _MAX_AGE_MS = 10_000, 10 * 365 * 86_400_000
"""Of a client that sent its settings elsewhere. Other numbers in an id are not a time of day."""
_LANGUAGES = {each.name: each for each in Language}
_CLIENT_TYPES = enum_values("ClientType")
PUSH_CONSUMER, SIMPLE_CONSUMER = _CLIENT_TYPES["PUSH_CONSUMER"], _CLIENT_TYPES["SIMPLE_CONSUMER"]
LITE_PUSH_CONSUMER = _CLIENT_TYPES["LITE_PUSH_CONSUMER"]
LITE_SIMPLE_CONSUMER = _CLIENT_TYPES["LITE_SIMPLE_CONSUMER"]


def client_id_of(call: Call) -> str:
    """Raises Rejected if the caller does not say who it is."""
    client_id = call.metadata.get(CLIENT_ID)
    if not client_id.strip():
        raise Rejected(Code.CLIENT_ID_REQUIRED, "the header x-mq-client-id is missing")
    return client_id


def has_lived(client_id: str, now_ms: int) -> bool:
    """Whether the id says that the client is older than its first settings can be.

    Clients that open no new stream at once when their front is gone put the time of their start at its end:
    Python's `host@pid@index@time`, nanoseconds to the base of 36.
    """
    parts = client_id.split("@")
    if len(parts) < _ID_PARTS or not _BASE_36.fullmatch(parts[-1]):
        return False
    return _MIN_AGE_MS <= now_ms - int(parts[-1], 36) // 1_000_000 <= _MAX_AGE_MS


class FrontClient:
    def __init__(self, call: Call, settings: Any) -> None:
        """As the sender of the call describes itself."""
        self.client_id = client_id_of(call)
        self.user = call.user
        self.peer_address = call.peer_address
        self.language = _LANGUAGES.get(call.metadata.get(_LANGUAGE).upper(), Language.OTHER)
        self.settings = settings
        self.stream: Call | None = None
        self.last_seen = 0.0
        self.has_left = False
        self._questions: dict[str, asyncio.Future[Any]] = {}
        self._asked = 0

    def __repr__(self) -> str:
        kind = "producer" if self.is_producer else f"consumer of {self.group}"
        return f"<FrontClient {self.client_id} {kind} stream={self.stream is not None}>"

    @property
    def is_producer(self) -> bool:
        return bool(self.settings.WhichOneof("pub_sub") == "publishing")

    @property
    def is_push_consumer(self) -> bool:
        return self.settings.client_type in (PUSH_CONSUMER, LITE_PUSH_CONSUMER)

    @property
    def is_lite(self) -> bool:
        """Whether it reads lite topics."""
        return self.settings.client_type in (LITE_PUSH_CONSUMER, LITE_SIMPLE_CONSUMER)

    @property
    def is_fifo(self) -> bool:
        return bool(self.settings.subscription.fifo)

    @property
    def group(self) -> str:
        return str(self.settings.subscription.group.name)

    @property
    def topics(self) -> list[str]:
        """The topics it publishes or subscribes to."""
        if self.is_producer:
            return [each.name for each in self.settings.publishing.topics]
        return [each.topic.name for each in self.settings.subscription.subscriptions]

    @property
    def is_reachable(self) -> bool:
        return self.stream is not None and self.stream.is_open

    def command(self, command: Any) -> bool:
        """Send a command on its stream; False if it has none."""
        if self.stream is None or not self.stream.is_open:
            return False
        self.stream.send_now(command)
        return True

    async def ask(self, field: str, timeout_s: float, **values: Any) -> Any:
        """Send a command with a nonce and wait for the answer."""
        self._asked += 1
        nonce = str(self._asked)
        command = Command()
        getattr(command, field).MergeFrom(type(getattr(command, field))(nonce=nonce, **values))
        answer = self._questions[nonce] = asyncio.get_running_loop().create_future()
        try:
            if not self.command(command):
                raise ConnectionLost(f"the client {self.client_id} has no open stream")
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise CallTimeout(f"the client {self.client_id} did not answer in {timeout_s} s") from None
        finally:
            del self._questions[nonce]

    def answered(self, nonce: str, command: Any) -> None:
        question = self._questions.get(nonce)
        if question is not None and not question.done():
            question.set_result(command)


class Clients:
    def __init__(self, clock: Clock, expiry_s: float) -> None:
        self._clock = clock
        self._expiry_s = expiry_s
        self._by_id: dict[str, FrontClient] = {}
        self._leave_callbacks: list[Callable[[FrontClient], None]] = []
        self._awaited: dict[str, set[asyncio.Future[None]]] = {}

    def __repr__(self) -> str:
        return f"<Clients {len(self._by_id)}>"

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[FrontClient]:
        return iter(list(self._by_id.values()))

    def on_leave(self, callback: Callable[[FrontClient], None]) -> None:
        """Call `callback` with every client that is forgotten."""
        self._leave_callbacks.append(callback)

    def find(self, client_id: str) -> FrontClient | None:
        return self._by_id.get(client_id)

    def of(self, call: Call) -> FrontClient:
        """The sender of a call; raises Rejected if it has not sent its settings."""
        client = self._by_id.get(client_id_of(call))
        if client is None:
            raise Rejected(
                Code.UNRECOGNIZED_CLIENT_TYPE,
                f"the client {client_id_of(call)} has sent no settings here: open a telemetry stream first",
            )
        _check_user(client, call.user)
        client.last_seen = self._clock.monotonic()
        return client

    async def known(self, call: Call) -> FrontClient:
        """The same, but settings that are still on their way are waited for.

        Some clients send them and continue without waiting for the answer.
        """
        client_id = client_id_of(call)
        if client_id not in self._by_id:
            arrival = asyncio.get_running_loop().create_future()
            waiting = self._awaited.setdefault(client_id, set())
            waiting.add(arrival)
            try:
                async with asyncio.timeout(_SETTINGS_WAIT_S):
                    await arrival
            except TimeoutError:
                _log.info("a client called without settings id=%s call=%s", client_id, call.name)
            finally:
                waiting.discard(arrival)
                if not waiting:
                    self._awaited.pop(client_id, None)
        return self.of(call)

    def seen(self, client_id: str) -> FrontClient | None:
        """The client with this id, if it is known; it is alive."""
        client = self._by_id.get(client_id)
        if client is not None:
            client.last_seen = self._clock.monotonic()
        return client

    def settle(self, call: Call, joining: FrontClient) -> FrontClient:
        """A client sent its settings on this stream."""
        client = self.adopt(joining)
        client.stream = call
        for arrival in self._awaited.get(client.client_id, ()):
            if not arrival.done():
                arrival.set_result(None)
        return client

    def adopt(self, joining: FrontClient) -> FrontClient:
        """A client is new or has new settings, whether it has a stream or not. Returns the client of its id;
        raises Rejected if that belongs to another user."""
        client = self._by_id.setdefault(joining.client_id, joining)
        _check_user(client, joining.user)
        if client is joining:
            _log.debug("client joined id=%s peer=%s", client.client_id, client.peer_address)
        client.settings = joining.settings
        client.last_seen = self._clock.monotonic()
        return client

    def forget(self, client: FrontClient) -> None:
        if self._by_id.get(client.client_id) is not client:
            return
        del self._by_id[client.client_id]
        client.has_left = True
        _log.debug("client left id=%s", client.client_id)
        for callback in self._leave_callbacks:
            callback(client)

    def forget_silent(self) -> None:
        """Forget clients that sent no heartbeat for too long; called regularly."""
        before = self._clock.monotonic() - self._expiry_s
        for client in self:
            if client.last_seen < before:
                self.forget(client)


def _check_user(client: FrontClient, user: str) -> None:
    if client.user != user:
        raise Rejected(Code.UNAUTHORIZED, f"the client {client.client_id} belongs to another user")
