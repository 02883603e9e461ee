"""What holds for every test: the loop it runs on, no ERROR log it did not expect, no task left behind."""

import asyncio
import gc
import logging
import random
import signal
from collections.abc import Callable, Generator, Iterator

import pytest
from hypothesis import settings
from tests.support.chance import register_profiles, settle_constants
from tests.support.loop import EVERY_LOOP, FASTEST_LOOP
from tests.support.sharing import WholeFiles, put_long_ones_first, send_only_news, show_where_tests_hang
from tests.support.time_limits import TimeLimits
from xdist.remote import Producer

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background, as CI may do. Programs that tests interrupt would inherit the deafness.
    signal.signal(signal.SIGINT, signal.default_int_handler)

register_profiles()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(TimeLimits())
    if hasattr(config, "workerinput"):
        show_where_tests_hang()
        send_only_news(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays until the end: the garbage collector need not look through it meanwhile."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Whatever touches sockets itself runs on every loop we support; all else on the fastest one."""
    about_sockets = item.path.parent.name == "remoting" or item.path.name.startswith("test_remoting_")
    return EVERY_LOOP if about_sockets else FASTEST_LOOP


def _is_of_an_earlier_loop(record: logging.LogRecord) -> bool:
    """grpc.aio has one poller for all loops of a process. What it still has for the loop of an earlier test
    is reported in the loop of a later one."""
    error = record.exc_info[1] if record.exc_info else None
    return "PollerCompletionQueue" in record.getMessage() and str(error) == "Event loop is closed"


class ErrorLogs(logging.Handler):
    """Collects ERROR logs. A test that provokes some says so with `expect`."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not _is_of_an_earlier_loop(record):
            self.records.append(record)

    def expect(self, text: str) -> None:
        """Exactly one ERROR with this text was logged; it is no longer unexpected."""
        found = [record for record in self.records if text in record.getMessage()]
        assert len(found) == 1, f"expected one ERROR log with {text!r}, got {len(found)}: {self.messages}"
        self.records.remove(found[0])

    def expect_repeatedly(self, text: str) -> None:
        """ERRORs with this text were logged, nobody knows how many; they are no longer unexpected."""
        found = [record for record in self.records if text in record.getMessage()]
        assert found, f"expected ERROR logs with {text!r}, got {self.messages}"
        self.records = [record for record in self.records if record not in found]

    def allow(self, text: str) -> None:
        """ERRORs with this text may have been logged, depending on when the fault came."""
        self.records = [record for record in self.records if text not in record.getMessage()]

    @property
    def messages(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@pytest.fixture(autouse=True)
def error_logs() -> Iterator[ErrorLogs]:
    logs = ErrorLogs()
    logging.getLogger().addHandler(logs)
    yield logs
    logging.getLogger().removeHandler(logs)
    assert not logs.records, f"unexpected ERROR logs: {logs.messages}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What our own code leaves to chance falls out the same in every run: queues, orders, ids."""
    random.seed(item.nodeid)


@pytest.fixture
def _no_leaked_tasks(_function_scoped_runner: asyncio.Runner) -> Iterator[None]:
    yield
    if asyncio.all_tasks(_function_scoped_runner.get_loop()):
        _function_scoped_runner.run(_refuse_leaked_tasks())


async def _refuse_leaked_tasks() -> None:
    if leaked := asyncio.all_tasks() - {asyncio.current_task()}:
        # A task that is about to end was not left behind.
        _, leaked = await asyncio.wait(leaked, timeout=5)
    assert not leaked, f"tasks left behind: {leaked}"


@pytest.hookimpl(specname="pytest_collection_modifyitems", tryfirst=True)
def pytest_settle_constants() -> None:
    settle_constants()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_looking_for_more = not settings().derandomize
    for item in items:
        if is_looking_for_more:
            item.add_marker(pytest.mark.timeout(0), append=False)
        if isinstance(item, pytest.Function) and asyncio.iscoroutinefunction(item.obj):
            # First, so that it is torn down last.
            item.fixturenames.insert(0, "_no_leaked_tasks")
    if hasattr(config, "workerinput"):
        put_long_ones_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WholeFiles:
    return WholeFiles(config, log)
