"""Settings of clients and producers: what they accept, and who they make of a process."""

import typing
from dataclasses import fields
from typing import Any

import pytest

from pyromq.client.producer_settings import ProducerOptions, ProducerSettings, split_options
from pyromq.client.settings import ClientOptions, ClientSettings
from pyromq.cluster.local_address import local_address
from pyromq.errors import ConfigError


def test_name_servers_in_a_list_or_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ClientSettings.of(["a:1", "b:2"]).namesrv == ("a:1", "b:2")
    monkeypatch.setenv("NAMESRV_ADDR", "c:3;d:4")
    assert ClientSettings.of().namesrv == ("c:3", "d:4")
    assert ClientSettings.of("a:1").namesrv == ("a:1",)
    assert ClientSettings.of(namesrv_url="http://where/ns").namesrv == ()
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ConfigError, match="the address of a name server, say"):
        ClientSettings.of()


def test_an_endpoint_of_an_instance_is_a_namespace() -> None:
    endpoint = "http://MQ_INST_123_abc.region.example.com:80"
    settings = ClientSettings.of(endpoint)
    assert (settings.namespace, settings.namesrv) == (
        "MQ_INST_123_abc",
        ("MQ_INST_123_abc.region.example.com:80",),
    )
    assert ClientSettings.of(endpoint, namespace="own").namespace == "own"
    assert ClientSettings.of("MQ_INST_host:80").namespace is None


@pytest.mark.parametrize(
    ("options", "client_id"),
    [
        ({}, "10.0.0.1@42#7"),
        ({"instance_name": "one"}, "10.0.0.1@one"),
        ({"unit_name": "u"}, "10.0.0.1@42#7@u"),
        ({"instance_name": "one", "unit_name": "u"}, "10.0.0.1@one@u"),
    ],
)
def test_the_parts_of_a_client_id(options: dict[str, Any], client_id: str) -> None:
    settings = ClientSettings.of("a:1", client_ip="10.0.0.1", **options)
    assert settings.client_id("42#7") == client_id


def test_the_default_instance_keeps_its_name_where_it_must() -> None:
    assert ClientSettings.of("a:1", client_ip="10.0.0.1").client_id() == "10.0.0.1@DEFAULT"
    assert ClientSettings.of("a:1").client_id() == f"{local_address()}@DEFAULT"


@pytest.mark.parametrize(
    "options",
    [
        {"namesrv": "nowhere"},
        {"namesrv": "a:0"},
        {"call_timeout_s": 0},
        {"route_interval_s": -1},
        {"heartbeat_interval_s": 0},
    ],
)
def test_clients_do_not_start_with_bad_settings(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ClientSettings.of(**{"namesrv": "a:1"} | options)


@pytest.mark.parametrize(
    "options",
    [
        {"retries": -1},
        {"send_timeout_s": 0},
        {"linger_ms": -1},
        {"linger_ms": 30_001},
        {"batch_max_bytes": 0},
        {"batch_max_bytes": 3 << 20},
        {"max_in_flight": 0},
    ],
)
def test_producers_do_not_start_with_bad_settings(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ProducerSettings(**options)


def hints(part: type) -> dict[str, Any]:
    return typing.get_type_hints(part)


def test_every_setting_is_an_option_with_the_same_type() -> None:
    client = {name: kind for name, kind in hints(ClientSettings).items() if name != "namesrv"}
    assert hints(ClientOptions) == client
    assert hints(ProducerOptions) == client | hints(ProducerSettings)


def test_options_are_split_by_whom_they_are_about() -> None:
    settings, rest = split_options({"retries": 5, "namespace": "blue", "trace": True})
    assert (settings.retries, settings.trace, rest) == (5, True, {"namespace": "blue"})


def test_a_policy_is_made_of_the_settings() -> None:
    policy = ProducerSettings(retries=7, send_timeout_s=2, avoid_slow_brokers=False).policy
    assert (policy.retries, policy.timeout_s, policy.avoid_slow_brokers) == (7, 2, False)
    assert {field.name for field in fields(policy)} - {"timeout_s"} <= {
        field.name for field in fields(ProducerSettings)
    }
