"""One text says where a cluster is and how to get in."""

from pathlib import Path
from typing import Any

import pytest

from pyromq.client.settings import ClientSettings, Credentials, TlsOptions
from pyromq.cluster.connection_url import ConnectionUrl, keys_from_environment
from pyromq.errors import ConfigError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "ACCESS_KEY", "SECRET_KEY", "KEY_FILE"):
        monkeypatch.delenv(f"PYROMQ_{name}", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1;b:2", ConnectionUrl("a:1;b:2")),
        ("rocketmq://a:1", ConnectionUrl("a:1")),
        ("rocketmq://a:1,b:2/", ConnectionUrl("a:1;b:2")),
        ("rocketmq://a:1/shop?tls=false", ConnectionUrl("a:1", "shop")),
        ("rocketmq://alice:p%40ss@a:1", ConnectionUrl("a:1", None, Credentials("alice", "p@ss"))),
        ("rocketmq://a:1?tls=true", ConnectionUrl("a:1", tls=TlsOptions())),
        (
            "rocketmq://a:1?tls_trust=/ca.pem",
            ConnectionUrl("a:1", tls=TlsOptions(trust_path=Path("/ca.pem"), verify=True)),
        ),
        (
            "rocketmq://a:1?tls=true&tls_certificate=/c.pem&tls_key=/k.pem",
            ConnectionUrl("a:1", tls=TlsOptions(certificate_path=Path("/c.pem"), key_path=Path("/k.pem"))),
        ),
    ],
)
def test_a_url_says_everything(text: str, expected: ConnectionUrl) -> None:
    assert ConnectionUrl.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rocketmq://", "a URL like"),
        ("rocketmq://alice@a:1", "a URL like"),
        ("rocketmq://alice:secret@a:1/b/c", "a URL like"),
        ("rocketmq://a:1?tsl=true", "one of tls, tls_trust"),
        ("rocketmq://a:1?tls=perhaps", "tls=true or tls=false"),
        ("rocketmq://a:1?key_file=/no/such/file", "a readable file"),
    ],
)
def test_a_wrong_url_is_refused_without_its_secret(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ConnectionUrl.parse(text)
    assert complaint in str(refused.value)
    assert "secret" not in str(refused.value).replace("user:secret", "")


def test_options_win_over_the_url_and_the_url_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("AccessKey=file\nSecretKey=1\n")
    monkeypatch.setenv("NAMESRV_ADDR", "old:1")
    monkeypatch.setenv("PYROMQ_KEY_FILE", str(keys))
    assert ClientSettings.of().namesrv == ("old:1",)
    assert ClientSettings.of().credentials == Credentials("file", "1")
    monkeypatch.setenv("PYROMQ_URL", "rocketmq://url:2@a:1,b:2/shop")
    found = ClientSettings.of()
    assert (found.namesrv, found.namespace, found.credentials) == (
        ("a:1", "b:2"),
        "shop",
        Credentials("url", "2"),
    )
    assert ClientSettings.of("c:3").namesrv == ("c:3",)
    own = ClientSettings.of(namespace="mine", credentials=Credentials("me", "3"))
    assert (own.namespace, own.credentials) == ("mine", Credentials("me", "3"))
    assert ClientSettings.of("c:3", key_file=keys).credentials == Credentials("file", "1")
    as_text: Any = str(keys)
    assert ClientSettings.of("c:3", key_file=as_text).credentials == Credentials("file", "1")


def test_keys_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("AccessKey=file\nSecretKey=1\n")
    both = {"PYROMQ_ACCESS_KEY": "me", "PYROMQ_SECRET_KEY": "2", "PYROMQ_KEY_FILE": str(keys)}
    assert keys_from_environment(both) == Credentials("me", "2")
    assert keys_from_environment({"PYROMQ_KEY_FILE": str(keys)}) == Credentials("file", "1")
    assert keys_from_environment({}) is None
