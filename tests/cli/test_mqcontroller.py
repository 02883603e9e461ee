"""mqcontroller, and a controller in mqnamesrv, as an operator meets them; mqadmin asks them."""

import asyncio
import json
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.controlled_brokers import ControlledBroker
from tests.support.server_programs import CONTROLLER, NAME_SERVER, get

from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.testing.held_ports import held_port

QUIET = ("--log-dir", "", "-o", "bindAddress=127.0.0.1")


def admin(*words: str) -> Result:
    return CliRunner().invoke(mqadmin, [*words, "--timeout", "60"], prog_name="mqadmin")


def text(*words: str) -> str:
    done = admin(*words)
    assert done.exit_code == 0, done.output
    return done.stdout


def data(*words: str) -> Any:
    return json.loads(text(*words, "--json"))


@contextmanager
def brokers_at(controller: str, count: int) -> Iterator[None]:
    """Brokers of group g that stay connected, the first of them master and alone in sync."""
    ready, done = threading.Event(), threading.Event()

    async def live() -> None:
        async with AsyncExitStack() as all_of_them:
            for number in range(count):
                broker = await all_of_them.enter_async_context(ControlledBroker(controller))
                await broker.join()
                if number == 0:
                    await broker.elect()
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    try:
        assert ready.wait(60)
        yield
    finally:
        done.set()
        thread.join()


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with CONTROLLER.running(tmp_path_factory.mktemp("home"), "--port", "0", *QUIET) as running:
        yield running.boot["address"]
        assert running.stop() == 0


def test_operators_see_and_change_what_the_controller_decides(controller: str) -> None:
    at = ("-a", controller)
    with brokers_at(controller, 2):
        assert re.search(
            rf"#ControllerLeaderAddress +{controller}\n#Peers +n0:", text("getControllerMetaData", *at)
        )
        assert data("getControllerMetaData", *at)["leaderId"] == "n0"
        shown = text("getSyncStateSet", *at, "-b", "g")
        assert re.search(r"#MasterBrokerId +1\n#MasterAddr +127.*\n#MasterEpoch +1\n", shown)
        assert re.search(r"true +1 +127\.0\.0\.1:\d+ +true\nfalse +2 +127\.0\.0\.1:\d+ +true\n", shown)
        assert len(data("getSyncStateSet", *at, "-b", "g")["g.replicas"]) == 2

        refused = admin("electMaster", *at, "-b", "2", "-bn", "g", "-c", "c")
        assert refused.exit_code == 1
        assert "no replica in sync" in refused.stderr
        changed = text("updateControllerConfig", *at, "-k", "enableElectUncleanMaster", "-v", "true")
        assert changed.startswith(f"update controller config success!{controller}\n")
        assert data("getControllerConfig", *at)[controller]["enableElectUncleanMaster"] == "true"
        elected = text("electMaster", *at, "-b", "2", "-bn", "g", "-c", "c")
        assert re.search(r"#MasterEpoch +2\n#SyncStateSetEpoch +4\n", elected)

        assert "may be alive" in admin("cleanBrokerMetadata", *at, "-bn", "g", "-b", "1").stderr
        cleaned = text("cleanBrokerMetadata", *at, "-bn", "g", "-b", "1", "-l")
        assert cleaned == "clear broker g metadata from controller success!\n"
        assert len(data("getSyncStateSet", *at, "-b", "g")["g.replicas"]) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["getSyncStateSet", "-b", "other"], "knows no broker group other"),
        (["getSyncStateSet"], "give either -b BROKER or -c CLUSTER"),
        (["updateControllerConfig", "-k", "zzz", "-v", "1"], "has no setting zzz"),
        (["cleanBrokerMetadata", "-bn", "other"], "broker group other is not known"),
        (["electMaster", "-b", "1", "-bn", "other", "-c", "c"], "broker group other has no broker 1"),
    ],
)
def test_a_failure_says_what_was_wrong(controller: str, words: list[str], expected: str) -> None:
    done = admin(*words, "-a", controller)
    assert done.exit_code != 0
    assert expected in done.stderr


def test_epochs_are_asked_from_brokers() -> None:
    assert "give either -b BROKER or -c CLUSTER" in admin("getBrokerEpoch").stderr
    assert "is one running there?" in admin("getBrokerEpoch", "-b", "g", "-n", "127.0.0.1:1").stderr


def test_decisions_survive_a_kill(tmp_path: Path) -> None:
    with CONTROLLER.running(tmp_path, "--port", "0", *QUIET) as running:
        with brokers_at(running.boot["address"], 1):
            pass
        running.stop(signal.SIGKILL)
    with CONTROLLER.running(tmp_path, "--port", "0", *QUIET) as running:
        found = data("getSyncStateSet", "-a", running.boot["address"], "-b", "g")
        assert found["g"]["masterEpoch"] >= 1


def test_a_controller_in_a_name_server_has_its_own_port_and_the_same_file(tmp_path: Path) -> None:
    with held_port() as port, held_port() as pages:
        file = tmp_path / "namesrv.conf"
        file.write_text(
            "bindAddress=127.0.0.1\nlistenPort=0\nlogDir=\nenableControllerInNamesrv=true\n"
            f"controllerDLegerPeers=n7-127.0.0.1:{port}\ncontrollerDLegerSelfId=n7\n"
            f"controllerStorePath={tmp_path}/decisions\n"
            f"metricsExporterType=PROM\nmetricsPromExporterPort={pages}\n"
        )
        with NAME_SERVER.running(tmp_path, "-c", str(file)) as running:
            assert "unknown setting" not in running.stderr()
            found = data("getControllerMetaData", "-a", f"127.0.0.1:{port}")
            assert (found["leaderId"], found["leaderAddress"]) == ("n7", f"127.0.0.1:{port}")
            assert data("getNamesrvConfig", "-n", running.boot["address"])
            assert get(f"127.0.0.1:{pages}", "/ready")[0] == 200
            assert (tmp_path / "decisions" / "groups.journal").exists()
            assert running.stop() == 0


def test_a_controller_in_a_name_server_needs_a_port(tmp_path: Path) -> None:
    done = NAME_SERVER.run(tmp_path, *QUIET, "-o", "enableControllerInNamesrv=true")
    assert done.returncode == 1
    assert "controllerDLegerPeers=: expected id-host:port" in done.stderr
