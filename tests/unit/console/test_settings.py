from pathlib import Path

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


def test_each_cluster_may_have_keys_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "prod.keys"
    file.write_text("AccessKey=prod-console\nSecretKey=geheim\n")
    settings = ConsoleSettings(
        clusters="prod=a:1,test=b:2",
        access_key="console",
        secret_key="other",
        cluster_key_files=f"prod={file}",
    )
    found = {name: settings.credentials_of(name) for name in settings.cluster_addresses()}
    assert {name: keys and keys.access_key for name, keys in found.items()} == {
        "prod": "prod-console",
        "test": "console",
    }
    for wrong in ("prod", "=/x", "rome=/x"):
        with pytest.raises(ConfigError, match="clusterKeyFiles="):
            ConsoleSettings(clusters="prod=a:1", cluster_key_files=wrong)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"oidc_issuer": "http://idp.example"}, "oidcIssuer=.*: expected an address that begins with https"),
        ({"oidc_issuer": "idp"}, "oidcIssuer="),
        ({"oidc_issuer": "https://idp.example"}, "oidcClientId="),
        (
            {"oidc_issuer": "https://idp.example", "oidc_client_id": "c", "oidc_scopes": "profile"},
            "oidcScopes=profile: expected openid",
        ),
        ({"oidc_roles": "staff=admin"}, "oidcRoles=staff=admin: expected to be set together with oidcIssuer"),
        ({"schema_registry": "host:8081"}, "schemaRegistry=host:8081: expected a URL"),
        ({"metrics_exporter": "LOG", "log_level": "WARNING"}, "expected logLevel to be INFO"),
    ],
)
def test_a_provider_or_registry_that_cannot_be_used_is_refused(values: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        ConsoleSettings(**values)  # type: ignore[arg-type]
