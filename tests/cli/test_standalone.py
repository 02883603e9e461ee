"""`pyromq standalone` as a person meets it: one command, one line, one signal."""

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.front import user
from tests.support.http_user import HttpUser
from tests.support.server_programs import Program

from pyromq import Message, Producer, PyroError, aio
from pyromq.apps import standalone
from pyromq.apps.secure_files import SecureFiles
from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.errors import ConfigError
from pyromq.protocol.requests.routes import GetRoute
from pyromq.protocol.requests.sending import SendMessageV2
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.tls import TlsOptions
from pyromq.security.signature import credentials_from_text

STANDALONE = Program(
    "pyromq.apps.pyromq",
    r"PyroMQ is ready: name server (?P<namesrv>\S+), broker (?P<broker>[^\s,]+)"
    r"(, gRPC (?P<grpc>\S+))?, data in (?P<data>.+)",
    ("standalone",),
)
REPLICATED = Program(
    "pyromq.apps.pyromq",
    r"PyroMQ is ready: name server (?P<namesrv>\S+), gRPC (?P<grpc>\S+), data in (?P<data>.+)",
    ("standalone", "--replicas", "3"),
)
SEVERAL = Program(
    "pyromq.apps.pyromq",
    r"PyroMQ is ready: name server (?P<namesrv>\S+), gRPC (?P<grpc>\S+), data in (?P<data>.+)",
    ("standalone", "--brokers", "2"),
)
SECURE = Program(REPLICATED.module, REPLICATED.boot_line, ("standalone", "--secure", "--replicas", "2"))
FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")


@pytest.mark.parametrize("received", [signal.SIGTERM, signal.SIGINT])
async def test_one_line_tells_where_everything_is_and_a_signal_ends_it(
    tmp_path: Path, received: signal.Signals
) -> None:
    with STANDALONE.running(tmp_path, *FREE_PORTS) as cluster:
        assert cluster.boot["data"] == str(tmp_path / ".pyromq" / "standalone")
        dialer = Dialer()
        route = (await dialer.call(cluster.boot["namesrv"], GetRoute(topic="TBW102"), 30)).body
        assert route.broker_datas[0].broker_addrs == {0: cluster.boot["broker"]}
        await dialer.close()
        assert cluster.stop(received) == 0
        assert cluster.more_output() == ""
    assert cluster.stderr() == ""


async def test_what_was_sent_is_there_after_a_restart(tmp_path: Path) -> None:
    options = (*FREE_PORTS, "--store", "data", "--flush", "sync", "--host", "localhost")
    offsets = []
    for _ in range(2):
        with STANDALONE.running(tmp_path, *options) as cluster:
            assert cluster.boot["data"] == str(tmp_path / "data")
            assert cluster.boot["broker"].startswith("localhost:")
            dialer = Dialer()
            send = SendMessageV2(
                producer_group="g",
                topic="Orders",
                default_topic="TBW102",
                default_topic_queue_nums=1,
                queue_id=0,
                sys_flag=0,
                born_timestamp=0,
                flag=0,
                body=b"x",
            )
            offsets.append((await dialer.call(cluster.boot["broker"], send, 30)).queue_offset)
            await dialer.close()
            assert cluster.stop() == 0
    assert offsets == [0, 1]


async def test_clients_of_rocketmq_5_have_a_port_unless_it_is_switched_off(tmp_path: Path) -> None:
    with STANDALONE.running(tmp_path, *FREE_PORTS) as cluster:
        async with user(cluster.boot["grpc"]) as client:
            settings = await client.publish()
            assert settings.publishing.max_body_size == 4 * 1024 * 1024
        assert cluster.stop() == 0
    with STANDALONE.running(tmp_path, *FREE_PORTS, "--grpc-port", "-1") as cluster:
        assert cluster.boot["grpc"] is None
        assert cluster.stop() == 0


