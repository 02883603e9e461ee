"""mqbroker as an operator meets it: real processes, their output, their exit codes."""

import re
import signal
import socket
from pathlib import Path

import pytest
from tests.support.server_programs import BROKER, NAME_SERVER, Running, get

from pyromq.apps.broker import IMPORTANT_KEYS
from pyromq.broker.settings import BrokerSettings
from pyromq.protocol.requests.settings import UpdateBrokerConfig
from pyromq.remoting.dialer import Dialer
from pyromq.store.settings import StoreSettings

HERE = ("--port", "0", "-o", "bindAddress=127.0.0.1", "-o", "brokerIP1=127.0.0.1")
QUIET = ("--log-dir", "", "-o", "logLevel=ERROR")


def connect(broker: Running) -> None:
    host, _, port = broker.boot["address"].rpartition(":")
    for each in (int(port), int(port) - 2):
        socket.create_connection((host, each), timeout=60).close()


def test_print_shows_the_settings_of_both_parts_sorted_and_starts_nothing(tmp_path: Path) -> None:
    done = BROKER.run(tmp_path, "-p", "--port", "4321", "-n", "a:9876", "--store", "/data")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines == sorted(lines)
    assert {"listenPort=4321", "namesrvAddr=a:9876", "storePathRootDir=/data", "transactionCheckMax=15"} <= {
        *lines
    }
    assert list(tmp_path.iterdir()) == []


def test_the_important_settings_are_printed_alone(tmp_path: Path) -> None:
    done = BROKER.run(tmp_path, "-m", "-o", "flushDiskType=SYNC_FLUSH")
    assert done.returncode == 0
    values = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert values.keys() == IMPORTANT_KEYS
    assert values["flushDiskType"] == "SYNC_FLUSH"


def test_every_important_setting_has_an_effect() -> None:
    for key in IMPORTANT_KEYS:
        known = BrokerSettings.find(key) or StoreSettings.find(key)
        assert known is not None, key
        assert known.has_effect, key


def test_settings_come_from_shared_variables_then_the_file_then_own_variables_then_the_command_line(
    tmp_path: Path,
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("listenPort=10001\nbrokerName=file\nfileReservedTime=1\nnamesrvAddr=file:1\n")
    done = BROKER.run(
        tmp_path,
        *("-p", "-c", "broker.conf", "-o", "listenPort=10003"),
        PYROMQ_BROKER_LISTEN_PORT="10002",
        PYROMQ_STORE_FILE_RESERVED_TIME="2",
        NAMESRV_ADDR="environment:1",
        ROCKETMQ_HOME="/opt/rocketmq",
    )
    assert (done.returncode, done.stderr) == (
        0,
        "warning: namesrvAddr from broker.conf is used; NAMESRV_ADDR says environment:1\n",
    )
    assert {
        "listenPort=10003",
        "brokerName=file",
        "fileReservedTime=2",
        "namesrvAddr=file:1",
        f"brokerConfigPath={file}",  # java: what changes later goes back to that file
    } <= set(done.stdout.splitlines())


def test_private_files_are_closed_to_other_users(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir(mode=0o755)
    arguments = (*HERE, "--store", str(store), "--log-dir", str(tmp_path / "logs"), "-o", "privateFiles=true")
    with BROKER.running(tmp_path, *arguments) as broker:
        connect(broker)
        broker.process.send_signal(signal.SIGTERM)
        assert broker.process.wait(60) == 0
    made = [store, tmp_path / "logs", *store.rglob("*"), *(tmp_path / "logs").rglob("*")]
    assert len(made) > 5
    assert [path for path in made if path.stat().st_mode & 0o077] == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-o", "flushDiskType=NEVER"], "flushDiskType=NEVER: expected one of ASYNC_FLUSH, SYNC_FLUSH"),
        (["-o", "brokerRole=SLAVE"], "brokerId=0: expected at least 1, because brokerRole is SLAVE"),
        (
            ["--port", "0", *QUIET, "-o", "brokerIP1=nowhere.invalid"],
            "brokerIP1=nowhere.invalid: expected an IP address or a host name that resolves",
        ),
        (["-n", "nowhere"], "namesrvAddr=nowhere: expected host:port;host:port"),
        (["--log-dir", "taken"], "logDir=taken: expected a directory in which broker.log can be written"),
        (
            [*HERE, *QUIET, "-o", "metricsExporterType=PROM", "-o", "metricsLabel=x"],
            "metricsLabel=x: expected name:value,name:value",
        ),
    ],
)
def test_a_bad_setting_is_one_line_and_a_failure(
    tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    (tmp_path / "taken").touch()
    done = BROKER.run(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"mqbroker: {complaint}")


def test_unknown_keys_are_warned_of_and_keys_without_effect_are_listed_once(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("flushDiskTyp=SYNC_FLUSH\nsendMessageThreadPoolNums=16\nsendHeartbeatTimeoutMillis=3\n")
    done = BROKER.run(tmp_path, "-p", "-c", str(file))
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        f"warning: unknown setting flushDiskTyp from {file}; did you mean flushDiskType?",
        "warning: accepted, but without effect here: sendMessageThreadPoolNums (one event loop serves every"
        " request: there are no thread pools); sendHeartbeatTimeoutMillis (heartbeats and registrations suit"
        " name servers of every release)",
    ]


@pytest.mark.parametrize("received", [signal.SIGTERM, signal.SIGINT])
def test_it_boots_serves_logs_and_ends_well(tmp_path: Path, received: signal.Signals) -> None:
    with BROKER.running(tmp_path, *HERE, "-o", "brokerName=b1", "-o", "lisenPort=1") as broker:
        assert (broker.boot["name"], broker.boot["form"], broker.boot["namesrv"]) == ("b1", "JSON", None)
        connect(broker)
        assert broker.stop(received) == 0
    log = (tmp_path / "logs" / "rocketmqlogs" / "broker.log").read_text()
    assert broker.boot[0] in log
    assert "did you mean listenPort?" in log
    assert "store opened clean=True log_start=0 log_end=0" in log
    assert f"stopping signal={received.name}" in log
    assert "ERROR" not in log
    # The line for scripts is on stdout already.
    assert [line for line in log.splitlines() if "boot success" not in line] == broker.stderr().splitlines()
    assert (tmp_path / "store" / "config" / "topics.json").parent.is_dir()


def test_it_registers_with_its_name_server_and_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "namesrv").mkdir()
    with NAME_SERVER.running(
        tmp_path / "namesrv", "--port", "0", "-o", "bindAddress=127.0.0.1"
    ) as name_server:
        address = name_server.boot["address"]
        with BROKER.running(tmp_path, *HERE, "-n", address) as broker:
            assert broker.boot["namesrv"] == address
            assert broker.stop() == 0
        assert name_server.stop() == 0
    told = broker.stderr()
    assert f"registered name_server={address}" in told
    assert f"unregistered name_server={address}" in told


