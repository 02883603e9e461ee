"""What somebody can do who reads the traffic of a server without TLS, and sends what they like."""

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.access import ALICE, ROOT, SECURE, SERVER, client, grant, user_creation
from tests.support.broker_cluster import TOPIC, message, pull, running_broker
from tests.support.signing import apache_signer, signer
from tests.support.wire_client import WireClient

from pyromq.broker.broker import Broker
from pyromq.clock import ManualClock
from pyromq.protocol.catalogue import Request, encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import ONEWAY_FLAG, Frame, HeaderForm
from pyromq.protocol.requests.access import ListUsers
from pyromq.protocol.requests.membership import GetConsumerIds
from pyromq.protocol.requests.topics import GetTopicConfig
from pyromq.security.full_signature import FULL_SIGNATURE
from pyromq.security.signature import Credentials

PREAMBLE = b"PROXY TCP4 10.1.2.3 127.0.0.1 4000 10911\r\n"
"""Makes a connection of this machine one from elsewhere."""
FORMS = list(HeaderForm)
OURS: Callable[[Credentials], Callable[[Frame], None]] = signer
SIGNERS = pytest.mark.parametrize("new_signer", [apache_signer, OURS], ids=["apache", "ours"])
UNIQUE = {"UNIQ_KEY": "A1"}
REFUSED, SUCCESS = ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS


@asynccontextmanager
async def guarded(directory: Path, **more: Any) -> AsyncIterator[Broker]:
    settings = {**SECURE, "proxy_protocol_trusted_addresses": "127.0.0.1", **more}
    async with running_broker(directory, **settings) as broker:
        async with client(broker.address, ROOT) as root:
            await root.create_topic()
            await root.call(user_creation(ALICE))
            await root.call(grant(ALICE, f"Pub,Sub on Topic:{TOPIC}", "Sub on Group:*"))
        yield broker


@asynccontextmanager
async def from_afar(broker: Broker) -> AsyncIterator[WireClient]:
    async with await WireClient.connect(broker.address) as wire:
        wire.write(PREAMBLE)
        yield wire


def signed(request: Request[Any], sign: Callable[[Frame], None], form: int = HeaderForm.JSON) -> Frame:
    frame = encode_request(request, 7, form=form)
    sign(frame)
    return frame


def fresh_send() -> Request[Any]:
    return message(properties=UNIQUE, born_timestamp=int(time.time() * 1000))


def disguised(frame: Frame) -> Frame:
    """Without its full signature, but with the same values in the same order: RocketMQ signs no more."""
    if (field := frame.ext.pop(FULL_SIGNATURE, None)) is not None:
        frame.ext["FullSignaturf"] = field
    return frame


@SIGNERS
@pytest.mark.parametrize("form", FORMS)
async def test_a_question_of_an_administrator_does_not_become_a_deletion(
    tmp_path: Path, form: HeaderForm, new_signer: Any
) -> None:
    async with guarded(tmp_path) as broker, from_afar(broker) as wire:
        overheard = signed(GetTopicConfig(topic=TOPIC), new_signer(ROOT), form)
        overheard.code = 215
        assert (await wire.call(disguised(overheard))).code == REFUSED
        async with client(broker.address, ROOT) as root:
            await root.call(GetTopicConfig(topic=TOPIC))


@SIGNERS
async def test_a_message_of_an_administrator_does_not_become_a_user(tmp_path: Path, new_signer: Any) -> None:
    body = json.dumps({"username": "eve", "password": "eve's", "userType": "Super"}).encode()
    async with guarded(tmp_path) as broker, from_afar(broker) as wire:
        chosen = replace_body(fresh_send(), b"eve" + body)
        overheard = disguised(signed(chosen, new_signer(ROOT)))
        names = sorted(name for name in overheard.ext if name not in ("AccessKey", "Signature"))
        turned = Frame(
            3001,
            7,
            ext={
                **{name: overheard.ext[name] for name in ("AccessKey", "Signature")},
                "a": "".join(overheard.ext[name] for name in names),
                "username": "eve",
            },
            body=body,
        )
        assert (await wire.call(turned)).code == REFUSED
        assert "eve" not in broker.access.users.users


def replace_body(request: Any, body: bytes) -> Request[Any]:
    request.body = body
    return request  # type: ignore[no-any-return]


@SIGNERS
async def test_administrative_requests_need_a_private_connection_and_the_refusal_names_the_setting(
    tmp_path: Path, new_signer: Any
) -> None:
    async with guarded(tmp_path) as broker, from_afar(broker) as wire:
        answer = await wire.call(signed(ListUsers(), new_signer(ROOT)))
        assert (answer.code, answer.remark) == (
            REFUSED,
            "ListUsers is refused without TLS: connect with TLS or from this machine, or set"
            " allowAdminWithoutTls=true on this server",
        )
        for request in (fresh_send(), pull(0), GetConsumerIds(consumer_group="g")):
            assert (await wire.call(signed(request, new_signer(ROOT)))).code != REFUSED


async def test_the_setting_allows_them(tmp_path: Path) -> None:
    async with guarded(tmp_path, allow_admin_without_tls=True) as broker, from_afar(broker) as wire:
        assert (await wire.call(signed(ListUsers(), apache_signer(ROOT)))).code == SUCCESS


