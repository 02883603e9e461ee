"""The first damaged record of a piece of a log, as compiled and interpreted code find it."""

import pytest

from pyromq.protocol.record import Host, StoredMessage, encode_record
from pyromq.store.log import record_checks


@pytest.fixture(params=["as installed", "interpreted"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "interpreted":
        monkeypatch.setattr(record_checks, "_native", None)


def record(topic: str) -> bytes:
    host = Host.of("10.1.2.3", 10911)
    return encode_record(StoredMessage(topic, b"hello", b"", 0, born_host=host, store_host=host))


def test_a_topic_that_is_not_text_is_damage() -> None:
    good, other = record("Orders"), record("Grün")
    bad = other.replace("ü".encode(), b"\xc3\xc3")
    assert record_checks.first_damaged(memoryview(good + other)) == -1
    assert record_checks.first_damaged(memoryview(good + bad)) == len(good)