@pytest.mark.parametrize("program", [STANDALONE, SEVERAL])
async def test_one_option_is_enough_for_lite_topics_and_sessions_over_http(
    tmp_path: Path, program: Program
) -> None:
    with program.running(tmp_path, *FREE_PORTS, "--lite") as cluster:
        async with aio.Admin(namesrv=cluster.boot["namesrv"]) as admin:
            await admin.create_topic("Sessions", message_type="LITE")
        web = HttpUser(cluster.boot["grpc"])
        sent = await web.ask("POST", "/v1/sessions/Sessions/chat-7/messages", b"Hello")
        assert (sent.status, sent.json["offset"]) == (201, 0)
        read = await web.ask("GET", "/v1/sessions/Sessions/chat-7/messages")
        assert [each["text"] for each in read.json["messages"]] == ["Hello"]
        assert cluster.stop() == 0


@pytest.mark.parametrize("lacking", ["cryptography", "pyromq.proxy.proxy"])
def test_without_all_packages_of_grpc_there_is_no_port_unless_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    def found(name: str) -> None:
        if name == lacking:
            raise ImportError(f"no {name}")

    assert standalone._grpc_port(None, 10911) == 8081
    assert standalone._grpc_port(None, 0) == 0
    assert standalone._grpc_port(18081, 10911) == 18081
    monkeypatch.setattr(standalone, "import_module", found)
    assert standalone._grpc_port(None, 10911) is None
    assert standalone._grpc_port(-1, 10911) is None
    with pytest.raises(ConfigError, match=rf"pip install 'pyromq\[grpc\]'; no {lacking}"):
        standalone._grpc_port(18081, 10911)


def test_verbose_tells_what_happens(tmp_path: Path) -> None:
    with STANDALONE.running(tmp_path, *FREE_PORTS, "--verbose") as cluster:
        assert cluster.stop() == 0
    assert "broker started name=broker-a" in cluster.stderr()
    assert "stopping signal=SIGTERM" in cluster.stderr()


def test_a_port_in_use_is_one_line_and_a_failure(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for option in ("--namesrv-port", "--broker-port", "--grpc-port"):
            done = STANDALONE.run(tmp_path, *FREE_PORTS, option, str(port))
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr == (
                f"pyromq standalone: could not listen on 127.0.0.1:{port}: "
                "Address already in use; choose another port\n"
            )


def test_data_in_use_is_one_line_and_a_failure(tmp_path: Path) -> None:
    with STANDALONE.running(tmp_path, *FREE_PORTS) as cluster:
        done = STANDALONE.run(tmp_path, *FREE_PORTS)
        assert cluster.stop() == 0
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"pyromq standalone: {tmp_path}/.pyromq/standalone is in use by another process")


