"""Tests of kombu, Celery, Dramatiq and FastStream themselves, with our brokers.

python -m tools.framework_suites [kombu|celery|celery-on-redis|dramatiq|faststream] [arguments of pytest]

The sources are those on PyPI, except FastStream's: its tests are only in its repository. FASTSTREAM is the
path of a checkout, and without it this suite does not run.

kombu's classes run with three fixtures. Celery's need Redis, for results and for what a few tests look up:
Debian's package, which apt downloads where it may. `celery-on-redis` is the same run with Redis as the
broker, to compare: it runs only if it is asked for. What is left out, and why, is below.
Of Dramatiq's tests of Redis and RabbitMQ, those run that do not look into these. Of FastStream's, those run
that every broker of its own runs, on a cluster and in memory.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.places import ROOT

from pyromq.testing import cluster
from pyromq.testing.held_ports import held_port

PLACE = ROOT / "build" / "frameworks"
_REDIS = (
    "redis-tools",
    "libjemalloc2",
    "liblzf1",
    "liblua5.1-0",
    "lua-cjson",
    "lua-bitop",
    "libatomic1",
)
_PLUGINS = ("pytest-rerunfailures", "pytest-order", "redis", "psutil", "pika", "dirty-equals")

KOMBU_LEFT_OUT = (
    # A waiting pop cannot be taken back: a consumer that was just cancelled meets the message and returns it,
    # behind others of its priority. kombu's own tests of Redis have another version of this one, too.
    "Priority and test_publish_requeue_consume",
    # It looks at the port of a connection that was not opened. kombu leaves a URL with several name servers
    # to the transport, and knows no port.
    "test_failover_switches_to_alternate_url",
)
CELERY_LEFT_OUT = (
    "test_scheduled",  # tasks with an ETA wait at the broker, not in the worker
    "trace_log",  # the worker's log does not reach pytest: it fails on Redis, too
)

_KOMBU_TESTS = """
import os

import kombu
import kombu.serialization
import pytest

from .common import *

URL = os.environ["TEST_BROKER"]


@pytest.fixture
def connection():
    return kombu.Connection(URL)


@pytest.fixture
def invalid_connection():
    return kombu.Connection("rocketmq://127.0.0.1:1")


@pytest.fixture
def failover_connection():
    return kombu.Connection(f"rocketmq://127.0.0.1:1;{URL}", connect_timeout=10)


class TestBasicFunctionality(BasicFunctionality):
    pass


class TestExchangeTypes(BaseExchangeTypes):
    pass


class TestPriority(BasePriority):
    pass


class TestTimeToLive(BaseTimeToLive):
    pass


class TestMessage(BaseMessage):
    pass


class TestFailover(BaseFailover):
    pass
"""

DRAMATIQ_OF_REDIS = (
    "actors_can_be_sent_messages",
    "actors_retry_with_backoff_on_failure",
    "actors_can_retry_multiple_times",
    "actors_can_have_their_messages_delayed",
    "actors_can_delay_messages_independent_of_each_other",
    "broker_can_join_with_timeout",
    "broker_can_flush_queues",
)
DRAMATIQ_OF_RABBITMQ = (*DRAMATIQ_OF_REDIS, "broker_can_enqueue_messages_with_priority")
_DRAMATIQ_FIXTURES = """
import os
import time
from uuid import uuid4

import dramatiq
import pytest

from pyromq.dramatiq import DramatiqBroker


class Broker(DramatiqBroker):
    # Its `join` counts delayed messages, as the tests expect; ours leaves them to the cluster.

    def __init__(self):
        super().__init__(f"{os.environ['TEST_BROKER']}-{uuid4().hex[:8]}", max_priority=9)
        self.delayed = set()
        self.add_middleware(Noting())

    def enqueue(self, message, *, delay=None):
        if delay is not None:
            self.delayed.add(message.message_id)
        return super().enqueue(message, delay=delay)

    def join(self, queue_name, min_successes=None, **options):
        while True:
            super().join(queue_name, **options)
            if not self.delayed:
                return
            time.sleep(0.05)


class Noting(dramatiq.Middleware):
    def after_process_message(self, broker, message, **_):
        broker.delayed.discard(message.message_id)


@pytest.fixture
def redis_broker():
    broker = Broker()
    dramatiq.set_broker(broker)
    yield broker
    broker.close()


@pytest.fixture
def redis_worker(redis_broker):
    worker = dramatiq.Worker(redis_broker, worker_timeout=100)
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture
def rabbitmq_broker(redis_broker):
    return redis_broker


@pytest.fixture
def rabbitmq_worker(redis_worker):
    return redis_worker
"""
_DRAMATIQ_COMMON = """
from contextlib import contextmanager

import pytest
from dramatiq import Worker

RABBITMQ_CREDENTIALS = RABBITMQ_PASSWORD = RABBITMQ_USERNAME = None
skip_unless_rabbit_mq = pytest.mark.skipif(False, reason="")


@contextmanager
def worker(*arguments, **options):
    started = Worker(*arguments, **options)
    started.start()
    try:
        yield started
    finally:
        started.stop()
