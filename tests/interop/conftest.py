"""Peers shared by the interop tests: starting a JVM takes seconds, so each is started once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.support.apache import (
    ApacheBroker,
    ApacheClient,
    ApacheNameServer,
    ApacheServers,
    ClientOf,
    wait_for_broker,
)
from tests.support.apache_releases import RELEASES, Release


@pytest.fixture(scope="session")
def client_of() -> Iterator[ClientOf]:
    """Apache's client of a release in a header form ("JSON" or "ROCKETMQ"), one JVM for all tests."""
    with ExitStack() as running:
        clients: dict[tuple[Release, str], ApacheClient] = {}

        def client(release: Release, form: str) -> ApacheClient:
            if (release, form) not in clients:
                clients[release, form] = running.enter_context(ApacheClient(release, form))
            return clients[release, form]

        yield client


@pytest.fixture(scope="module", params=RELEASES, ids=str)
def servers(
    request: pytest.FixtureRequest, client_of: ClientOf, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheServers]:
    """Apache's name server and broker of each release; the broker has the `SETTINGS` of the test's file."""
    release: Release = request.param
    settings = getattr(request.module, "SETTINGS", {})
    with (
        ApacheNameServer(release) as names,
        ApacheBroker(release, names.address, tmp_path_factory.mktemp("store"), settings=settings) as broker,
    ):
        wait_for_broker(names.address, broker.name)
        yield ApacheServers(release, names.address, broker, client_of)
