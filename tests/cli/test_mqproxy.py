"""mqproxy as an operator meets it: its options, its file, both of its modes."""

import json
from pathlib import Path

import pytest
from tests.support.front import user
from tests.support.front_user import Resource
from tests.support.server_programs import NAME_SERVER, PROXY

from pyromq.apps.proxy import load_proxy
from pyromq.errors import ConfigError
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.dialer import Dialer

LOOPBACK = ("-o", "bindAddress=127.0.0.1", "--port", "0")


def test_settings_come_from_the_json_file_and_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text(
        json.dumps({"grpcServerPort": 18081, "enableProxyAutoRenew": False, "namesrvAddr": "a:1"})
    )
    loaded = load_proxy(file, {"proxyMode": "local", "namesrvAddr": "b:2"}, {})
    settings = loaded.settings
    assert (settings.listen_port, settings.renews, settings.namesrv_addr) == (18081, False, "b:2")
    assert settings.is_local


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "a JSON object"),
        ("{", "a JSON object"),
        ('{"grpcServerPort": "many"}', "grpcServerPort=many: expected a whole number"),
        ('{"namesrvAddr": "a:1", "enableACL": true}', "enableACL=true: expected false"),
        ('{"tlsCertPath": "/x.crt"}', "tlsKeyPath=: expected a file, because tlsCertPath is set"),
        ('{"tlsKeyPath": "/x.key"}', "tlsCertPath=: expected a file, because tlsKeyPath is set"),
        (
            '{"tls.server.mode": "enforcing", "tlsTestModeEnable": false}',
            "tls.server.mode=enforcing: expected tlsCertPath and tlsKeyPath to be set as well",
        ),
        ('{"grpcServerPort": 1}', "namesrvAddr=: expected host:port of a name server"),
    ],
)
def test_a_bad_file_is_told(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_proxy(file, {}, {})
    assert problem in str(caught.value)


def test_keys_of_the_first_releases_count_under_their_later_names(tmp_path: Path) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text(
        json.dumps(
            {
                "namesrvAddr": "a:1",
                "grpcTlsTestModeEnable": False,
                "grpcTlsKeyPath": "/etc/tls/proxy.key",
                "grpcTlsCertPath": "/etc/tls/old.crt",
                "tlsCertPath": "/etc/tls/proxy.crt",
                "messageDelayLevel": "1s 5s",
            }
        )
    )
    loaded = load_proxy(file, {}, {})
    settings = loaded.settings
    assert not settings.tls_generates
    assert settings.tls_key_path == Path("/etc/tls/proxy.key")
    assert settings.tls_cert_path == Path("/etc/tls/proxy.crt")
    told = [str(each) for each in loaded.notices]
    assert f"grpcTlsKeyPath from {file} is read as tlsKeyPath" in told
    assert not [each for each in told if "unknown" in each]


def test_the_certificate_made_at_the_start_is_enough_to_enforce_tls() -> None:
    settings = load_proxy(None, {"namesrvAddr": "a:1", "tls.server.mode": "enforcing"}, {}).settings
    assert settings.offers_tls


def test_settings_are_printed(tmp_path: Path) -> None:
    done = PROXY.run(tmp_path, "-n", "127.0.0.1:9876", "-pm", "local", "-p")
    assert "proxyMode=LOCAL\n" in done.stdout
    assert "grpcServerPort=8081\n" in done.stdout


async def test_local_mode_starts_a_broker_and_serves_grpc_on_its_port_too(tmp_path: Path) -> None:
    with NAME_SERVER.running(tmp_path, "--log-dir", "", *LOOPBACK) as name_server:
        broker = tmp_path / "broker.conf"
        broker.write_text(
            "listenPort=0\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\n"
            f"storePathRootDir={tmp_path}\nlogDir=\nmappedFileSizeCommitLog=4194304\n"
        )
        namesrv = name_server.boot["address"]
        options = ("-n", namesrv, "-pm", "local", "-bc", str(broker), "--log-dir", "", *LOOPBACK)
        with PROXY.running(tmp_path, *options) as proxy:
            dialer = Dialer()
            route = (await dialer.call(namesrv, GetRoute(topic="TBW102"), 30)).body
            await dialer.close()
            for address in (proxy.boot["address"], route.broker_datas[0].broker_addrs[0]):
                async with user(address) as client:
                    assert await client.code("QueryRoute", topic=Resource(name="Absent")) == "TOPIC_NOT_FOUND"
            assert proxy.stop() == 0
        assert name_server.stop() == 0
