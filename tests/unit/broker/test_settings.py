"""The broker's settings: Apache's keys and defaults, and one file that feeds the broker and its store."""

import socket
from pathlib import Path

import pytest
from tests.support.places import ROOT

from pyromq.broker import settings as broker_settings
from pyromq.broker.settings import BrokerConfiguration, BrokerSettings, load_broker, vip_port
from pyromq.config.inert import inert_keys
from pyromq.config.loading import Layer, environment_layers, file_layer
from pyromq.config.reference import example_file, markdown
from pyromq.config.settings import NeedsRestart, NoEffect, UnknownKey
from pyromq.errors import ConfigError
from pyromq.store.settings import StoreSettings

CONF = ROOT / "conf"

# java: BrokerConfig, MessageStoreConfig and NettyServerConfig with the defaults a started broker has.
APACHE_DEFAULTS = {
    "brokerClusterName": "DefaultCluster",
    "brokerId": "0",
    "brokerRole": "ASYNC_MASTER",
    "brokerPermission": "6",
    "bindAddress": "0.0.0.0",
    "listenPort": "10911",
    "serverSocketBacklog": "1024",
    "serverSocketSndBufSize": "0",
    "serverSocketRcvBufSize": "0",
    "serverChannelMaxIdleTimeSeconds": "120",
    "shutdownWaitTimeSeconds": "30",
    "writeBufferHighWaterMark": "0",
    "connectTimeoutMillis": "3000",
    "registerNameServerPeriod": "30000",
    "registerBrokerTimeoutMills": "24000",
    "forceRegister": "true",
    "compressedRegister": "false",
    "brokerHeartbeatInterval": "1000",
    "brokerNotActiveTimeoutMillis": "10000",
    "enableSplitRegistration": "false",
    "splitRegistrationSize": "800",
    "autoCreateTopicEnable": "true",
    "defaultTopicQueueNums": "8",
    "clusterTopicEnable": "true",
    "brokerTopicEnable": "true",
    "autoCreateSubscriptionGroup": "true",
    "traceTopicEnable": "false",
    "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
    "traceOn": "true",
    "regionId": "DefaultRegion",
    "validateSystemTopicWhenUpdateTopic": "true",
    "clearRetryTopicWhenDeleteTopic": "true",
    "enableMixedMessageType": "false",
    "rejectTransactionMessage": "false",
    "startAcceptSendRequestTimeStamp": "0",
    "storeReplyMessageEnable": "true",
    "brokerFastFailureEnable": "true",
    "waitTimeMillsInSendQueue": "200",
    "osPageCacheBusyTimeOutMills": "1000",
    "longPollingEnable": "true",
    "shortPollingTimeMills": "1000",
    "litePullMessageEnable": "true",
    "rejectPullConsumerEnable": "false",
    "slaveReadEnable": "false",
    "disableConsumeIfConsumerReadSlowly": "false",
    "consumerFallbehindThreshold": "17179869184",
    "enablePropertyFilter": "false",
    "filterSupportRetry": "false",
    "filterDataCleanTimeSpan": "86400000",
    "channelExpiredTimeout": "120000",
    "notifyConsumerIdsChangedEnable": "true",
    "realTimeNotifyConsumerChange": "true",
    "enableRegisterProducer": "true",
    "flushConsumerOffsetInterval": "5000",
    "useServerSideResetOffset": "true",
    "consumerOffsetUpdateVersionStep": "500",
    "flushDelayOffsetInterval": "10000",
    "delayOffsetUpdateVersionStep": "200",
    "configBlackList": "configBlackList;brokerConfigPath",
    "metricsExporterType": "DISABLE",
    "metricsPromExporterPort": "5557",
    "metricsPromExporterHost": "",
    "metricsLabel": "",
    "aclEnable": "false",
    "enableDLegerCommitLog": "false",
    "enableControllerMode": "false",
    "flushDiskType": "ASYNC_FLUSH",
    "fileReservedTime": "72",
    "deleteWhen": "04",
    "maxMessageSize": "4194304",
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "transactionCheckMax": "15",
    # without effect here
    "sendThreadPoolQueueCapacity": "10000",
    "timerWheelEnable": "true",
    "logicalDiskSpaceCleanForciblyThreshold": "0.8",
    "storeType": "default",
}