@pytest.mark.parametrize("arguments", [("--flush", "never"), ("--broker-port", "70000"), ("extra",)])
def test_a_mistake_in_the_options_is_told(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = STANDALONE.run(tmp_path, *arguments)
    assert done.returncode == 2
    assert "Usage: " in done.stderr


@pytest.mark.timeout(300)
def test_with_replicas_another_broker_takes_over_from_one_that_is_killed(tmp_path: Path) -> None:
    with REPLICATED.running(tmp_path, *FREE_PORTS, "--host", "0.0.0.0") as cluster:
        assert "ANYONE who reaches 0.0.0.0:" in cluster.stderr()
        output = cluster.process.stdout
        assert output is not None
        shown = [output.readline().split() for _ in range(3)]
        assert [words[0] for words in shown] == ["broker-a-0", "broker-a-1", "broker-a-2"]
        assert sorted(words[1] for words in shown) == ["master", "replica", "replica"]
        assert "no message is lost" in output.readline()
        master, pid = next((words[0], int(words[-1])) for words in shown if words[1] == "master")
        with Producer("orders", namesrv=cluster.boot["namesrv"], send_timeout_s=60, retries=1000) as producer:
            producer.send(Message("Orders", b"before"))
            os.kill(pid, signal.SIGKILL)
            producer.send(Message("Orders", b"after"))
        said = {output.readline().strip() for _ in range(2)}
        assert f"{master} has died; it starts again in 10 s" in said
        (new,) = (line for line in said if line.endswith("is the master now"))
        assert new.split()[0] in {words[0] for words in shown} - {master}
        assert cluster.stop() == 0


async def test_a_secure_cluster_tells_how_to_connect_without_a_password_and_keeps_its_files_private(
    tmp_path: Path,
) -> None:
    with STANDALONE.running(tmp_path, *FREE_PORTS, "--secure") as cluster:
        security = Path(cluster.boot["data"]) / "security"
        assert cluster.boot["grpc"] is not None
        assert cluster.stop() == 0
        told = cluster.more_output()
    assert f"--key-file {security}/admin.properties --tls-trust {security}/server.pem" in told
    made = [security.parent, *security.parent.rglob("*")]
    assert len(made) > 10
    assert [path for path in made if path.stat().st_mode & 0o077] == []
    assert cluster.stderr() == ""


async def test_several_brokers_share_a_topic_and_each_has_its_own_process_and_store(tmp_path: Path) -> None:
    with SEVERAL.running(tmp_path, *FREE_PORTS, "--store", "data") as cluster:
        dialer = Dialer()
        route = (await dialer.call(cluster.boot["namesrv"], GetRoute(topic="TBW102"), 30)).body
        assert {each.broker_name for each in route.broker_datas} == {"broker-a", "broker-b"}
        assert len({address for each in route.broker_datas for address in each.broker_addrs.values()}) == 2
        await dialer.close()
        for name in ("broker-a", "broker-b"):
            assert (tmp_path / "data" / name / "commitlog").is_dir()
        assert cluster.stop() == 0
        lines = cluster.more_output().splitlines()
        assert [line.split()[:2] for line in lines[:2]] == [["broker-a", "master"], ["broker-b", "master"]]
    assert len({line.rsplit(maxsplit=1)[1] for line in lines[:2]}) == 2


@pytest.mark.timeout(300)
def test_a_secure_cluster_with_replicas_lets_in_only_users_and_shows_no_secret(tmp_path: Path) -> None:
    with SECURE.running(tmp_path, *FREE_PORTS) as cluster:
        files = SecureFiles.of(Path(cluster.boot["data"]))
        output = cluster.process.stdout
        assert output is not None
        shown = [output.readline().split() for _ in range(2)]
        secrets = json.loads((files.directory / "secrets.json").read_text()).values()
        for words in shown:
            command = Path(f"/proc/{words[-1]}/cmdline").read_text()
            assert not any(secret in command for secret in secrets)
        options: dict[str, Any] = {
            "namesrv": cluster.boot["namesrv"],
            "tls": TlsOptions(trust_path=files.certificate, verify=True),
            "send_timeout_s": 60,
            "retries": 1000,
        }
        keys = credentials_from_text(files.key_file.read_text())
        with Producer("orders", credentials=keys, **options) as producer:
            producer.send(Message("Orders", b"before"))
            os.kill(next(int(words[-1]) for words in shown if words[1] == "master"), signal.SIGKILL)
            producer.send(Message("Orders", b"after"))
        access = ["--key-file", str(files.key_file), "--tls-trust", str(files.certificate)]
        words = ["updateTopic", "-b", "broker-a", "-t", "Audited", "-n", cluster.boot["namesrv"], *access]
        done = CliRunner().invoke(mqadmin, [*words, "--timeout", "60"])
        assert done.exit_code == 0, done.output
        with Producer("orders", **options | {"retries": 0}) as stranger, pytest.raises(PyroError):
            stranger.send(Message("Orders", b"let me in"))
        assert cluster.stop() == 0
        logs = "".join(path.read_text() for path in Path(cluster.boot["data"]).glob("*.log"))
    assert not any(secret in logs + cluster.stderr() for secret in secrets)
    audited = files.audit_log.read_text()
    assert "refused peer=127.0.0.1:" in audited
    assert "Create on Topic:Audited" in audited, "what brokers did is there, too"
    assert "pyromq.audit" not in logs
