"""Plain sends and acknowledgements, compiled: a call's bytes become a request to a broker, and its answer
that of the client, without a protobuf message, a future or a task in between.

Everything unusual takes the general path, and so does a call whose broker refuses, or does not answer. Both
paths send the same requests and the same answers. Without the compiled core there is only the general path.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, Protocol

from pyromq.compiled import twin
from pyromq.protocol.catalogue import Request
from pyromq.protocol.frame import Frame
from pyromq.protocol.names import MASTER_ID
from pyromq.proxy.cluster import ProxyCluster
from pyromq.proxy.codes import Code
from pyromq.proxy.grpc.call import Call
from pyromq.remoting.connection import Connection, StartedCall

_calls = twin("proxy.calls")
_OK = int(Code.OK)

PREFIX_BYTES = 5
"""In front of the message in a call's bytes."""


class PlainCall(Protocol):
    """A call, read by the compiled core."""

    data: bytes


Resume = Callable[["QuickCall", StartedCall[Any]], Any]
"""Answers a call on the general path, now that its broker has answered or cannot."""


class QuickCall:
    """A plain call that waits for its broker, in the place of a future."""

    __slots__ = ("_calls", "_connection", "_opaque", "_resume", "broker_name", "call", "plain")

    def __init__(
        self,
        calls: "QuickCalls",
        plain: PlainCall,
        call: Call,
        broker_name: str,
        connection: Connection,
        opaque: int,
        resume: Resume,
    ) -> None:
        self._calls = calls
        self.plain = plain
        self.call = call
        self.broker_name = broker_name
        self._connection = connection
        self._opaque = opaque
        self._resume = resume

    def settle(self, framed: bytes) -> None:
        """The usual answer, framed for the client."""
        self._connection.end_quick_call(self._opaque)
        self.call.answer_quickly(framed, _OK)

    def done(self) -> bool:
        return False

    def set_result(self, frame: Frame) -> None:
        answered = asyncio.get_running_loop().create_future()
        answered.set_result(frame)
        self._go_on(answered)

    def set_exception(self, problem: Exception) -> None:
        answered = asyncio.get_running_loop().create_future()
        answered.set_exception(problem)
        self._go_on(answered)

    def _go_on(self, answered: "asyncio.Future[Frame]") -> None:
        self._connection.end_quick_call(self._opaque)
        request_type = self._calls.request_type
        started = StartedCall(self._connection, self._opaque, request_type, answered, self._calls.timeout_s)
        self.call.go_on(partial(self._resume, self, started))


class QuickCalls:
    """Those of one rpc, which becomes requests of one type."""

    def __init__(
        self,
        cluster: ProxyCluster,
        request_type: type[Request[Any]],
        native: ModuleType,
        answers: Callable[[int], Any],
    ) -> None:
        self.cluster = cluster
        self.request_type = request_type
        self.native = native
        """The compiled module that reads them."""
        self._answers = answers
        self.timeout_s = cluster.timeout_s
        self.max_frame_bytes = cluster.session.max_frame_bytes
        self._known: dict[str, Connection] = {}
        self._route_changes = -1

    def connection(self, broker_name: str) -> Connection | None:
        """The connection to a broker, if it takes quick calls now."""
        session = self.cluster.session
        if self._route_changes != session.routes.changes:
            self._known.clear()
            self._route_changes = session.routes.changes
        known = self._known.get(broker_name)
        if known is not None and known.is_writable:
            return known
        address = session.broker_address(broker_name, MASTER_ID, only_this=True)
        connection = session.writable(address) if address is not None else None
        if connection is None:
            return None
        if connection.fast_path is None:
            connection.fast_path = self._answers(self.max_frame_bytes)
        elif type(connection.fast_path) is not self._answers:
            return None
        self._known[broker_name] = connection
        return connection


def quick_calls(cluster: ProxyCluster, request_type: type[Request[Any]], module: str) -> QuickCalls | None:
    """None without the compiled core, or where requests need more than their fields: a signature, a check."""
    if _calls is None or cluster.has_admission or not cluster.session.fills_forms:
        return None
    native = twin(module)
    return QuickCalls(cluster, request_type, native, _calls.QuickAnswers) if native is not None else None
