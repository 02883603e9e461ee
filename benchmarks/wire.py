"""Requests of the remoting protocol, written by hand: a benchmark must not lean on the code it measures."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

VERSION: Final = 479
FIRST_OPAQUE: Final = 1_000_000
"""Seven digits: loadgen writes its own into the same place."""

PULL_MESSAGE: Final = 11
CREATE_TOPIC: Final = 17
GET_MAX_OFFSET: Final = 30
REGISTER_BROKER: Final = 103
GET_ROUTE: Final = 105
QUERY_DATA_VERSION: Final = 322
SEND_MESSAGE_V2: Final = 310
BROKER_HEARTBEAT: Final = 904
TOPICS_CHANGED: Final = 30105

CLUSTER: Final = "BenchmarkCluster"
TOPICS_PER_REGISTRATION: Final = 20_000


def frame(code: int, ext: Mapping[str, str], body: bytes = b"", opaque: int = FIRST_OPAQUE) -> bytes:
    header = json.dumps(
        {
            "code": code,
            "extFields": ext,
            "flag": 0,
            "language": "JAVA",
            "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": VERSION,
        },
        separators=(",", ":"),
    ).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


class Wire:
    """One blocking connection; frames out, (header, body) pairs in."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def send(self, *frames: bytes) -> None:
        self._socket.sendall(b"".join(frames))

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next frame; EOFError if the server hung up, TimeoutError if one was set and passed."""
        while not self._has_whole():
            self._read()
        return self._next()

    def receive_whole(self) -> list[tuple[dict[str, Any], bytes]]:
        """Read once; the frames that are whole now."""
        self._read()
        frames = []
        while self._has_whole():
            frames.append(self._next())
        return frames

    def receive_headers(self) -> list[bytes]:
        """The same, only the headers, as bytes: for a load that must be fast."""
        self._read()
        buffer, at, headers = bytes(self._buffer), 0, []
        while len(buffer) - at >= 8:
            length, header_bytes = struct.unpack_from(">ii", buffer, at)
            if len(buffer) - at < 4 + length:
                break
            headers.append(buffer[at + 8 : at + 8 + (header_bytes & 0xFFFFFF)])
            at += 4 + length
        del self._buffer[:at]
        return headers

    def _has_whole(self) -> bool:
        return len(self._buffer) >= 4 and len(self._buffer) >= 4 + int.from_bytes(self._buffer[:4], "big")

    def _read(self) -> None:
        data = self._socket.recv(1 << 18)
        if not data:
            raise EOFError("the server hung up")
        self._buffer += data

    def _next(self) -> tuple[dict[str, Any], bytes]:
        end = 4 + int.from_bytes(self._buffer[:4], "big")
        header_end = 8 + (int.from_bytes(self._buffer[4:8], "big") & 0xFFFFFF)
        header, body = json.loads(self._buffer[8:header_end]), bytes(self._buffer[header_end:end])
        del self._buffer[:end]
        return header, body

    def call(self, request: bytes) -> tuple[dict[str, Any], bytes]:
        self.send(request)
        return self.receive()

    def set_timeout(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def close(self) -> None:
        self._socket.close()


def topic_name(number: int) -> str:
    return f"topic-{number:06d}"


def broker_fields(number: int) -> dict[str, str]:
    return {
        "brokerName": f"broker-{number:03d}",
        "brokerAddr": f"127.0.0.1:{20_000 + number}",
        "clusterName": CLUSTER,
        "brokerId": "0",
    }


def data_version(counter: int) -> dict[str, int]:
    return {"counter": counter, "stateVersion": 0, "timestamp": 1_700_000_000_000}


def registration(broker: Mapping[str, str], topics: Iterable[str], queues: int, counter: int) -> bytes:
    body = json.dumps(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": data_version(counter),
                "topicConfigTable": {
                    topic: {
                        "attributes": {},
                        "order": False,
                        "perm": 6,
                        "readQueueNums": queues,
                        "topicFilterType": "SINGLE_TAG",
                        "topicName": topic,
                        "topicSysFlag": 0,
                        "writeQueueNums": queues,
                    }
                    for topic in topics
                },
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {},
            },
        },
        separators=(",", ":"),
    ).encode()
    ext = {**broker, "haServerAddr": "127.0.0.1:1", "compressed": "false", "bodyCrc32": "0"}
    return frame(REGISTER_BROKER, ext, body)


def registrations(broker: Mapping[str, str], topics: Sequence[str], queues: int) -> list[bytes]:
    """All of a broker's topics, in as many registrations as keep a frame below its limit."""
    parts = range(0, len(topics), TOPICS_PER_REGISTRATION)
    return [
        registration(broker, topics[at : at + TOPICS_PER_REGISTRATION], queues, counter)
        for counter, at in enumerate(parts, 1)
    ]


def query_data_version(broker: Mapping[str, str], counter: int) -> bytes:
    return frame(QUERY_DATA_VERSION, broker, json.dumps(data_version(counter)).encode())


def heartbeat(broker: Mapping[str, str]) -> bytes:
    return frame(BROKER_HEARTBEAT, broker)


def route(topic: str, watch: bool = False) -> bytes:
    return frame(GET_ROUTE, {"topic": topic, **({"watch": "true"} if watch else {})})


def create_topic(topic: str, queues: int) -> bytes:
    ext = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    return frame(CREATE_TOPIC, ext)


def max_offset(server: Wire, topic: str, queue: int) -> int:
    """The offset behind the last message of a queue."""
    header, _ = server.call(
        frame(GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue), "committed": "true"})
    )
    if header["code"] != 0:
        raise RuntimeError(f"the end of {topic} is not known: {header}")
    return int(header["extFields"]["offset"])


def long_poll(topic: str, queue: int, opaque: int) -> bytes:
    """A pull at the beginning of an empty queue that may be held for minutes."""
    ext = {
        "consumerGroup": "group",
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "600000",
        "subscription": "*",
        "subVersion": "1700000000000",
        "expressionType": "TAG",
    }
    return frame(PULL_MESSAGE, ext, opaque=opaque)


def send(topic: str, queue: int, body: bytes = b"hello") -> bytes:
    ext = {
        "a": "group",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "WAIT\u0001true\u0002",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    return frame(SEND_MESSAGE_V2, ext, body)
