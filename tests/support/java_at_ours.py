"""Apache's Java client at our name server and broker."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.apache import ApacheClient, wait_for_broker
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Peers:
    name_server: str
    broker: OwnBroker
    client: ApacheClient

    def unused_topic(self, name: str) -> str:
        return f"{name}-{next(_numbers)}"

    def new_topic(self, name: str, queues: int = 4) -> str:
        topic = self.unused_topic(name)
        self.client.create_topic(self.name_server, self.broker.address, topic, queues)
        return topic

    def send(self, *messages: dict[str, Any], **options: object) -> list[dict[str, Any]]:
        return self.client.send(self.name_server, messages, **options)  # type: ignore[arg-type]

    def read(self, topic: str) -> list[dict[str, Any]]:
        return self.client.read(self.name_server, topic)

    def bodies(self, topic: str) -> list[bytes]:
        return sorted(row["body"] for row in self.read(topic))

    def wait_committed(self, topic: str, queues: int = 4) -> None:
        """For a group that is called like its topic."""
        self.client.wait_committed(self.name_server, topic, topic, queues)

    def mqadmin(self, *words: str) -> str:
        return self.client.mqadmin(*words, "-n", self.name_server)


@contextlib.contextmanager
def our_cluster(
    client: ApacheClient, form: str, settings: Mapping[str, str] | None = None
) -> Iterator[Peers]:
    chosen = {"serializeTypeCurrentRPC": form}
    with (
        OwnNameServer(chosen) as name_server,
        OwnBroker(name_server.address, settings=chosen | dict(settings or {})) as broker,
    ):
        wait_for_broker(name_server.address, broker.name)
        yield Peers(name_server.address, broker, client)
        assert " ERROR " not in broker.output(), broker.output()
