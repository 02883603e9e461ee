"""RocketMQ's own 5.x clients at our gRPC front under access control: with right keys, wrong ones and none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.support.access import ROOT, SECURE
from tests.support.apache_releases import PeerUnavailable
from tests.support.front import SharedFront, front_in_thread
from tests.support.official_clients import LANGUAGES, OfficialClient, program_of

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

RIGHT = (ROOT.access_key, ROOT.secret_key)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedFront]:
    """The front and the broker behind it ask for signatures; the front signs as a server."""
    settings = {**SECURE, "auth_config_path": tmp_path_factory.mktemp("access")}
    with front_in_thread(settings=settings, **SECURE) as started:
        yield started


@pytest.fixture(scope="module", params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    try:
        program_of(name)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    return name


def test_who_has_the_right_keys_sends_and_receives(running: SharedFront, language: str) -> None:
    topic = f"Guarded-{language}"
    asyncio.run(running.create_topic(topic))
    with (
        OfficialClient(
            language, running.target, "simple", topic, f"G-{language}", "1", keys=RIGHT
        ) as consumer,
        OfficialClient(language, running.target, "produce", topic, "normal", "1", keys=RIGHT) as producer,
    ):
        producer.wait("sent")
        assert consumer.bodies(1) == ["normal-0"]


@pytest.mark.parametrize(
    "keys", [(ROOT.access_key, "wrong"), ("nobody", ROOT.secret_key), None], ids=["wrong", "nobody", "none"]
)
def test_who_has_not_sends_nothing(running: SharedFront, language: str, keys: tuple[str, str] | None) -> None:
    topic = f"Guarded-{language}"
    asyncio.run(running.create_topic(topic))
    with OfficialClient(language, running.target, "produce", topic, "normal", "1", keys=keys) as producer:
        producer.wait("failed")
        assert not producer.has("sent")