async def test_servers_may_send_them_to_each_other_if_they_sign_fully(tmp_path: Path) -> None:
    async with guarded(tmp_path) as broker, from_afar(broker) as wire:
        assert (await wire.call(signed(ListUsers(), apache_signer(SERVER)))).code == REFUSED
        frame = signed(ListUsers(), signer(SERVER))
        assert (await wire.call(frame)).code == SUCCESS
        assert (await wire.call(frame)).code == REFUSED, "sent again"


@pytest.mark.parametrize("form", FORMS)
async def test_a_fully_signed_request_is_accepted_once(tmp_path: Path, form: HeaderForm) -> None:
    async with guarded(tmp_path) as broker:
        sign = signer(ALICE)
        frames = [signed(fresh_send(), sign, form) for _ in range(4)]
        async with from_afar(broker) as wire:
            for frame in frames:
                assert (await wire.call(frame)).code == SUCCESS
            for frame in frames:
                answer = await wire.call(frame)
                assert (answer.code, answer.remark) == (
                    REFUSED,
                    "Check full signature failed: it was sent before on this connection",
                )
            async with from_afar(broker) as other:
                assert "another connection" in str((await other.call(frames[0])).remark)
        async with from_afar(broker) as later:
            assert "another connection" in str((await later.call(frames[3])).remark)
        assert broker.store.queues.max_offset(TOPIC, 0) == 4


@pytest.mark.parametrize("form", FORMS)
async def test_a_fully_signed_request_cannot_be_changed_at_all(tmp_path: Path, form: HeaderForm) -> None:
    def rename(frame: Frame) -> None:
        frame.ext["b!"] = frame.ext.pop("b")

    def move(frame: Frame) -> None:
        frame.ext |= {"a": frame.ext["a"] + frame.ext["b"][0], "b": frame.ext["b"][1:]}

    def make_oneway(frame: Frame) -> None:
        frame.flag |= ONEWAY_FLAG

    def add_remark(frame: Frame) -> None:
        frame.remark = "x"

    def set_code(frame: Frame) -> None:
        frame.code = 10

    async with guarded(tmp_path) as broker, from_afar(broker) as wire:
        sign = signer(ALICE)
        assert (await wire.call(signed(fresh_send(), sign, form))).code == SUCCESS
        for change in (rename, move, make_oneway, add_remark, set_code):
            frame = signed(fresh_send(), sign, form)
            change(frame)
            if change is make_oneway:
                wire.send(frame)
            else:
                assert (await wire.call(frame)).code == REFUSED, change
        assert (await wire.call(signed(fresh_send(), sign, form))).code == SUCCESS
        assert broker.store.queues.max_offset(TOPIC, 0) == 2


async def test_a_clock_that_is_far_off_is_noticed(tmp_path: Path) -> None:
    async with guarded(tmp_path) as broker, from_afar(broker) as wire:
        slow = ManualClock(int(time.time() * 1000) - 1_000_000)
        answer = await wire.call(signed(pull(0), signer(ALICE, clock=slow)))
        assert answer.code == REFUSED
        assert "maxRequestAgeMillis" in str(answer.remark)


async def test_a_server_can_require_full_signatures(tmp_path: Path) -> None:
    async with guarded(tmp_path, require_full_signature=True) as broker, from_afar(broker) as wire:
        answer = await wire.call(signed(fresh_send(), apache_signer(ALICE)))
        assert (answer.code, answer.remark) == (
            REFUSED,
            "Check full signature failed: it has none, and requireFullSignature is true: use TLS, or a client"
            " of PyroMQ",
        )
        sign = signer(ALICE)
        for _ in range(3):
            assert (await wire.call(signed(fresh_send(), sign))).code == SUCCESS
        assert (await wire.call(disguised(signed(fresh_send(), sign)))).code == REFUSED
        async with await WireClient.connect(broker.address) as near:
            assert (await near.call(signed(fresh_send(), apache_signer(ALICE)))).code == SUCCESS


async def test_what_was_signed_before_a_server_started_is_not_full(tmp_path: Path) -> None:
    before = ManualClock(int(time.time() * 1000) - 1000)
    for required, code in ((True, REFUSED), (False, SUCCESS)):
        async with (
            guarded(tmp_path / str(required), require_full_signature=required) as broker,
            from_afar(broker) as wire,
        ):
            assert (await wire.call(signed(pull(0), signer(ALICE, clock=before)))).code in (
                code,
                ResponseCode.PULL_NOT_FOUND if code == SUCCESS else code,
            )
            assert (await wire.call(signed(ListUsers(), signer(SERVER, clock=before)))).code == REFUSED


async def test_on_a_private_connection_a_wrong_full_signature_is_refused_and_an_old_one_is_not(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as broker, await WireClient.connect(broker.address) as near:
        slow = ManualClock(1)
        frame = signed(ListUsers(), signer(ROOT, clock=slow))
        for _ in range(2):
            assert (await near.call(frame)).code == SUCCESS
        frame.flag |= 4
        assert (await near.call(frame)).code == REFUSED
