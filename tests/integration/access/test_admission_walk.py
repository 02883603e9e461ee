"""No request escapes the admission: every code, on every port, in every header form, on every path."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.admissions import ScriptedAdmission
from tests.support.broker_cluster import TOPIC, message, pull, running_broker
from tests.support.controlled_brokers import controller
from tests.support.example_requests import example_request
from tests.support.name_servers import name_server
from tests.support.wire_client import WireClient

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.broker.broker import Broker
from pyromq.broker.settings import vip_port
from pyromq.protocol.catalogue import BROKER, CATALOGUE, CONTROLLER, NAMESERVER, Peer, Request, encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame, HeaderForm

FORMS = [pytest.param(form, id=form.name.lower()) for form in HeaderForm]
UNKNOWN_CODE = 29_999


@pytest.fixture
def admission() -> ScriptedAdmission:
    return ScriptedAdmission()


@pytest.fixture
async def broker(tmp_path: Path, admission: ScriptedAdmission) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, admission=admission, auto_create_topics=True) as broker:
        yield broker


def every_request(to: Peer, form: HeaderForm) -> list[Frame]:
    """One full request of every code; none of them one-way, so that each is answered."""
    return [
        encode_request(example_request(declaration), opaque, form=form)
        for opaque, (_, declaration) in enumerate(sorted(CATALOGUE.items()))
        if declaration.to & to
    ]


async def codes_of(address: tuple[str, int], frames: list[Frame]) -> dict[int, int]:
    """What each request was answered with, by its code."""
    async with await WireClient.connect(address) as client:
        client.send(*frames)
        by_opaque = {answer.opaque: answer.code for answer in await client.frames(len(frames))}
    return {frame.code: by_opaque[frame.opaque] for frame in frames}


def ports_of(broker: Broker) -> list[tuple[str, int]]:
    host, port = broker.address
    return [(host, port), (host, vip_port(port))]


@pytest.mark.parametrize("form", FORMS)
async def test_a_broker_that_lets_nobody_in_refuses_every_code(
    broker: Broker, admission: ScriptedAdmission, form: HeaderForm
) -> None:
    admission.change_rules(refuses_callers=True)
    asked = [*every_request(BROKER, form), Frame(UNKNOWN_CODE, opaque=-1, form=form)]
    for address in ports_of(broker):
        assert set((await codes_of(address, asked)).values()) == {ResponseCode.NO_PERMISSION}


@pytest.mark.parametrize("form", FORMS)
async def test_a_broker_that_allows_nothing_refuses_every_code_it_serves(
    broker: Broker, admission: ScriptedAdmission, form: HeaderForm
) -> None:
    admission.change_rules(refuses_requests=True)
    asked = every_request(BROKER, form)
    for address in ports_of(broker):
        answered = await codes_of(address, asked)
        not_refused = {code for code, answer in answered.items() if answer != ResponseCode.NO_PERMISSION}
        assert all(answered[code] == ResponseCode.REQUEST_CODE_NOT_SUPPORTED for code in not_refused)
        assert not not_refused & {10, 310, 320}
    assert {11, 361} <= set(broker.routes.by_code)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", ["refuses_callers", "refuses_requests"])
async def test_a_name_server_refuses_every_code(
    tmp_path: Path, admission: ScriptedAdmission, form: HeaderForm, rule: str
) -> None:
    async with name_server(tmp_path, admission=admission) as server:
        admission.change_rules(**{rule: True})
        answered = await codes_of(server.address, every_request(NAMESERVER, form))
        assert set(answered.values()) == {ResponseCode.NO_PERMISSION}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", ["refuses_callers", "refuses_requests"])
async def test_a_controller_refuses_every_code(
    tmp_path: Path, admission: ScriptedAdmission, form: HeaderForm, rule: str
) -> None:
    async with controller(tmp_path, admission=admission) as server:
        admission.change_rules(**{rule: True})
        answered = await codes_of(server.address, every_request(CONTROLLER, form))
        assert set(answered.values()) == {ResponseCode.NO_PERMISSION}


@pytest.mark.parametrize("form", FORMS)
async def test_a_connection_on_the_fast_path_is_refused_once_the_rules_have_changed(
    broker: Broker, admission: ScriptedAdmission, form: HeaderForm
) -> None:
    def frame(request: Request[Any]) -> Frame:
        return encode_request(request, 7, form=form)

    async with await WireClient.connect(broker.address) as client:
        for _ in range(3):
            assert (
                await client.call(frame(message(properties={"UNIQ_KEY": "A1"})))
            ).code == ResponseCode.SUCCESS
        asked_about = len(admission.authorized)
        assert asked_about < 3, "the fast path was taken once the connection was vouched for"
        admission.change_rules(refuses_requests=True)
        for request in (message(properties={"UNIQ_KEY": "A2"}), pull(0)):
            assert (await client.call(frame(request))).code == ResponseCode.NO_PERMISSION
    assert admission.authorized[asked_about:] == ["SendMessageV2", "PullMessage"]
    assert broker.store.queues.max_offset(TOPIC, 0) == 3
