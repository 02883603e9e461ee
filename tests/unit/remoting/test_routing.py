"""The table of routes is built from marks, and says what is wrong with it."""

import pytest
from tests.support.echo_service import UNSERVED, Echo, EchoAnswer, EchoService, Nobody, Wait, WaitPerhaps

from pyromq.errors import LocalProtocolError
from pyromq.protocol.catalogue import BROKER, CATALOGUE, CLIENT, NAMESERVER, declaration_of
from pyromq.remoting.routing import Caller, Routes, handles


class OnlyEcho:
    @handles(Echo)
    def echo(self, request: Echo, caller: Caller) -> EchoAnswer:
        return EchoAnswer(text=request.text, body=b"")


async def test_every_marked_method_is_a_route() -> None:
    routes = EchoService().routes()
    assert sorted(routes.by_code) == [31_001, 31_002, 31_003, 31_004, 31_005, 31_006]
    assert routes.by_code[31_001].declaration is declaration_of(Echo)


async def test_a_route_knows_whether_its_method_may_wait() -> None:
    routes = EchoService().routes().by_code
    kinds = {type_: routes[declaration_of(type_).code] for type_ in (Echo, Wait, WaitPerhaps)}
    assert {t.__name__: (r.is_async, r.may_wait) for t, r in kinds.items()} == {
        "Echo": (False, False),
        "Wait": (True, True),
        "WaitPerhaps": (False, True),
    }
    assert repr(kinds[Wait]) == "<RequestRoute Wait code=31002 async>"


async def test_several_services_make_one_table() -> None:
    routes = Routes(OnlyEcho(), serving=CLIENT)
    assert repr(routes) == "<Routes of Peer.CLIENT handled=1 unserved=0>"


def test_a_request_is_handled_once() -> None:
    with pytest.raises(LocalProtocolError, match="handled twice"):
        Routes(OnlyEcho(), OnlyEcho(), serving=CLIENT)


def test_a_request_for_someone_else_is_not_handled() -> None:
    with pytest.raises(LocalProtocolError, match="not addressed to"):
        Routes(OnlyEcho(), serving=NAMESERVER)


def test_a_handled_request_is_not_unserved() -> None:
    with pytest.raises(LocalProtocolError, match="also listed as unserved"):
        Routes(OnlyEcho(), serving=CLIENT, unserved={31_001: "why not"})


def test_missing_lists_what_is_neither_handled_nor_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    for declaration in (declaration_of(Echo), declaration_of(Wait), declaration_of(Nobody)):
        monkeypatch.setitem(CATALOGUE, declaration.code, declaration)
    missing = Routes(OnlyEcho(), serving=BROKER, unserved=UNSERVED).missing()
    assert declaration_of(Wait) in missing
    assert declaration_of(Echo) not in missing
    assert declaration_of(Nobody) not in missing
