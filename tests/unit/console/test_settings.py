import pytest

from pyromq.console.settings import ConsoleSettings
from pyromq.errors import ConfigError


def test_clusters_are_named_in_the_settings() -> None:
    settings = ConsoleSettings(namesrv_addr="a:1;b:2", clusters="test=c:3, prod=d:4;e:5")
    assert settings.cluster_addresses() == {"default": "a:1;b:2", "test": "c:3", "prod": "d:4;e:5"}


def test_a_cluster_that_has_a_name_is_not_shown_again_as_the_default() -> None:
    settings = ConsoleSettings(namesrv_addr="a:1;b:2", clusters="paris=b:2;a:1,rome=c:3")
    assert [*settings.cluster_addresses()] == ["paris", "rome"]


@pytest.mark.parametrize(
    "clusters", ["x", "x=", "x=a", "x=a:b", "=a:1", "a/b=c:1", "x=a:1,x=b:1", "default=b:1"]
)
def test_a_wrong_list_of_clusters_is_refused(clusters: str) -> None:
    with pytest.raises(ConfigError, match="clusters="):
        ConsoleSettings(namesrv_addr="a:1", clusters=clusters)


@pytest.mark.parametrize("address", ["a", "a:b", "a:1;b", "http://a/b"])
def test_a_name_server_without_a_port_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"namesrvAddr=.*: expected host:port"):
        ConsoleSettings(namesrv_addr=address)


@pytest.mark.parametrize("path", ["mq", "/mq/", "/", "/a b", "/../x?"])
def test_a_wrong_base_path_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="basePath="):
        ConsoleSettings(base_path=path)


def test_keys_and_certificates_come_in_pairs() -> None:
    with pytest.raises(ConfigError, match="tlsKeyPath"):
        ConsoleSettings().updated({"tlsCertPath": "/x"})
    with pytest.raises(ConfigError, match="secretKey"):
        ConsoleSettings(access_key="ada")
    assert "******" in ConsoleSettings(access_key="ada", secret_key="geheim").describe()