"""

FASTSTREAM_LEFT_OUT = (
    # FastStream 0.7.8 writes the topic there, and not the title, for its own brokers as for ours.
    "test_slash_in_title and 3_0_0",
)
_FASTSTREAM_TESTS = """
import asyncio
from importlib import import_module
from unittest.mock import AsyncMock, MagicMock
from uuid import uuid4

import pytest
from faststream import BaseMiddleware, ContextRepo

from pyromq.faststream import RocketBroker, RocketPublisher, RocketRoute, RocketRouter, TestRocketBroker
from pyromq.faststream.commands import RocketCommand
from pyromq.faststream.fastapi import FastApiRouter
from pyromq.faststream.testing import MemoryProducer


def given(value):
    return pytest.fixture(lambda: value())


queue = given(lambda: str(uuid4()))
event, event2, event3 = given(asyncio.Event), given(asyncio.Event), given(asyncio.Event)
mock, mock2, async_mock = given(MagicMock), given(MagicMock), given(AsyncMock)
context, router, settings = given(ContextRepo), given(RocketRouter), given(lambda: None)
fake_producer_cls = given(lambda: MemoryProducer)


class Fourfold(BaseMiddleware):
    async def consume_scope(self, call_next, message):
        message.body *= 4
        return await call_next(message)


class OnACluster:
    timeout = 60.0

    def get_broker(self, apply_types=False, **options):
        return RocketBroker(apply_types=apply_types, **options)

    def get_router(self, **options):
        return RocketRouter(**options)

    def get_middleware(self, **_):
        return Fourfold


class InMemory(OnACluster):
    def patch_broker(self, *brokers, **options):
        return TestRocketBroker(*brokers, **options)


class Plain:
    pass


class OfFastApi:
    broker_class = router_class = FastApiRouter
    broker_wrapper = staticmethod(TestRocketBroker)

    def get_spec(self, broker):
        return super().get_spec(broker.broker)


def case(kind, *places, **own):
    found = [f"tests.{place}".rpartition(".") for place in places]
    bases = [getattr(import_module(module), name) for module, _, name in found]
    name = f"Test_{places[0]}_{kind.__name__}".replace(".", "_")
    globals()[name] = type(name, (kind, *bases), own)


routes = {"route_class": RocketRoute, "publisher_class": RocketPublisher}
web = {"router_class": FastApiRouter, "broker_router_class": RocketRouter}
case(OnACluster, "brokers.base.connection.BrokerConnectionTestcase", broker=RocketBroker)
case(OnACluster, "brokers.base.consume.BrokerRealConsumeTestcase")
case(OnACluster, "brokers.base.fastapi.FastAPITestcase", **web)
case(InMemory, "brokers.base.fastapi.FastAPILocalTestcase", **web)
case(OnACluster, "brokers.base.future.fastapi.FastapiTestCase", **web)
case(OnACluster, "brokers.base.include_router.IncludeSubscriberTestcase")
case(OnACluster, "brokers.base.include_router.IncludePublisherTestcase")
case(InMemory, "brokers.base.codec.CodecTestcase")
case(InMemory, "brokers.base.middlewares.MiddlewaresOrderTestcase")
case(OnACluster, "brokers.base.middlewares.MiddlewareTestcase")
case(OnACluster, "brokers.base.middlewares.ExceptionMiddlewareTestcase")
case(OnACluster, "brokers.base.parser.CustomParserTestcase")
case(OnACluster, "brokers.base.publish.BrokerPublishTestcase")
case(Plain, "brokers.base.publish_command.BasePublishCommandTestcase", publish_command_cls=RocketCommand)
case(OnACluster, "brokers.base.requests.RequestsTestcase")
case(InMemory, "brokers.base.requests.RequestsTestcase")
case(OnACluster, "brokers.base.router.RouterTestcase", **routes)
case(InMemory, "brokers.base.router.RouterLocalTestcase", **routes)
case(InMemory, "brokers.base.testclient.BrokerTestclientTestcase")
for version in "2_6_0", "3_0_0":
    pages = f"asyncapi.base.v{version}"
    case(Plain, f"{pages}.arguments.ArgumentsTestcase", broker_class=RocketBroker)
    case(Plain, f"{pages}.naming.NamingTestCase", broker_class=RocketBroker)
    case(Plain, f"{pages}.publisher.PublisherTestcase", broker_class=RocketBroker)
    case(
        Plain,
        f"{pages}.router.RouterTestcase",
        broker_class=RocketBroker,
        router_class=RocketRouter,
        **routes,
    )
    case(OfFastApi, f"{pages}.publisher.PublisherTestcase")
    case(OfFastApi, f"{pages}.fastapi.FastAPITestCase", f"{pages}.arguments.FastAPICompatible")
