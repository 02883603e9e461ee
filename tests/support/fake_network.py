"""Brokers that answer as a test says, for parts of clients that only need calls and routes."""

from collections.abc import Callable
from typing import Any, TypeVar

from pyromq.cluster.name_servers import NameServers
from pyromq.cluster.route_table import KnownRoutes
from pyromq.cluster.routes import Route
from pyromq.errors import Refused
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.request_forms import FilledForm

A = TypeVar("A", bound=Answer)


class FakeNetwork:
    """`answers` maps a type of request to its answer, a function of the request, or an exception."""

    def __init__(self, *routes: Route) -> None:
        self.fills_forms = False
        self.answers: dict[type[Request[Any]], Answer | Exception | Callable[[Any], Answer]] = {}
        self.calls: list[tuple[str, Request[Any]]] = []
        self.oneways: list[tuple[str, Request[Any]]] = []
        self.routes = KnownRoutes(NameServers(["n:1"]), self._call_name_server, 1.0)
        for route in routes:
            self.routes._take(route)

    async def _call_name_server(self, address: str, request: Request[A], timeout_s: float) -> A:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, "no such topic")

    async def call(self, address: str, request: Request[A] | FilledForm[A], timeout_s: float) -> A:
        assert isinstance(request, Request)
        self.calls.append((address, request))
        answer: Any = self.answers[type(request)]
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer = answer(request)
        found: A = answer
        return found

    async def send_oneway(self, address: str, request: Request[Any]) -> None:
        self.oneways.append((address, request))