def test_after_a_kill_it_recovers_and_says_so(tmp_path: Path) -> None:
    with BROKER.running(tmp_path, *HERE, "--log-dir", "") as broker:
        assert broker.stop(signal.SIGKILL) == -signal.SIGKILL
    with BROKER.running(tmp_path, *HERE, "--log-dir", "") as broker:
        assert broker.stop() == 0
    assert "store opened clean=False" in broker.stderr()
    assert not (tmp_path / "logs").exists()


async def test_settings_changed_over_the_network_go_back_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("bindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nlistenPort=0\nlogDir=\nmystery=1\n")
    with BROKER.running(tmp_path, "-c", str(file), ROCKETMQ_SERIALIZE_TYPE="ROCKETMQ") as broker:
        assert broker.boot["form"] == "ROCKETMQ"
        dialer = Dialer()
        await dialer.call(broker.boot["address"], UpdateBrokerConfig(body="fileReservedTime=7\n"), 30)
        await dialer.close()
        assert broker.stop() == 0
    lines = file.read_text().splitlines()
    assert {"fileReservedTime=7", "mystery=1", "bindAddress=127.0.0.1"} <= set(lines)


def test_metrics_readiness_and_health_are_pages(tmp_path: Path) -> None:
    metrics = ("-o", "metricsExporterType=PROM", "-o", "metricsPromExporterPort=0")
    with BROKER.running(tmp_path, *HERE, *metrics, "-o", "metricsLabel=zone:a") as broker:
        found = re.search(r"serving metrics and health address=(127\.0\.0\.1:\d+)", broker.stderr())
        assert found
        pages = {path: get(found[1], path) for path in ("/metrics", "/ready", "/health", "/nothing")}
        assert broker.stop() == 0
    assert {path: status for path, (status, _) in pages.items()} == {
        "/metrics": 200,
        "/ready": 200,
        "/health": 200,
        "/nothing": 404,
    }
    (line,) = re.findall(r"^rocketmq_broker_permission\{(.*)\} 6\.0$", pages["/metrics"][1], re.MULTILINE)
    assert set(line.split(",")) == {
        'zone="a"',
        'cluster="DefaultCluster"',
        'node_type="broker"',
        f'node_id="{broker.boot["name"]}"',
    }


def test_a_metrics_port_in_use_is_one_line_and_a_failure(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = BROKER.run(
            tmp_path,
            *(*HERE, *QUIET),
            *("-o", "metricsExporterType=PROM", "-o", f"metricsPromExporterPort={port}"),
        )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert str(port) in line
    assert "already in use; choose another port" in line


def test_a_store_in_use_is_one_line_and_a_failure(tmp_path: Path) -> None:
    with BROKER.running(tmp_path, *HERE, "--store", str(tmp_path / "data")) as broker:
        done = BROKER.run(tmp_path, *HERE, *QUIET, "--store", str(tmp_path / "data"))
        assert broker.stop() == 0
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"mqbroker: {tmp_path}/data is in use by another process")


def test_a_log_file_of_the_wrong_size_is_one_line_and_a_failure(tmp_path: Path) -> None:
    log = tmp_path / "store" / "commitlog"
    log.mkdir(parents=True)
    for start in (0, 1 << 30):
        (log / f"{start:020d}").write_bytes(b"\0" * 2048)
    done = BROKER.run(tmp_path, *HERE, *QUIET)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("mqbroker: ")
    assert "has 2048 bytes, expected 1073741824" in line
