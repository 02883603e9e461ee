"""Namespace → key → text. Pure: `KvRequests` saves it to disk."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from pyromq.protocol import json_body
from pyromq.protocol.requests.kv import KVConfigSerializeWrapper

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The only namespace that the name server itself reads: topic → `brokerA:queues;brokerB:queues`."""


class KvTable:
    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}

    def __repr__(self) -> str:
        return f"<KvTable namespaces={len(self._namespaces)} entries={len(self)}>"

    def __len__(self) -> int:
        return sum(map(len, self._namespaces.values()))

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        for namespace, entries in self._namespaces.items():
            for key, value in entries.items():
                yield namespace, key, value

    def get(self, namespace: str, key: str) -> str | None:
        entries = self._namespaces.get(namespace)
        return None if entries is None else entries.get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        entries = self._namespaces.get(namespace)
        return None if entries is None else MappingProxyType(entries)

    def put(self, namespace: str, key: str, value: str) -> None:
        self._namespaces.setdefault(namespace, {})[key] = value

    def delete(self, namespace: str, key: str) -> None:
        """java: a namespace stays when its last key goes"""
        self._namespaces.get(namespace, {}).pop(key, None)

    def encode(self) -> bytes:
        return json_body.encode(KVConfigSerializeWrapper(config_table=self._namespaces))

    def load(self, data: bytes) -> None:
        """Load a file that `encode` or Apache's name server wrote; raises RemoteProtocolError."""
        self._namespaces = json_body.decode(data, KVConfigSerializeWrapper).config_table
