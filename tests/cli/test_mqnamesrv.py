"""mqnamesrv as an operator meets it: real processes, their output, their exit codes."""

import re
import socket
from pathlib import Path

import pytest
from tests.support.server_programs import NAME_SERVER, get


def test_print_shows_every_setting_sorted_and_starts_nothing(tmp_path: Path) -> None:
    done = NAME_SERVER.run(
        tmp_path, "-p", "--port", "4321", "-n", "a:9876", PYROMQ_NAMESRV_CLUSTER_TEST="false"
    )
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines == sorted(lines)
    assert {"listenPort=4321", "namesrvAddr=a:9876", "serverWorkerThreads=8"} <= set(lines)
    assert f"kvConfigPath={tmp_path}/namesrv/kvConfig.json" in lines
    assert list(tmp_path.iterdir()) == []


def test_settings_come_from_file_then_environment_then_command_line(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=1\nproductEnvName=file\nwaitSecondsForService=1\n")
    done = NAME_SERVER.run(
        tmp_path,
        *("-p", "-c", str(file), "-o", "listenPort=3"),
        PYROMQ_NAMESRV_LISTEN_PORT="2",
        PYROMQ_NAMESRV_WAIT_SECONDS_FOR_SERVICE="2",
        ROCKETMQ_SERIALIZE_TYPE="ROCKETMQ",
    )
    assert done.returncode == 0
    assert {
        "listenPort=3",
        "productEnvName=file",
        "waitSecondsForService=2",
        "serializeType=ROCKETMQ",
        f"configStorePath={file}",  # java: what changes later goes back to that file
    } <= set(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-o", "clusterTest=perhaps"], "clusterTest=perhaps: expected true or false"),
        (["-o", "tls.server.mode=enforcing"], "tls.server.mode=enforcing: expected tls.server.certPath"),
    ],
)
def test_a_bad_setting_is_one_line_and_a_failure(
    tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    done = NAME_SERVER.run(tmp_path, *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"mqnamesrv: {complaint}")


def test_an_unknown_key_warns_with_the_nearest_known_name(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenprot=9999\n")
    done = NAME_SERVER.run(tmp_path, "-p", "-c", str(file))
    assert done.returncode == 0
    assert done.stderr == f"warning: unknown setting listenprot from {file}; did you mean listenPort?\n"


def test_it_boots_serves_logs_and_ends_well_on_sigterm(tmp_path: Path) -> None:
    with NAME_SERVER.running(
        tmp_path, "--port", "0", "-o", "bindAddress=127.0.0.1", "-o", "listenprot=1"
    ) as server:
        assert (server.boot["form"], server.boot["host"]) == ("JSON", "127.0.0.1")
        socket.create_connection((server.boot["host"], int(server.boot["port"])), timeout=60).close()
        assert server.stop() == 0
    log = (tmp_path / "logs" / "rocketmqlogs" / "namesrv.log").read_text()
    assert f"The Name Server boot success. serializeType=JSON, address 127.0.0.1:{server.boot['port']}" in log
    assert "did you mean listenPort?" in log
    assert "stopping signal=SIGTERM" in log
    assert "ERROR" not in log
    assert "ANYONE" not in log
    # The line for scripts is on stdout already.
    assert [line for line in log.splitlines() if "boot success" not in line] == server.stderr().splitlines()


def test_metrics_readiness_and_health_are_pages(tmp_path: Path) -> None:
    with NAME_SERVER.running(
        tmp_path, "--port", "0", "-o", "metricsPort=0", "-o", "needWaitForService=true"
    ) as server:
        assert f"WARNING pyromq.apps ANYONE who reaches 0.0.0.0:{server.boot['port']} may" in server.stderr()
        found = re.search(r"serving metrics and health address=(\S+)", server.stderr())
        assert found
        pages = {path: get(found[1], path) for path in ("/metrics", "/ready", "/health", "/nothing")}
        assert server.stop() == 0
    assert {path: status for path, (status, _) in pages.items()} == {
        "/metrics": 200,
        "/ready": 503,  # it waits for brokers first
        "/health": 200,
        "/nothing": 404,
    }
    assert "pyromq_namesrv_ready 0.0" in pages["/metrics"][1]


def test_it_starts_from_a_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("bindAddress=127.0.0.1\nlistenPort=0\nlogDir=\n")
    with NAME_SERVER.running(tmp_path, "-c", str(file), ROCKETMQ_SERIALIZE_TYPE="ROCKETMQ") as server:
        assert (server.boot["form"], server.boot["host"]) == ("ROCKETMQ", "127.0.0.1")
        assert server.stop() == 0


def test_the_reason_why_it_did_not_start_is_in_its_log_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = NAME_SERVER.run(tmp_path, "--port", str(port), "-o", "bindAddress=127.0.0.1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("mqnamesrv: ")
    reason = done.stderr.splitlines()[-1].removeprefix("mqnamesrv: ")
    log = (tmp_path / "logs" / "rocketmqlogs" / "namesrv.log").read_text()
    assert f"CRITICAL pyromq.apps could not start: {reason}\n" in log
    assert done.stderr.count(reason) == 1