def loaded(**values: str) -> BrokerConfiguration:
    return load_broker([Layer("the test", values)])


def test_apaches_defaults_are_ours() -> None:
    ours = loaded().as_java_dict()
    assert {key: ours.get(key) for key in APACHE_DEFAULTS} == APACHE_DEFAULTS


def test_every_key_of_apaches_is_known_and_those_without_effect_are_listed_once(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    defaults = {key: each.default for key, each in BrokerSettings.INERT.items()}
    path.write_text("".join(f"{key}={value}\n" for key, value in (defaults | APACHE_DEFAULTS).items()))
    configuration = load_broker([file_layer(path)])
    assert configuration.broker.unrecognised == {}
    (notice,) = configuration.notices
    assert isinstance(notice, NoEffect)
    assert set(notice.keys) == set(BrokerSettings.INERT)


def test_a_key_has_an_effect_or_is_inert_and_never_both() -> None:
    declared = {
        each.key for part in (BrokerSettings, StoreSettings) for each in part.all_settings() if each.name
    }
    assert declared & inert_keys("broker").keys() == set(), "remove it from config/inert: it is declared now"


def test_no_key_is_declared_by_both_parts() -> None:
    assert not [
        each.key for each in StoreSettings.all_settings() if BrokerSettings.find(each.key) is not None
    ]


def test_every_sentence_is_one() -> None:
    for each in BrokerSettings.all_settings():
        if each.name:
            assert each.sentence.endswith("."), each.key
            assert each.sentence[0].isupper(), each.key


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("sendThreadPoolQueueCapacity", "many", "a whole number"),
        ("sendThreadPoolQueueCapacity", "9" * 19, "a whole number"),
        ("timerWheelEnable", "yes", "true or false"),
        ("logicalDiskSpaceCleanForciblyThreshold", "most", "a number"),
    ],
)
def test_a_value_of_an_inert_key_is_checked_by_its_kind(key: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(**{key: text})
    assert (caught.value.key, caught.value.expected) == (key, expected)
    assert caught.value.__notes__ == ["from the test"]


def test_values_of_inert_keys_are_kept_shown_and_changeable() -> None:
    configuration = loaded(sendThreadPoolQueueCapacity="3", haMasterAddress="10.0.0.1:10912")
    assert "sendThreadPoolQueueCapacity=3\n" in configuration.describe()
    changed = configuration.updated({"sendThreadPoolQueueCapacity": "4"})
    assert changed.as_java_dict()["sendThreadPoolQueueCapacity"] == "4"
    assert changed.as_java_dict()["haMasterAddress"] == "10.0.0.1:10912"
    assert "storePathEpochFile" not in changed.as_java_dict()  # java: what is null is left out


def test_a_change_of_an_inert_key_is_answered_with_the_reason() -> None:
    (remark,) = loaded().remarks_on(["sendThreadPoolQueueCapacity"])
    assert str(remark) == (
        "accepted, but without effect here: sendThreadPoolQueueCapacity"
        " (one event loop serves every request: there are no thread pools)"
    )


def test_one_file_feeds_both_parts(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=broker-a\nflushDiskType=SYNC_FLUSH\nstorePathRootDir=/data\nmystery=1\n")
    broker, store, notices = load_broker([file_layer(path)])
    assert (broker.broker_name, store.flush_disk_type, store.root) == (
        "broker-a",
        "SYNC_FLUSH",
        Path("/data"),
    )
    assert broker.unrecognised == {"mystery": "1"}
    assert [type(notice) for notice in notices] == [UnknownKey]


def test_a_misspelt_key_of_the_store_is_recognised() -> None:
    (notice,) = loaded(flushDiskTyp="SYNC_FLUSH").notices
    assert str(notice) == "unknown setting flushDiskTyp from the test; did you mean flushDiskType?"


def test_both_parts_have_their_variables() -> None:
    environ = {
        "PYROMQ_BROKER_BROKER_NAME": "b",
        "PYROMQ_STORE_FILE_RESERVED_TIME": "5",
        "NAMESRV_ADDR": "n:9876",
    }
    layers = [each for part in (BrokerSettings, StoreSettings) for each in environment_layers(part, environ)]
    broker, store, notices = load_broker(layers)
    assert (broker.broker_name, store.file_reserved_hours, broker.name_servers) == ("b", 5, ("n:9876",))
    assert notices == ()


def test_an_update_reaches_the_part_that_knows_the_key() -> None:
    changed = loaded().updated({"fileReservedTime": "7", "brokerPermission": "4"})
    assert (changed.store.file_reserved_hours, changed.broker.broker_permission) == (7, 4)


def test_a_bad_update_of_either_part_is_refused() -> None:
    for key in ("fileReservedTime", "brokerPermission"):
        with pytest.raises(ConfigError, match=f"{key}=x"):
            loaded().updated({key: "x"})


def test_updates_are_remarked_on_by_the_part_that_knows_the_key() -> None:
    remarks = loaded().remarks_on(["flushDiskType", "brokerName", "brokerPermission", "nobody"])
    assert [type(remark) for remark in remarks] == [NeedsRestart, UnknownKey, NeedsRestart]


def test_what_the_machine_is_called_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "ada")
    monkeypatch.setattr(broker_settings, "local_address", lambda: "10.1.2.3")
    settings = BrokerSettings()
    assert (settings.broker_name, settings.broker_ip1, settings.broker_ip2) == ("ada", "10.1.2.3", "10.1.2.3")
    assert BrokerSettings(broker_ip1="10.9.9.9").broker_ip2 == "10.9.9.9"


def test_a_master_has_the_id_zero_whatever_the_file_says() -> None:
    assert loaded(brokerId="3", brokerRole="SYNC_MASTER").broker.broker_id == 0


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"brokerRole": "SLAVE"}, "brokerId=0: expected at least 1, because brokerRole is SLAVE"),
        ({"brokerRole": "SLAVE", "brokerId": "1"}, "the name servers that tell a SLAVE where its master is"),
        ({"haMasterAddress": "somewhere"}, "haMasterAddress=somewhere: expected host:port"),
        ({"haAllowedNetworks": "10.0.0.0/8,here"}, "haAllowedNetworks=.*: expected IP addresses or networks"),
        ({"inSyncReplicas": "0"}, "inSyncReplicas=0"),
        ({"haTransferBatchSize": "0"}, "haTransferBatchSize=0"),
        ({"enableDLegerCommitLog": "true"}, "false, because DLedger is not supported"),
        ({"enableControllerMode": "true"}, "controllerAddr=: expected the controllers"),
        ({"aclEnable": "true", "authenticationEnabled": "true"}, "aclEnable=true: expected false"),
        ({"storeType": "defaultRocksDB"}, "default, because the store does not use RocksDB"),
        ({"readOnlyCommitLogStorePaths": "/old"}, "nothing, because the log is in one directory"),
        ({"storePathCommitLog": "/a,/b"}, "one directory: the log is never in several"),
        ({"metricsExporterType": "JMX"}, "expected DISABLE, or some of PROM, OTLP_GRPC, LOG"),
        ({"metricsExporterType": "PROM,DISABLE"}, "expected DISABLE, or some of PROM, OTLP_GRPC, LOG"),
        ({"metricsExporterType": "OTLP_GRPC"}, "metricsGrpcExporterTarget=: expected http://host:port"),
        (
            {"metricsExporterType": "OTLP_GRPC", "metricsGrpcExporterTarget": "http://a:port"},
            "metricsGrpcExporterTarget=http://a:port: expected http://host:port",
        ),
        ({"metricsGrpcExporterHeader": "token"}, r"metricsGrpcExporterHeader=\*+: expected name:value"),
        ({"metricsExporterType": "LOG", "logLevel": "WARNING"}, "expected logLevel to be INFO"),
        ({"namesrvAddr": "a:9876;b"}, "host:port;host:port"),
        ({"regionId": "r" * 256}, "of at most 255 printable characters"),
        ({"regionId": "a\x02b"}, "of at most 255 printable characters"),
        ({"listenPort": "2"}, "between 3 and 65535, or 0"),
        ({"brokerClusterName": ""}, "that is not empty"),
        ({"brokerRole": "KING"}, "one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ({"tls.server.mode": "enforcing"}, r"tls\.server\.certPath and tls\.server\.keyPath"),
        ({"tls.server.certPath": "/c"}, r"tls\.server\.keyPath"),
    ],
)
def test_what_cannot_be_kept_stops_the_start(values: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        loaded(**values)


@pytest.mark.parametrize(
    ("asked_ms", "period_s"), [("1", 10.0), ("10000", 10.0), ("30000", 30.0), ("60000", 60.0), ("5m", 60.0)]
)
def test_the_registration_period_stays_between_ten_and_sixty_seconds(asked_ms: str, period_s: float) -> None:
    assert loaded(registerNameServerPeriod=asked_ms).broker.registration_period_s == period_s


def test_name_servers_are_parted_by_semicolons() -> None:
    assert loaded(namesrvAddr=" a:1; b:2;;a:1;").broker.name_servers == ("a:1", "b:2")


def test_a_start_time_for_sends_fits() -> None:
    assert (
        loaded(startAcceptSendRequestTimeStamp="1700000000000").broker.start_accept_send_ms
        == 1_700_000_000_000
    )


def test_the_second_port_is_two_below_the_first() -> None:
    assert vip_port(10911) == 10909


def test_keys_of_the_black_list_cannot_be_changed_over_the_network() -> None:
    assert loaded().broker.unchangeable_keys == {"configBlackList", "brokerConfigPath"}


def test_passwords_never_leave() -> None:
    configuration = loaded(**{"tls.server.keyPassword": "s3cret", "tls.client.keyPassword": "s3cret"})
    for text in (configuration.describe(), str(configuration.as_java_dict()), repr(configuration.broker)):
        assert "s3cret" not in text


def test_the_example_file_is_fresh_and_means_the_defaults(tmp_path: Path) -> None:
    example = CONF / "broker.conf"
    assert example.read_text() == example_file(BrokerSettings) + "\n" + example_file(StoreSettings)
    uncommented = tmp_path / "broker.conf"
    lines = [line for line in example.read_text().splitlines(True) if not line.startswith("# ")]
    uncommented.write_text("".join(line.removeprefix("#") for line in lines))
    configuration = load_broker([file_layer(uncommented)])
    assert configuration.notices == ()
    assert configuration.describe() == loaded().describe()


@pytest.mark.parametrize(
    "path", sorted(CONF.glob("2m-*/*.properties")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_the_files_for_clusters_load(path: Path) -> None:
    configuration = load_broker([file_layer(path)])
    assert configuration.notices == ()
    assert configuration.broker.broker_cluster_name == "DefaultCluster"
    assert configuration.broker.broker_name == path.stem
    assert configuration.store.flush_disk_type == "ASYNC_FLUSH"


def test_the_reference_page_names_the_keys_without_a_counterpart() -> None:
    page = markdown(BrokerSettings)
    assert "`sendThreadPoolQueueCapacity=10000`" in page
    assert "| `brokerName` |" in page
