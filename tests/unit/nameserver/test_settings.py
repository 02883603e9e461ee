"""The name server's settings: Apache's keys, Apache's defaults, and the rules between them."""

from pathlib import Path

import pytest

from pyromq.config.loading import Layer, environment_layers, file_layer, load
from pyromq.errors import ConfigError
from pyromq.nameserver.settings import NameServerSettings

# java: NamesrvConfig and NettyServerConfig with the defaults a started name server has.
APACHE_DEFAULTS = {
    "productEnvName": "center",
    "clusterTest": "false",
    "orderMessageEnable": "false",
    "returnOrderTopicConfigToBroker": "true",
    "clientRequestThreadPoolNums": "8",
    "defaultThreadPoolNums": "16",
    "clientRequestThreadPoolQueueCapacity": "50000",
    "defaultThreadPoolQueueCapacity": "10000",
    "scanNotActiveBrokerInterval": "5000",
    "unRegisterBrokerQueueCapacity": "3000",
    "supportActingMaster": "false",
    "enableAllTopicList": "true",
    "enableTopicList": "true",
    "notifyMinBrokerIdChanged": "false",
    "enableControllerInNamesrv": "false",
    "needWaitForService": "false",
    "waitSecondsForService": "45",
    "deleteTopicWithBrokerRegistration": "false",
    "configBlackList": "configBlackList;configStorePath;kvConfigPath",
    "bindAddress": "0.0.0.0",
    "listenPort": "9876",
    "serverWorkerThreads": "8",
    "serverCallbackExecutorThreads": "0",
    "serverSelectorThreads": "3",
    "serverOnewaySemaphoreValue": "256",
    "serverAsyncSemaphoreValue": "64",
    "serverChannelMaxIdleTimeSeconds": "120",
    "serverSocketSndBufSize": "0",
    "serverSocketRcvBufSize": "0",
    "writeBufferHighWaterMark": "0",
    "writeBufferLowWaterMark": "0",
    "serverSocketBacklog": "1024",
    "serverNettyWorkerGroupEnable": "true",
    "serverPooledByteBufAllocatorEnable": "true",
    "enableShutdownGracefully": "false",
    "shutdownWaitTimeSeconds": "30",
    "useEpollNativeSelector": "false",
}


def loaded(**values: str) -> NameServerSettings:
    return load(NameServerSettings, [Layer("the test", values)]).settings


def test_apaches_defaults_are_ours() -> None:
    ours = NameServerSettings().as_java_dict()
    assert {key: ours.get(key) for key in APACHE_DEFAULTS} == APACHE_DEFAULTS


def test_a_file_with_every_key_of_apaches_loads_without_an_unknown_one(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.properties"
    paths = {
        "rocketmqHome": "/opt/rocketmq",
        "kvConfigPath": "/data/kv.json",
        "configStorePath": "/data/n.conf",
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in (APACHE_DEFAULTS | paths).items()))
    outcome = load(NameServerSettings, [file_layer(path)])
    assert outcome.settings.unrecognised == {}
    assert outcome.settings.kv_config_path == Path("/data/kv.json")
    assert len(outcome.notices) == 1  # the keys without effect, once


def test_no_two_settings_share_a_key() -> None:
    keys = [each.key for each in NameServerSettings.all_settings()]
    assert len(keys) == len(set(keys))


def test_every_sentence_is_one() -> None:
    for each in NameServerSettings.all_settings():
        if not each.name:
            continue
        assert each.sentence.endswith("."), each.key
        assert each.sentence[0].isupper(), each.key


def test_the_variables_rocketmq_users_know_are_read_without_a_notice() -> None:
    environ = {"ROCKETMQ_HOME": "/opt/rmq", "NAMESRV_ADDR": "a:9876", "ROCKETMQ_SERIALIZE_TYPE": "rocketmq"}
    outcome = load(NameServerSettings, environment_layers(NameServerSettings, environ))
    assert outcome.settings.rocketmq_home == Path("/opt/rmq")
    assert outcome.settings.serialize_type == "ROCKETMQ"
    assert outcome.notices == ()


def test_the_key_password_never_leaves() -> None:
    settings = NameServerSettings(tls_key_password="s3cret")
    assert "s3cret" not in settings.describe()
    assert "s3cret" not in str(settings.as_java_dict())
    assert "s3cret" not in repr(settings)


def test_enforcing_tls_needs_a_certificate() -> None:
    with pytest.raises(ConfigError, match=r"tls\.server\.certPath and tls\.server\.keyPath"):
        loaded(**{"tls.server.mode": "enforcing"})


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(ConfigError, match=r"tls\.server\.keyPath"):
        loaded(**{"tls.server.certPath": "/etc/cert.pem"})


@pytest.mark.parametrize(
    ("values", "offers"),
    [
        ({}, False),
        ({"tls.server.certPath": "/c", "tls.server.keyPath": "/k"}, True),
        ({"tls.server.certPath": "/c", "tls.server.keyPath": "/k", "tls.server.mode": "disabled"}, False),
        ({"tls.test.mode.enable": "false"}, False),
    ],
)
def test_tls_is_offered_once_there_is_a_certificate(values: dict[str, str], offers: bool) -> None:
    assert loaded(**values).offers_tls is offers


def test_asking_clients_for_certificates_needs_trusted_ones() -> None:
    files = {
        "tls.server.certPath": "/c",
        "tls.server.keyPath": "/k",
        "tls.server.need.client.auth": "require",
    }
    with pytest.raises(ConfigError, match=r"tls\.server\.trustCertPath"):
        loaded(**files)
    assert loaded(**files, **{"tls.server.trustCertPath": "/t"}).tls_client_auth == "require"


def test_cluster_test_needs_the_other_environment() -> None:
    with pytest.raises(ConfigError, match="clusterTestNamesrvAddr"):
        loaded(clusterTest="true")
    with pytest.raises(ConfigError, match="clusterTestNamesrvAddr=other: expected host:port;host:port"):
        loaded(clusterTest="true", clusterTestNamesrvAddr="other")
    assert loaded(clusterTest="true", clusterTestNamesrvAddr="other:9876").cluster_test


def test_the_black_list_and_the_home_directory_cannot_be_changed_over_the_network() -> None:
    listed = loaded(configBlackList="a; b;;").unchangeable_keys
    assert listed == {"a", "b"} | NameServerSettings.NEVER_CHANGEABLE
    assert "rocketmqHome" in listed
