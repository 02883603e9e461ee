"""Settings about files, ports, addresses, keys and rights are not changed over the network."""

import re

import pytest

from pyromq.broker.settings import BrokerSettings
from pyromq.config.options import Setting
from pyromq.config.settings import Settings
from pyromq.controller.settings import ControllerSettings
from pyromq.nameserver.settings import NameServerSettings
from pyromq.store.settings import StoreSettings

PARTS: list[type[Settings]] = [BrokerSettings, StoreSettings, NameServerSettings, ControllerSettings]

_DANGEROUS = re.compile(
    r"path|dir$|home|addr|^bind|host|port$|ip\d$|^tls\.|tls$|password|credential|proxy|plugin|provider"
    r"|acl|auth|whitelist|user$|blacklist|target|peers|^fetch",
    re.IGNORECASE,
)
HARMLESS = {
    # They only say how long something is remembered, or how often somebody is asked.
    "aclCacheExpiredSecond",
    "aclCacheMaxNum",
    "aclCacheRefreshSecond",
    "userCacheExpiredSecond",
    # Words with another meaning.
    "filterDataCleanTimeSpan",
}


def every_setting() -> list[tuple[type[Settings], Setting]]:
    return [(part, each) for part in PARTS for each in part.all_settings()]


def test_whatever_sounds_like_a_file_an_address_or_a_key_is_local() -> None:
    open_ones = [
        f"{part.PART} {each.key}"
        for part, each in every_setting()
        if _DANGEROUS.search(each.key) and not each.is_local and each.key not in HARMLESS
    ]
    assert open_ones == []


def test_whatever_holds_a_path_or_a_secret_is_local() -> None:
    found = [each for _, each in every_setting() if each.kind.is_path or each.secret]
    assert len(found) > 20
    assert all(each.is_local for each in found)


@pytest.mark.parametrize(
    "key",
    [
        "bindAddress",
        "listenPort",
        "brokerIP1",
        "brokerIP2",
        "haListenPort",
        "namesrvAddr",
        "brokerConfigPath",
        "configBlackList",
        "metricsPromExporterPort",
        "metricsPromExporterHost",
        "logDir",
        "storePathRootDir",
        "storePathCommitLog",
        "tls.server.mode",
        "tls.server.keyPath",
        "tls.config.file",
        "proxyProtocolTrustedAddresses",
        "aclEnable",
        "authenticationEnabled",
        "messageStorePlugIn",
        "controllerAddr",
        "rocketmqHome",
    ],
)
def test_these_are_local(key: str) -> None:
    known = BrokerSettings.find(key) or StoreSettings.find(key)
    assert known is not None
    assert known.is_local


@pytest.mark.parametrize(
    "key", ["brokerPermission", "fileReservedTime", "maxMessageSize", "autoCreateTopicEnable", "deleteWhen"]
)
def test_what_operators_change_every_day_is_not(key: str) -> None:
    known = BrokerSettings.find(key) or StoreSettings.find(key)
    assert known is not None
    assert not known.is_local


def test_a_local_setting_never_claims_to_act_at_once() -> None:
    assert [each.key for _, each in every_setting() if each.is_local and each.mutable] == []
