"""Celery on a cluster with users and TLS: with the rights that its page names, and with no others."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from tests.support.access import client, grant, user_creation

from pyromq import aio
from pyromq.apps.secure_files import SecureFiles
from pyromq.errors import PyroError
from pyromq.remoting.tls import TlsOptions
from pyromq.security.signature import Credentials, credentials_from_text
from pyromq.standalone import Standalone, StandaloneSettings

kombu = pytest.importorskip("kombu")
pytestmark = pytest.mark.filterwarnings("ignore")

TIMEOUT_S = 30.0
SHOP = Credentials("shop", "the secret of shop")
RIGHTS = [
    "Pub,Sub on Topic:mail",
    "Pub,Sub on Topic:CELERY-REPLIES",
    "Pub,Sub on Topic:CELERY-EXCHANGE_*",
    "Sub on Group:CELERY_*",
    "Sub on Group:TOOLS_CONSUMER",
]


class Place(NamedTuple):
    namesrv: str
    trust: Path

    def connection(self, scheme: str = "rocketmqs", secret: str = SHOP.secret_key) -> Any:
        import kombu.serialization

        ssl = {"ca_certs": str(self.trust)} if scheme == "rocketmqs" else None
        url = f"{scheme}://shop:{secret.replace(' ', '%20')}@{self.namesrv}"
        return kombu.Connection(url, ssl=ssl)


async def is_known(producer: aio.Producer) -> bool:
    try:
        await producer.queues("mail")
    except PyroError:
        return False
    return True


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    files = SecureFiles(tmp_path / "security")
    files.make("127.0.0.1")
    settings = StandaloneSettings(
        store=tmp_path,
        namesrv_port=0,
        broker_port=0,
        grpc_port=0,
        servers=files.settings(),
        store_settings={"log_segment_bytes": 1 << 20, "index_slots": 100, "index_units": 400},
    )
    keys = credentials_from_text(files.key_file.read_text())
    async with Standalone(settings) as running:
        tls = TlsOptions(trust_path=files.certificate, verify=True)
        async with client(running.broker.address, keys, tls=tls) as administrator:
            await administrator.call(user_creation(SHOP))
            await administrator.call(grant(SHOP, *RIGHTS))
        async with aio.Producer(
            "tills", running.namesrv, tls=tls, credentials=keys, send_timeout_s=TIMEOUT_S
        ) as producer:
            for topic in ("mail", "CELERY-REPLIES", "CELERY-EXCHANGE_news"):
                await producer.declare_topic(topic, queues=2)
        # The name server reads the same file, a little later.
        async with aio.Producer("tills", running.namesrv, tls=tls, credentials=SHOP) as producer:
            until = asyncio.get_running_loop().time() + TIMEOUT_S
            while not await is_known(producer):
                assert asyncio.get_running_loop().time() < until
                await asyncio.sleep(0.05)
        yield Place(running.namesrv, files.certificate)


async def test_the_rights_that_the_page_names_are_enough(place: Place) -> None:
    def work() -> list[Any]:
        found: list[Any] = []
        private = str(uuid4())

        def take(body: Any, message: Any) -> None:
            found.append(body)
            message.ack()

        with place.connection() as connection:
            queues = [
                kombu.Queue("mail", routing_key="mail"),
                kombu.Queue(private, kombu.Exchange("news", type="fanout"), auto_delete=True),
            ]
            consumer = kombu.Consumer(connection, queues, accept=["json"])
            consumer.register_callback(take)
            with consumer:
                connection.Producer().publish({"a": 1}, routing_key="mail")
                connection.Producer(exchange=queues[1].exchange).publish({"b": 2})
                while len(found) < 2:
                    connection.drain_events(timeout=TIMEOUT_S)
        return found

    assert sorted(await asyncio.to_thread(work), key=str) == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(("queue", "secret"), [("payments", SHOP.secret_key), ("mail", "guessed")])
async def test_a_task_of_another_queue_or_another_account_is_refused(
    place: Place, queue: str, secret: str
) -> None:
    def work() -> None:
        with place.connection(secret=secret) as connection:
            connection.Producer().publish("a task", routing_key=queue, retry=False)

    with pytest.raises((PyroError, kombu.exceptions.OperationalError)):
        await asyncio.to_thread(work)


async def test_no_one_connects_without_tls(place: Place) -> None:
    with pytest.raises(PyroError):
        await asyncio.to_thread(lambda: place.connection("rocketmq").connect())
