"""`pyromq.testing`: a real cluster that a test can stop, kill and start again."""

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pyromq import testing
from pyromq.errors import ConfigError, StateError
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.requests.offsets import GetMaxOffset
from pyromq.protocol.requests.routes import GetRoute
from pyromq.protocol.requests.sending import SendMessageV2
from pyromq.protocol.requests.settings import GetBrokerConfig
from pyromq.remoting.dialer import Dialer
from pyromq.testing import RunningCluster, aio_cluster, cluster

A = TypeVar("A", bound=Answer)

TIMEOUT_S = 60.0


def send(body: bytes = b"x") -> SendMessageV2:
    return SendMessageV2(
        producer_group="g",
        topic="Orders",
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
        body=body,
    )


def ask(address: str, request: Request[A]) -> A:
    async def ask_once() -> A:
        dialer = Dialer()
        try:
            return await dialer.call(address, request, TIMEOUT_S)
        finally:
            await dialer.close()

    return asyncio.run(ask_once())


def sent(address: str) -> int:
    """Send a message; the offset it got."""
    return ask(address, send()).queue_offset


def test_a_cluster_lives_as_long_as_its_block_and_leaves_nothing_behind() -> None:
    threads = set(threading.enumerate())
    with cluster() as running:
        assert sent(running.broker_address) == 0
        assert (running.store / "commitlog").is_dir()
        assert running.store.parent == Path(tempfile.gettempdir())
    assert not running.store.exists()
    assert set(threading.enumerate()) <= threads


def test_clients_find_the_broker_through_the_name_server() -> None:
    with cluster(broker_name="till") as running:
        route = ask(running.namesrv, GetRoute(topic="TBW102")).body
        (broker,) = route.broker_datas
        assert (broker.broker_name, broker.broker_addrs) == ("till", {0: running.broker_address})


def test_a_restart_keeps_addresses_and_messages(tmp_path: Path) -> None:
    with cluster(tmp_path, flush="sync") as running:
        before = (running.namesrv, running.broker_address)
        assert [sent(running.broker_address) for _ in range(2)] == [0, 1]
        running.restart()
        assert (running.namesrv, running.broker_address) == before
        assert sent(running.broker_address) == 2
    assert (tmp_path / "commitlog").is_dir()


def test_a_killed_broker_recovers_what_it_had(tmp_path: Path) -> None:
    with cluster(tmp_path) as running:
        assert [sent(running.broker_address) for _ in range(2)] == [0, 1]
        running.kill_broker()
        assert (tmp_path / "abort").exists()
        with pytest.raises(StateError, match="no broker is running"):
            _ = running.broker_address
        running.start_broker()
        assert ask(running.broker_address, GetMaxOffset(topic="Orders", queue_id=0)).offset == 2
    assert not (tmp_path / "abort").exists()


def test_only_a_broker_that_is_stopped_writes_how_far_it_was(tmp_path: Path) -> None:
    progress = tmp_path / "config" / "delayOffset.json"
    with cluster(tmp_path) as running:
        running.kill_broker()
        assert not progress.exists()
        running.start_broker()
    assert progress.exists()


def test_brokers_of_a_cluster_come_and_go_one_by_one() -> None:
    with cluster(brokers=2) as running:
        first, second = running.broker_addresses
        assert [sent(first), sent(second)] == [0, 0]
        running.stop_broker(0)
        assert running.broker_addresses == [second]
        running.start_broker(0)
        assert running.broker_addresses == [first, second]
        assert sent(first) == 1
        assert {each.name for each in running.store.iterdir()} >= {"broker-a", "broker-b"}


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"broker_role": "SLAVE"}, "brokerRole"),
        ({"metrics_exporter": "PROM", "metrics_port": 0, "metrics_labels": "x"}, "metricsLabel"),
    ],
)
def test_a_cluster_that_cannot_start_leaves_nothing_behind(
    tmp_path: Path, setting: dict[str, Any], complaint: str
) -> None:
    threads = set(threading.enumerate())
    with pytest.raises(ConfigError, match=complaint), cluster(tmp_path, **setting):
        raise AssertionError("it started")
    gc.collect()  # what was left open would be told about now
    assert set(threading.enumerate()) <= threads
    assert not (tmp_path / "abort").exists()


async def test_a_cluster_can_share_the_loop_of_a_test(tmp_path: Path) -> None:
    async with aio_cluster(tmp_path, broker_name="till") as running:
        dialer = Dialer()
        answer = await dialer.call(running.broker.advertised_address, send(), TIMEOUT_S)
        assert answer.queue_offset == 0
        await running.kill_broker()
        await running.start_broker()
        answer = await dialer.call(running.broker.advertised_address, send(), TIMEOUT_S)
        assert answer.queue_offset == 1
        await dialer.close()
    assert (tmp_path / "commitlog").is_dir()


def test_settings_of_brokers_and_of_their_stores_are_given_by_their_names_in_python() -> None:
    with cluster(log_segment_bytes=6_000_000, max_message_bytes=1000, auto_create_topics=False) as running:
        store = ask(running.broker_address, GetBrokerConfig()).body
        assert "mappedFileSizeCommitLog=6000000" in store
        assert "maxMessageSize=1000" in store
        assert "autoCreateTopicEnable=false" in store


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("auto_create_topic", "did you mean 'auto_create_topics'"),
        ("file_reserved_hour", "did you mean 'file_reserved_hours'"),
        ("zzz", "docs/reference lists all"),
    ],
)
def test_a_setting_that_does_not_exist_is_refused_with_the_name_that_was_meant(
    wrong: str, meant: str
) -> None:
    given: dict[str, Any] = {wrong: 1}
    complaint = f"no broker or store has a setting '{wrong}': {meant}"
    with pytest.raises(TypeError, match=complaint), cluster(**given):
        pass


@pytest.mark.parametrize("wrong", [{"brokers": 0}, {"brokers": 27}, {"replicas": 0}, {"flush": "SYNC"}])
def test_a_cluster_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^{next(iter(wrong))}="), cluster(**wrong):
        pass


def test_names_that_are_not_there_are_told() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'clustre'"):
        _ = testing.clustre
    assert testing.RunningCluster is RunningCluster


def run_pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_fixture_gives_a_test_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import socket\n"
        "def test_it(rocketmq):\n"
        "    host, port = rocketmq.namesrv.split(':')\n"
        "    socket.create_connection((host, int(port)), timeout=10).close()\n"
    )
    done = run_pytest(tmp_path, "-W", "error", "-p", "pyromq.testing.pytest_plugin")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_plugin_imports_nothing_of_a_broker() -> None:
    script = (
        "import sys\n"
        "import pyromq.testing.pytest_plugin\n"
        "sys.exit(','.join(sorted(name for name in sys.modules if name.startswith('pyromq'))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr.strip() == "pyromq,pyromq.testing,pyromq.testing.pytest_plugin"


@pytest.mark.parametrize(
    ("misuse", "problem"),
    [
        (lambda running: running.kill_broker(2), r"broker 2 is not running: .* running: \[0, 1\]"),
        (lambda running: running.stop_broker(-1), "broker -1 is not running"),
        (lambda running: running.start_broker(1), "broker 1 cannot be started"),
        (lambda running: running.start_broker(2), "there are 2, numbered from 0"),
    ],
)
def test_a_broker_that_is_not_there_is_named(misuse: Callable[[RunningCluster], None], problem: str) -> None:
    with cluster(brokers=2) as running:
        with pytest.raises(StateError, match=problem):
            misuse(running)
        assert len(running.broker_addresses) == 2
