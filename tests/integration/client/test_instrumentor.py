"""`opentelemetry-instrument` and our clients: spans without a word in the application."""

from importlib.metadata import entry_points

import pytest
from tests.support.recorded_spans import one, record_anew, spans

from pyromq import Message, Producer
from pyromq.testing import RunningCluster

pytest.importorskip("opentelemetry.instrumentation.instrumentor")


def test_clients_make_spans_while_the_process_is_instrumented(rocketmq: RunningCluster) -> None:
    (found,) = entry_points(group="opentelemetry_instrumentor", name="pyromq")
    instrumentor = found.load()()
    record_anew()
    instrumentor.instrument()
    try:
        with Producer("tills", rocketmq.namesrv) as producer:
            producer.send(Message("Orders", b"1"))
    finally:
        instrumentor.uninstrument()
    assert one("send Orders").parent is None
    with Producer("tills", rocketmq.namesrv) as producer:
        producer.send(Message("Orders", b"2"))
    assert len(spans("send Orders")) == 1