"""


def source(name: str) -> Path:
    """The unpacked source distribution of the version that is installed here."""
    from importlib.metadata import version

    wanted = f"{name}-{version(name)}"
    if not (PLACE / wanted).exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", name]
        subprocess.run([*pip, "-d", str(PLACE), wanted.replace("-", "==")], check=True)
        with tarfile.open(PLACE / f"{wanted}.tar.gz") as archive:
            archive.extractall(PLACE, filter="data")
    return PLACE / wanted


def plugins() -> Path:
    """What the suites need besides our own dependencies; the client of Redis, for one."""
    place = PLACE / "plugins"
    if not (place / "dirty_equals").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        subprocess.run([*pip, "--target", str(place), *_PLUGINS], check=True)
    return place


def run(place: Path, tests: list[str], left_out: tuple[str, ...], given: list[str], **environ: str) -> int:
    chosen = ["-k", " and ".join(f"not ({each})" for each in left_out)] if left_out else []
    own = [
        f"-p{each}"
        for each in ("pytest_rerunfailures", "pytest_order", "pytest_timeout", "celery.contrib.pytest")
    ]
    own += ["-q", "-c", os.devnull, "--rootdir", ".", "-o", "python_classes=test_* Test*"]
    paths = {"PYTHONPATH": f"{place}:{plugins()}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *own, *chosen, *tests, *given],
        cwd=place,
        env=os.environ | paths | environ,
        check=False,
    ).returncode


def kombu(url: str, given: list[str]) -> int:
    place = source("kombu")
    (place / "t" / "integration" / "test_rocketmq.py").write_text(_KOMBU_TESTS)
    return run(place, ["t/integration/test_rocketmq.py"], KOMBU_LEFT_OUT, given, TEST_BROKER=url)


def celery(url: str | None, given: list[str]) -> int:
    """With the broker of the URL; None: Redis."""
    place = source("celery")
    with held_port() as port:
        redis = subprocess.Popen(
            [redis_server(), "--port", str(port), "--save", ""],
            stdout=subprocess.DEVNULL,
            env=redis_environ(),
        )
        try:
            time.sleep(1)
            return run(
                place,
                [
                    "t/integration/test_tasks.py",
                    "t/integration/test_canvas.py",
                    "t/integration/test_inspect.py",
                ],
                CELERY_LEFT_OUT if url else (),
                given,
                TEST_BROKER=url or f"redis://127.0.0.1:{port}/1",
                TEST_BACKEND=f"redis://127.0.0.1:{port}",
                REDIS_PORT=str(port),
            )
        finally:
            redis.kill()
            redis.wait()


def dramatiq(url: str, given: list[str]) -> int:
    place = source("dramatiq")
    for name, text in (("__init__", ""), ("conftest", _DRAMATIQ_FIXTURES), ("common", _DRAMATIQ_COMMON)):
        (place / "tests" / f"{name}.py").write_text(text)
    tests = [f"tests/test_redis.py::test_redis_{each}" for each in DRAMATIQ_OF_REDIS]
    tests += [f"tests/test_rabbitmq.py::test_rabbitmq_{each}" for each in DRAMATIQ_OF_RABBITMQ]
    return run(place, tests, (), given, TEST_BROKER=url)


def faststream(url: str, given: list[str]) -> int:
    place = PLACE / "faststream"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(Path(os.environ["FASTSTREAM"]) / "tests", place / "tests")
    (place / "tests" / "conftest.py").unlink()  # needs what its commands need
    (place / "tests" / "test_rocketmq.py").write_text(_FASTSTREAM_TESTS)
    tests = ["tests/test_rocketmq.py", "-ppytest_asyncio.plugin", "-oasyncio_mode=auto"]
    return run(place, tests, FASTSTREAM_LEFT_OUT, given, PYROMQ_URL=url)


def debian(name: str, packages: Sequence[str]) -> Path:
    """Debian's packages, unpacked here."""
    place = PLACE / name
    unpacked = place / "unpacked"
    if not unpacked.exists():
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", *packages], cwd=place, check=True)
        for package in place.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(place)], check=True)
            package.unlink()
        unpacked.touch()
    return place


def redis_server() -> str:
    place = debian("redis", _REDIS)
    server = place / "redis-server"
    if not server.exists():
        server.symlink_to(place / "usr" / "bin" / "redis-check-rdb")  # one program, which goes by its name
    return str(server)


def redis_environ() -> dict[str, str]:
    libraries = {str(path.parent) for path in (PLACE / "redis").rglob("*.so*")}
    return os.environ | {"LD_LIBRARY_PATH": ":".join(sorted(libraries))}


def celery_on_redis(_: str, given: list[str]) -> int:
    return celery(None, given)


SUITES = {
    "kombu": kombu,
    "celery": celery,
    "celery-on-redis": celery_on_redis,
    "dramatiq": dramatiq,
    "faststream": faststream,
}
ASKED_FOR = {"celery-on-redis"} | ({"faststream"} if "FASTSTREAM" not in os.environ else set())


def main(arguments: list[str]) -> int:
    PLACE.mkdir(parents=True, exist_ok=True)
    usual = [each for each in SUITES if each not in ASKED_FOR]
    chosen = [each for each in arguments if each in SUITES] or usual
    given = [each for each in arguments if each not in SUITES]
    worst = 0
    for name in chosen:
        with cluster() as running:
            worst = max(worst, SUITES[name](f"rocketmq://{running.namesrv}/suite", given))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
