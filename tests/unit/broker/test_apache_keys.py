"""Every key that Apache's brokers take is taken here; what would promise too much is refused."""

from pathlib import Path

import pytest
from tests.support.places import GOLDEN

from pyromq.broker.settings import BrokerSettings, load_broker
from pyromq.config.loading import Layer, file_layer
from pyromq.config.options import Setting
from pyromq.config.settings import NoEffect
from pyromq.errors import ConfigError
from pyromq.store.settings import StoreSettings

KEYS = dict(line.split(" ", 1) for line in (GOLDEN / "settings" / "broker_keys.txt").read_text().splitlines())
"""What has a setter in the configuration classes of Apache's brokers, with the releases that know it."""


def known(key: str) -> Setting | None:
    return BrokerSettings.find(key) or StoreSettings.find(key)


def test_the_list_is_whole() -> None:
    assert len(KEYS) > 400
    for key in ("brokerIP1", "mappedFileSizeCommitLog", "serverWorkerThreads", "dLegerSelfId"):
        assert "4.9.8" in KEYS[key]


@pytest.mark.parametrize("release", ["4.9.8", "5.3.3", "5.5.0"])
def test_no_key_of_a_release_is_unknown(tmp_path: Path, release: str) -> None:
    keys = [key for key, releases in KEYS.items() if release in releases]
    assert [key for key in keys if known(key) is None] == []
    lines = [f"{key}={each.default_text}\n" for key in keys if (each := known(key)) and each.default_text]
    path = tmp_path / "broker.conf"
    path.write_text("".join(lines))
    configuration = load_broker([file_layer(path)])
    (notice,) = configuration.notices
    assert isinstance(notice, NoEffect), "those without effect, in one line"
    assert configuration.broker.unrecognised == {}


def test_policies_without_users_are_refused() -> None:
    with pytest.raises(ConfigError, match="authenticationEnabled to be true as well"):
        load_broker([Layer("the test", {"authorizationEnabled": "true"})])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("initAuthenticationUser", '{"username":"rocketmq","password":"12345678"}'),
        ("innerClientAuthenticationCredentials", '{"accessKey":"rocketmq","secretKey":"12345678"}'),
    ],
)
def test_credentials_in_a_file_stay_in_it(tmp_path: Path, key: str, value: str) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(f"{key}={value}\n")
    configuration = load_broker([file_layer(path)])
    assert key not in configuration.as_java_dict(), "nobody gets it over the network"
    assert "12345678" not in configuration.describe()
