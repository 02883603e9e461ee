"""Every number is tried as a code: at name servers, controllers, brokers and the front's port.

The catalogue lists the codes that we know. A handler that escapes it, or a code that one server serves and
another one does not guard, would show here.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.access import ALICE, ROOT, SECURE, client, grant, user_creation
from tests.support.broker_cluster import running_broker
from tests.support.controlled_brokers import controller
from tests.support.example_requests import example_request
from tests.support.front import front
from tests.support.guarded_servers import BOB, RIGHTS
from tests.support.name_servers import name_server, register_broker
from tests.support.signing import signer
from tests.support.wire_client import WireClient

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.protocol.catalogue import CATALOGUE, encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import ONEWAY_FLAG, Frame, HeaderForm
from pyromq.protocol.requests.routes import GetRoute
from pyromq.security.signature import Credentials

CODES = sorted(
    {*range(-8, 4096), *range(30_000, 31_000), *range(200_000, 200_200), 32_767, 65_535, *CATALOGUE}
)
SERVERS = ("broker", "name server", "controller", "front")


@pytest.fixture
async def addresses(tmp_path: Path) -> AsyncIterator[dict[str, tuple[str, int]]]:
    """Of servers that know root, Bob with few rights, and Alice with none."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        broker = await enter(running_broker(tmp_path / "broker", **SECURE))
        names = await enter(name_server(tmp_path / "names", **SECURE))
        chooser = await enter(controller(tmp_path / "controller", **SECURE))
        settings = {**SECURE, "auth_config_path": tmp_path / "front"}
        fronting = await enter(front(settings=settings, **SECURE))
        servers: list[Any] = [broker, names, chooser, fronting.proxy]
        for server in servers:
            async with client(server.address, ROOT) as root:
                for user in (ALICE, BOB):
                    await root.call(user_creation(user))
                await root.call(grant(BOB, *RIGHTS))
        yield {name: server.address for name, server in zip(SERVERS, servers, strict=True)}


def frames_by(who: Credentials | None, form: HeaderForm) -> list[Frame]:
    """One of every code, with the fields of a request where there is one, and once more as a oneway."""
    sign = signer(who) if who is not None else lambda frame: None
    found = []
    for opaque, code in enumerate(CODES):
        if form is HeaderForm.BINARY and not 0 <= code < 1 << 15 and code not in CATALOGUE:
            continue  # there is no room for it
        for flag in (ONEWAY_FLAG, 0):
            known = CATALOGUE.get(code)
            frame = (
                Frame(code, opaque=opaque, form=form)
                if known is None
                else encode_request(example_request(known), opaque, form=form)
            )
            frame.flag |= flag
            sign(frame)
            found.append(frame)
    return found


async def answers(address: tuple[str, int], frames: list[Frame]) -> dict[int, int]:
    """By code."""
    wanted = [frame for frame in frames if not frame.is_oneway]
    async with await WireClient.connect(address) as wire:
        wire.send(*frames)
        found = {answer.opaque: answer.code for answer in await wire.frames(len(wanted))}
    return {frame.code: found[frame.opaque] for frame in wanted}


@pytest.mark.parametrize("form", list(HeaderForm), ids=lambda form: form.name.lower())
async def test_no_code_is_served_to_strangers(
    addresses: dict[str, tuple[str, int]], form: HeaderForm
) -> None:
    frames = frames_by(None, form)
    for name, address in addresses.items():
        assert set((await answers(address, frames)).values()) == {ResponseCode.NO_PERMISSION}, name


async def test_few_rights_open_no_code_for_what_belongs_to_others(
    addresses: dict[str, tuple[str, int]],
) -> None:
    unserved = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    for name in ("name server", "controller", "front"):
        for who in (ALICE, BOB):
            found = await answers(addresses[name], frames_by(who, HeaderForm.JSON))
            refused = (ResponseCode.NO_PERMISSION, unserved)
            assert not [code for code, answer in found.items() if answer not in refused], (name, who)
            assert all(found[code] == unserved for code in CODES if code not in CATALOGUE), name


@pytest.mark.parametrize("form", list(HeaderForm), ids=lambda form: form.name.lower())
async def test_the_route_of_one_topic_opens_no_other_on_the_same_connection(
    addresses: dict[str, tuple[str, int]], form: HeaderForm
) -> None:
    """Routes have a fast path, too."""
    address = addresses["name server"]
    async with client(address, ROOT) as root, client(address, BOB, form) as bob:
        await root.call(register_broker("a", topics=["Orders", "Secrets"]))
        for _ in range(3):
            assert (await bob.call(GetRoute(topic="Orders"))).body.queue_datas
            assert (await bob.refusal(GetRoute(topic="Secrets"))).code == ResponseCode.NO_PERMISSION
        assert (await root.call(GetRoute(topic="Secrets"))).body.queue_datas
