"""Settings of clients and producers: what they accept, and who they make of a process."""

import typing
from typing import Any

import pytest

from pyromq.client.consumer.settings import PullOptions, PullSettings, PushOptions, PushSettings
from pyromq.client.producer import Producer
from pyromq.client.producer_settings import ProducerOptions, ProducerSettings
from pyromq.client.settings import ClientOptions, ClientSettings, split_options
from pyromq.cluster.local_address import local_address
from pyromq.config.options import Options
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
        {"max_in_flight": None},
        {"send_timeout_s": "3"},
        {"trace_topic": 7},
        {"compression": "zlib"},
        {"retries": 1.5},
        {"trace": "no"},
        {"try_timeout_s": 0},
        {"default_topic_queues": 0},
    ],
)
def test_producers_do_not_start_with_bad_settings(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ProducerSettings(**options)


def hints(part: type) -> dict[str, Any]:
    return {name: kind for name, kind in typing.get_type_hints(part).items() if name.islower()}


def test_every_setting_is_an_option_with_the_same_type() -> None:
    client = {name: kind for name, kind in hints(ClientSettings).items() if name != "namesrv"}
    assert hints(ClientOptions) == client
    assert hints(ProducerOptions) == client | hints(ProducerSettings)
    assert hints(PushOptions) == client | hints(PushSettings)
    assert hints(PullOptions) == client | hints(PullSettings)


def test_options_are_split_by_whom_they_are_about() -> None:
    settings, rest = split_options({"retries": 5, "namespace": "blue", "trace": True}, ProducerSettings)
    assert (settings.retries, settings.trace, rest) == (5, True, {"namespace": "blue"})


@pytest.mark.parametrize(
    ("settings", "given", "sentence"),
    [
        (ProducerSettings, {"retries": -1}, "retries=-1: expected a whole number of at least 0"),
        (ProducerSettings, {"linger_ms": -1}, "linger_ms=-1: expected a number between 0 and 30000 or None"),
        (PushSettings, {"concurrency": "3"}, "concurrency='3': expected a whole number between 1 and 1000"),
        (PullSettings, {"start_from": 7}, 'start_from=7: expected "first", "last" or a datetime'),
        (
            ClientSettings,
            {"credentials": ("me", "hidden")},
            "credentials=******: expected a value of type Credentials or None",
        ),
    ],
)
def test_a_bad_option_is_told_with_its_value_and_what_it_may_be(
    settings: type[Options], given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(**given)
    assert str(caught.value) == sentence


def test_an_unknown_option_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(TypeError, match=r"unknown option 'concurency': did you mean 'concurrency'\?"):
        split_options({"concurency": 5}, PushSettings)
    with pytest.raises(TypeError, match="did you mean 'call_timeout_s'"):
        split_options({"call_timeout": 5}, ProducerSettings)
    with pytest.raises(TypeError, match=r"unknown option 'xyz': there are .*retries"):
        split_options({"xyz": 5}, ProducerSettings)


def test_a_page_that_lists_name_servers_is_not_the_address_of_one() -> None:
    assert ClientSettings.of("http://127.0.0.1:9876").namesrv == ("127.0.0.1:9876",)
    for page in ("http://127.0.0.1:9876/", "http://where:8080/rocketmq/nsaddr"):
        with pytest.raises(ConfigError, match="the URL of a list of them is `namesrv_url`"):
            ClientSettings.of(page)


def test_a_producer_without_a_group_is_a_bad_setting() -> None:
    with pytest.raises(ConfigError, match="the group must be str"):
        Producer(None, "a:1")  # type: ignore[arg-type]
