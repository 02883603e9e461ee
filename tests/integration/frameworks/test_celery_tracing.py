"""OpenTelemetry's own instrumentation of Celery: the context of the sender reaches the task."""

import pytest
from tests.support.recorded_spans import one, record_anew, span_id

from pyromq.testing import RunningCluster

celery = pytest.importorskip("celery")
pytest.importorskip("opentelemetry.instrumentation.celery")
pytestmark = pytest.mark.filterwarnings("ignore")

TIMEOUT_S = 60.0


def test_a_task_runs_in_the_trace_of_its_sender_also_after_an_eta(rocketmq: RunningCluster) -> None:
    from celery.contrib.testing.worker import start_worker
    from celery.signals import setup_logging
    from opentelemetry import trace
    from opentelemetry.instrumentation.celery import CeleryInstrumentor

    record_anew()
    url = f"rocketmq://{rocketmq.namesrv}/traced"
    app = celery.Celery("traced", broker=url, backend="rpc://", set_as_current=False)

    @app.task(name="traced.add")  # type: ignore[untyped-decorator]
    def add(x: int, y: int) -> int:
        return x + y

    def leave_logging_alone(**_: object) -> None:
        """A worker would change the root logger of the tests."""

    setup_logging.connect(leave_logging_alone)
    instrumentor = CeleryInstrumentor()
    instrumentor.instrument()
    try:
        with start_worker(app, pool="solo", perform_ping_check=False):
            with trace.get_tracer("shop").start_as_current_span("checkout"):
                result = add.apply_async((1, 2), countdown=1)
            assert result.get(timeout=TIMEOUT_S) == 3
    finally:
        instrumentor.uninstrument()
        setup_logging.disconnect(leave_logging_alone)
        app.close()
    sent, run = one("apply_async/traced.add"), one("run/traced.add")
    assert run.parent is not None
    assert run.parent.span_id == span_id(sent)
    assert sent.parent is not None
    assert sent.parent.span_id == span_id(one("checkout"))
