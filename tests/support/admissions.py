"""Admissions that do as a test says."""

from typing import Any

from pyromq.errors import Refused
from pyromq.protocol.catalogue import Declaration, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.remoting.connection import Connection
from pyromq.remoting.routing import Caller


class ScriptedAdmission:
    """Lets everyone in and everything happen, vouching for each connection, until told otherwise."""

    def __init__(self) -> None:
        self.version = 0
        self.refuses_callers = False
        self.refuses_requests = False
        self.vouches = True
        self.identified: list[Caller] = []
        self.authorized: list[str] = []

    def change_rules(self, **rules: bool) -> None:
        vars(self).update(rules)
        self.version += 1

    def identify(self, caller: Caller) -> None:
        self.identified.append(caller)
        if self.refuses_callers:
            raise Refused(ResponseCode.NO_PERMISSION, "not you")

    def authorize(self, declaration: Declaration, request: Request[Any], caller: Caller) -> None:
        self.authorized.append(declaration.name)
        if self.refuses_requests:
            raise Refused(ResponseCode.NO_PERMISSION, "not that")
        if self.vouches:
            assert isinstance(caller.channel, Connection)
            caller.channel.vouched_version = self.version

    def finished(self, caller: Caller, declaration: Declaration, code: int) -> None:
        pass
