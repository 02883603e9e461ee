"""What a declaration says while brokers are away: something that a later try may mend."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyromq.client.declaring import declare_topic
from pyromq.client.session import Session
from pyromq.errors import NoRoute, TransportError


class _NoBrokers:
    """A cluster whose name servers answer and whose brokers are away, or have not come back yet."""

    settings = SimpleNamespace(call_timeout_s=1.0)

    @property
    def routes(self) -> "_NoBrokers":
        return self

    async def refresh(self, topic: str) -> None:
        raise NoRoute(topic, "ns:9876")

    async def ask_name_server(self, *_: Any) -> Any:
        return SimpleNamespace(body=SimpleNamespace(broker_addr_table={}))


async def test_a_cluster_without_brokers_is_an_error_that_callers_try_again_after() -> None:
    with pytest.raises(TransportError, match="no master now"):
        await declare_topic(cast(Session, _NoBrokers()), "orders", 4, "NORMAL")
