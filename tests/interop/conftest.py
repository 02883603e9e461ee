"""Peers shared by the interop tests: starting a JVM takes seconds, so each is started once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.support.apache import ApacheClient, ClientOf
from tests.support.apache_releases import Release


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
