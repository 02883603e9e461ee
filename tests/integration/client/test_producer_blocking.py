"""The blocking face: many threads, forks and Ctrl-C; it never hangs."""

import asyncio
import inspect
import signal
import sys
import threading
from asyncio import StreamReader
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.client_cluster import stored_messages
from tests.support.scripted_broker import ScriptedBroker

from pyromq import Message, Producer, TransactionProducer, aio
from pyromq.client.blocking import LoopThread
from pyromq.errors import BadMessage, ConfigError, NoRoute, SendFailed, StateError
from pyromq.testing import RunningCluster, cluster

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker("Orders") as scripted:
        yield scripted


BUILDING_BLOCKS = {"check_transaction", "end", "prepare", "running"}
"""Methods of the asyncio face that applications have no use for."""


@pytest.mark.parametrize(
    ("blocking", "awaited"),
    [(Producer, aio.Producer), (TransactionProducer, aio.TransactionProducer)],
    ids=["Producer", "TransactionProducer"],
)
def test_both_faces_have_the_same_methods_and_parameters(blocking: type, awaited: type) -> None:
    for name, method in inspect.getmembers(awaited, inspect.isfunction):
        if not name.startswith("_") and name not in BUILDING_BLOCKS:
            mine = inspect.signature(getattr(blocking, name))
            assert mine.parameters == inspect.signature(method).parameters, name
            assert mine.return_annotation == inspect.signature(method).return_annotation, name
    assert inspect.signature(blocking) == inspect.signature(awaited)


def test_messages_are_sent_one_by_one_and_together(running: RunningCluster) -> None:
    with Producer("orders", namesrv=running.namesrv) as producer:
        result = producer.send(Message("Blocking", b"one", tags="Created", keys=["o-1"]))
        results = producer.send([Message("Blocking", b"two"), Message("Blocking", b"three")])
        producer.send_oneway(Message("Blocking", b"four"))
        assert len(producer.queues("Blocking")) == 4
        assert producer.statistics().in_flight == 0
        assert producer.group == "orders"
        assert "blocking" in repr(producer)
    assert result.is_ok
    assert all(each.is_ok for each in results)
    with pytest.raises(StateError, match="is closed"):
        producer.send(Message("Blocking", b"late"))


async def test_many_threads_share_a_producer(running: RunningCluster) -> None:
    def script() -> set[str]:
        with (
            Producer("orders", namesrv=running.namesrv) as producer,
            ThreadPoolExecutor(8) as threads,
        ):
            results = threads.map(
                lambda number: producer.send(Message("Threads", b"%d" % number)), range(200)
            )
            return {result.message_id for result in results}

    sent = await asyncio.to_thread(script)
    held = [message.get("UNIQ_KEY") for message in await stored_messages(running.broker_address, "Threads")]
    assert sorted(sent) == sorted(filter(None, held))


def test_sends_can_be_submitted(running: RunningCluster) -> None:
    with Producer("orders", namesrv=running.namesrv, max_in_flight=10) as producer:
        futures = [producer.submit(Message("Blocking", b"%d" % number)) for number in range(100)]
        producer.flush()
        assert len({future.result().message_id for future in futures}) == 100
        failing = producer.submit(Message("Blocking", b""))
        with pytest.raises(BadMessage, match="body is empty"):
            failing.result()


def test_there_is_one_loop_thread(running: RunningCluster) -> None:
    with Producer("a", namesrv=running.namesrv), Producer("b", namesrv=running.namesrv):
        named = [thread for thread in threading.enumerate() if thread.name == "pyromq-client"]
        assert len(named) == 1
        assert named[0].daemon


def test_a_blocking_call_on_the_loop_itself_is_refused(running: RunningCluster) -> None:
    async def call() -> None:
        producer.send(Message("Blocking", b"x"))

    with (
        Producer("orders", namesrv=running.namesrv) as producer,
        pytest.raises(StateError, match="would never return"),
    ):
        LoopThread.shared().run(call)


def test_bad_settings_are_told_when_the_producer_is_made() -> None:
    with pytest.raises(ConfigError, match="namesrv=nowhere: expected host:port"):
        Producer("orders", namesrv="nowhere")
    with pytest.raises(ConfigError, match="illegal characters"):
        Producer("or ders", namesrv="127.0.0.1:9876")
    with pytest.raises(ConfigError, match="name is reserved"):
        Producer("DEFAULT_PRODUCER", namesrv="127.0.0.1:9876")
    with pytest.raises(TypeError, match="unknown option 'lingre_ms'"):
        Producer("orders", namesrv="127.0.0.1:9876", lingre_ms=3)  # type: ignore[call-arg]


