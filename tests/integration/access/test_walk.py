"""Under access control no request escapes: every code, on every port of every server, in every form."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.access import ALICE, ROOT, SECURE, WRONG, client, user_creation
from tests.support.broker_cluster import message, pull, running_broker
from tests.support.controlled_brokers import controller
from tests.support.example_requests import example_request
from tests.support.name_servers import name_server
from tests.support.signing import signer
from tests.support.wire_client import WireClient

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.broker.settings import vip_port
from pyromq.protocol.catalogue import BROKER, CATALOGUE, CONTROLLER, NAMESERVER, Peer, encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.security.signature import Credentials

FORMS = [pytest.param(form, id=form.name.lower()) for form in HeaderForm]
UNKNOWN_CODE = 29_999

Door = tuple[tuple[str, int], Peer]


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[list[Door]]:
    """The ports of all servers; each knows Alice, who has no rights."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(running_broker(tmp_path / "broker", **SECURE))
        names = await stack.enter_async_context(name_server(tmp_path / "names", **SECURE))
        chooser = await stack.enter_async_context(controller(tmp_path / "controller", **SECURE))
        host, port = broker.address
        found: list[Door] = [
            ((host, port), BROKER),
            ((host, vip_port(port)), BROKER),
            (names.address, NAMESERVER),
            (chooser.address, CONTROLLER),
        ]
        for address, _ in (found[0], *found[2:]):
            async with client(address, ROOT) as root:
                await root.call(user_creation(ALICE))
        yield found


def requests_to(peer: Peer, form: HeaderForm) -> list[Frame]:
    frames = [
        encode_request(example_request(declaration), opaque, form=form)
        for opaque, (_, declaration) in enumerate(sorted(CATALOGUE.items()))
        if declaration.to & peer
    ]
    return [*frames, Frame(UNKNOWN_CODE, opaque=99_999, form=form)]


async def answers(address: tuple[str, int], frames: list[Frame]) -> dict[int, int]:
    async with await WireClient.connect(address) as wire:
        wire.send(*frames)
        by_opaque = {answer.opaque: answer.code for answer in await wire.frames(len(frames))}
    return {frame.code: by_opaque[frame.opaque] for frame in frames}


def signed_by(credentials: Credentials | None) -> Callable[[Frame], None]:
    return signer(credentials) if credentials is not None else lambda frame: None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "who", [None, WRONG, Credentials("nobody", "secret")], ids=["stranger", "thief", "nobody"]
)
async def test_every_request_of_somebody_unknown_is_refused(
    doors: list[Door], form: HeaderForm, who: Credentials | None
) -> None:
    for address, peer in doors:
        frames = requests_to(peer, form)
        for frame in frames:
            signed_by(who)(frame)
        assert set((await answers(address, frames)).values()) == {ResponseCode.NO_PERMISSION}, peer


@pytest.mark.parametrize("form", FORMS)
async def test_every_request_of_a_user_without_rights_is_refused(doors: list[Door], form: HeaderForm) -> None:
    for address, peer in doors:
        frames = requests_to(peer, form)
        for frame in frames:
            signed_by(ALICE)(frame)
        answered = await answers(address, frames)
        allowed = {code for code, answer in answered.items() if answer != ResponseCode.NO_PERMISSION}
        unserved = {
            code for code, answer in answered.items() if answer == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        }
        # What names neither a topic nor a group, and what the handler looks up first.
        assert allowed - unserved <= {33, 35, 37}, peer


async def test_a_signature_of_one_request_is_no_signature_of_another(doors: list[Door]) -> None:
    address, _ = doors[0]
    async with client(address, ROOT) as root:
        await root.create_topic()
    sign = signed_by(ROOT)
    async with await WireClient.connect(address) as wire:
        sent, pulled = encode_request(message(), 1), encode_request(pull(0), 2)
        sign(sent)
        assert (await wire.call(sent)).code == ResponseCode.SUCCESS
        pulled.ext |= {name: sent.ext[name] for name in ("AccessKey", "Signature")}
        assert (await wire.call(pulled)).code == ResponseCode.NO_PERMISSION
