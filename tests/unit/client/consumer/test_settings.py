"""Which settings, groups and topics are refused, and what needs a running consumer."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pyromq.client.consumer.pull import PullConsumer
from pyromq.client.consumer.push import PushConsumer
from pyromq.client.consumer.settings import PullSettings, PushSettings, SimpleSettings
from pyromq.errors import ConfigError, StateError


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": "3"},
        {"concurrency": 1001},
        {"batch_size": 0},
        {"batch_size": 1025},
        {"max_retries": -1},
        {"suspend_s": 0},
        {"queue_messages": 65_536},
        {"queue_span": 0},
        {"topic_messages": 0},
        {"start_from": "middle"},
        {"mode": "POP"},
        {"ordered": "false"},
        {"concurrency": 1.5},
        {"assignment": "AVG"},
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PushSettings(**options)


def test_pull_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError):
        PullSettings(auto_commit_interval_s=0.5)
    with pytest.raises(ConfigError, match='expected "first", "last" or a datetime'):
        SimpleSettings(start_from="middle")  # type: ignore[arg-type]


@pytest.mark.parametrize("group", ["", "DEFAULT_CONSUMER", "a b"])
def test_groups_that_brokers_would_refuse_are_refused(group: str) -> None:
    with pytest.raises(ConfigError, match="group"):
        PushConsumer(group, "127.0.0.1:9876")
    with pytest.raises(ConfigError, match="group"):
        PullConsumer(group, "127.0.0.1:9876")


def test_a_consumer_takes_options_of_both_kinds() -> None:
    moment = datetime(2024, 5, 1, tzinfo=UTC)
    consumer = PushConsumer(
        "billing",
        "127.0.0.1:9876",
        start_from=moment,
        ordered=True,
        namespace="shop",
        offset_directory=Path("offsets"),
    )
    assert consumer.settings.start_from == moment
    assert consumer.settings.thresholds.span is None
    assert consumer.client_settings.namespace == "shop"
    assert "not running" in repr(consumer)


def test_topics_that_cannot_exist_are_refused() -> None:
    consumer = PushConsumer("billing", "127.0.0.1:9876")
    with pytest.raises(ConfigError, match="topic"):
        consumer.subscribe("a b", "*", print)


def test_a_stream_has_no_batches() -> None:
    consumer = PushConsumer("billing", "127.0.0.1:9876", batch_size=8)
    with pytest.raises(StateError, match="handler"):
        consumer.subscribe("Orders")


async def test_what_needs_a_running_consumer_says_so() -> None:
    consumer = PushConsumer("billing", "127.0.0.1:9876")
    with pytest.raises(StateError, match="not running"):
        consumer.pause()
    with pytest.raises(StateError, match="not running"):
        await consumer.drain()
    with pytest.raises(StateError, match="not running"):
        await PullConsumer("reports", "127.0.0.1:9876").poll()
    await consumer.close()


def test_pulls_ask_for_as_many_messages_as_a_handler_takes() -> None:
    assert PushSettings().messages_per_pull == 32
    assert PushSettings(batch_size=8).messages_per_pull == 32
    assert PushSettings(batch_size=256).messages_per_pull == 256
    assert PushSettings(batch_size=256, pull_batch_size=512).messages_per_pull == 512