def test_errors_come_through(running: RunningCluster) -> None:
    with (
        Producer("orders", namesrv=running.namesrv, create_topic_key="nothing") as producer,
        pytest.raises(NoRoute, match="no route for topic Nowhere"),
    ):
        producer.send(Message("Nowhere", b"x"))
    with (
        Producer("orders", namesrv="127.0.0.1:1", send_timeout_s=0.5) as producer,
        pytest.raises(SendFailed, match=r"127\.0\.0\.1:1"),
    ):
        producer.send(Message("Orders", b"x"))


# Other processes


@asynccontextmanager
async def script(text: Callable[..., None], *arguments: str) -> AsyncIterator[Process]:
    """Run a function of this file, alone in a process."""
    source = inspect.getsource(text)
    process = await create_subprocess_exec(
        sys.executable, "-c", f"import sys\n{source}\n{text.__name__}(*sys.argv[1:])", *arguments,
        stdout=PIPE, stderr=PIPE, cwd=ROOT,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def fork_script(namesrv: str) -> None:
    import os

    from pyromq import Message, Producer, StateError

    with Producer("orders", namesrv=namesrv) as producer:
        producer.send(Message("Forks", b"parent"))
        child = os.fork()
        if child == 0:
            try:
                producer.send(Message("Forks", b"impossible"))
            except StateError as problem:
                if "create new producers and consumers in the" in str(problem):
                    producer.close()
                    with Producer("orders", namesrv=namesrv) as own:
                        own.send(Message("Forks", b"child"))
                    os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        producer.send(Message("Forks", b"parent again"))


async def test_after_a_fork_the_child_makes_its_own(running: RunningCluster) -> None:
    async with script(fork_script, running.namesrv) as process:
        _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
    held = await stored_messages(running.broker_address, "Forks")
    assert sorted(message.body for message in held) == [b"child", b"parent", b"parent again"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
async def test_processes_of_a_pool_make_their_own(running: RunningCluster, method: str) -> None:
    topic = f"Pool-{method}"
    process = await create_subprocess_exec(
        sys.executable, "-m", "tests.support.pool_of_senders", running.namesrv, topic, method,
        stdout=PIPE, stderr=PIPE, cwd=ROOT,
    )  # fmt: skip
    try:
        _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
    finally:
        if process.returncode is None:
            process.kill()
    held = await stored_messages(running.broker_address, topic)
    expected = [b"parent", *(b"%d" % number for number in range(8))]
    assert sorted(message.body for message in held) == sorted(expected)


def interrupted_script(namesrv: str) -> None:
    from pyromq import Message, Producer

    with Producer("orders", namesrv=namesrv, send_timeout_s=60) as producer:
        try:
            producer.send(Message("Orders", b"x"))
        except KeyboardInterrupt:
            print("interrupted", producer.statistics().in_flight, flush=True)  # noqa: T201


async def test_an_interrupt_ends_the_waiting_and_the_block_closes(broker: ScriptedBroker) -> None:
    broker.hold = asyncio.Event()
    async with script(interrupted_script, broker.address) as process:
        await broker.arrived.get()
        process.send_signal(signal.SIGINT)
        assert isinstance(process.stdout, StreamReader)
        assert (await process.stdout.readline()).startswith(b"interrupted")
        assert await process.wait() == 0
        assert (await broker.goodbyes.get()).producer_group == "orders"
    broker.hold.set()


def unclosed_script(namesrv: str) -> None:
    from pyromq import Message, Producer

    producer = Producer("orders", namesrv=namesrv)
    producer.start()
    producer.send(Message("Orders", b"x"))


async def test_a_process_ends_though_a_producer_was_not_closed(broker: ScriptedBroker) -> None:
    async with script(unclosed_script, broker.address) as process:
        _, errors = await process.communicate()
        assert (process.returncode, errors) == (0, b"")


def import_script() -> None:
    import pyromq

    assert not [name for name in sys.modules if name.startswith("pyromq.")], "importing costs nothing"
    assert pyromq.Producer.__name__ == "Producer"
    assert "PushConsumer" not in vars(pyromq)
    assert set(pyromq.__all__) <= set(dir(pyromq))


async def test_importing_the_package_imports_nothing_else() -> None:
    async with script(import_script) as process:
        _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()


def test_every_name_of_the_face_exists() -> None:
    import pyromq

    for name in pyromq.__all__:
        value = getattr(pyromq, name)
        assert not callable(value) or value.__name__ == name
    assert aio.__all__ == pyromq.__all__
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        pyromq.Nothing  # type: ignore[attr-defined]  # noqa: B018
    assert pyromq.__version__
