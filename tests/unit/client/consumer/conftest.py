"""A network that answers as a test wants."""

import pytest
from tests.support.fake_network import FakeNetwork
from tests.support.held_messages import ORDERS, RETRIES


@pytest.fixture
def network() -> FakeNetwork:
    return FakeNetwork(ORDERS, RETRIES)
