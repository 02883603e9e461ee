"""Our clients at Apache's brokers with access control: our full signature is one more field to them."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from tests.support.apache import ApacheBroker, ApacheNameServer, wait_for_broker
from tests.support.apache_releases import ALL_RELEASES, APACHE_4, Release

from pyromq import Credentials, Message, PyroError, ReceivedMessage, TlsOptions, aio
from pyromq.protocol.frame import HeaderForm

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

FORMS = pytest.mark.parametrize("form", list(HeaderForm), ids=lambda form: form.name.lower())
KEY, SECRET = "RocketMQ", "12345678"
TIMEOUT_S = 180.0

_ACCOUNTS = f"""globalWhiteRemoteAddresses: []
accounts:
- accessKey: {KEY}
  secretKey: {SECRET}
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
_PROVIDERS = "org.apache.rocketmq.auth.authentication.provider"
_SETTINGS_5 = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_PROVIDERS}.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_PROVIDERS}.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": KEY, "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": KEY, "secretKey": SECRET}),
}


@pytest.fixture(scope="module", params=ALL_RELEASES, ids=str)
def names(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    release: Release = request.param
    store = tmp_path_factory.mktemp("store")
    settings = {"aclEnable": "true"} if release is APACHE_4 else _SETTINGS_5
    with ApacheNameServer(release, tls=True) as server:
        broker = ApacheBroker(release, server.address, store, settings=settings, tls=True)
        (broker.home / "conf" / "plain_acl.yml").write_text(_ACCOUNTS)
        with broker:
            wait_for_broker(server.address, broker.name)
            yield server.address


@FORMS
async def test_who_signs_sends_and_consumes(names: str, form: HeaderForm) -> None:
    topic, credentials = f"Signed{form.name}", Credentials(KEY, SECRET)
    arrived: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
    async with aio.Producer("orders", names, credentials=credentials, form=form) as producer:
        one = Message(topic, b"one", tags="A", keys=["k"], properties={"colour": "grün"})
        sent = [await producer.send(one)]
        sent += await producer.send([Message(topic, b"two"), Message(topic, b"three")])
    consumer = aio.PushConsumer(
        f"billing{form.name}", names, credentials=credentials, form=form, start_from="first"
    )
    consumer.subscribe(topic, "*", arrived.put)
    async with asyncio.timeout(TIMEOUT_S), consumer:
        received = [await arrived.get() for _ in sent]
    assert {message.message_id for message in received} == {result.message_id for result in sent}


@pytest.mark.parametrize(
    "credentials", [None, Credentials(KEY, "87654321"), Credentials("Stranger", SECRET)], ids=repr
)
async def test_who_does_not_sign_well_is_refused(names: str, credentials: Credentials | None) -> None:
    async with aio.Producer("orders", names, credentials=credentials) as producer:
        with pytest.raises(PyroError):
            await producer.send(Message("Refused", b"x"))


async def test_everything_can_be_said_in_tls(names: str) -> None:
    """Apache's servers have a certificate of their own making unless they are given one."""
    options = TlsOptions(verify=False)
    async with aio.Producer("orders", names, credentials=Credentials(KEY, SECRET), tls=options) as producer:
        assert (await producer.send(Message("Hidden", b"x"))).is_ok
