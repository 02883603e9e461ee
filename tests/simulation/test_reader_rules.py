"""Answers of brokers are looked at as they are written, whoever asked."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.simulation.reader_rules import ReaderRules
from tests.simulation.recording import Recorder

from pyromq.protocol.frame import RESPONSE_FLAG, Frame
from pyromq.protocol.framing import encode_frame
from pyromq.protocol.record import StoredMessage, SysFlag, encode_record

_HALF = SysFlag.TRANSACTION_PREPARED


def record(topic: str, log_offset: int, sys_flag: int = 0) -> bytes:
    return encode_record(StoredMessage(topic=topic, body=b"1", log_offset=log_offset, sys_flag=sys_flag))


def found_in(body: bytes, *, flag: int = RESPONSE_FLAG) -> list[str]:
    """What is wrong if a broker whose log is confirmed up to 2000 writes a frame with this body, in pieces.
    A topic was deleted at 1000."""
    recorder = Recorder(lambda: 0.0)
    topics = SimpleNamespace(is_deleted=lambda topic, offset: topic == "Deleted" and offset < 1000)
    server = SimpleNamespace(host=SimpleNamespace(name="b1"))
    cluster: Any = SimpleNamespace(
        brokers=[server],
        network=SimpleNamespace(watchers={}),
        broker=lambda _: SimpleNamespace(store=SimpleNamespace(topics=topics)),
    )
    ReaderRules(cluster, recorder, lambda: 2000)
    (watcher,) = cluster.network.watchers.values()
    watch = watcher(server)
    frames = Frame(0, flag=RESPONSE_FLAG, body=b"{}"), Frame(0, flag=flag, body=body)
    data = b"".join(map(encode_frame, frames))
    for start in range(0, len(data), 50):
        watch(data[start : start + 50])
    return [each.invariant for each in recorder.violations]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (record("Topic", 500) + record("Topic", 700), []),
        (record("Topic", 500) + record("Topic", 2000), ["shown, but not confirmed"]),
        (record("Topic", 500, _HALF), ["a half message was shown"]),
        (record("Deleted", 999), ["a message of a deleted topic was shown"]),
        (record("Deleted", 1000), []),
        (b"no record", []),
    ],
)
def test_an_answer_shows_only_what_readers_may_see(body: bytes, expected: list[str]) -> None:
    assert found_in(body) == expected


def test_a_producer_is_asked_about_its_half_message() -> None:
    assert found_in(record("Topic", 500, _HALF), flag=0) == []
