"""`pyromq.logging`: an application's log in a topic, and never in the application's way."""

import io
import json
import logging
import logging.config
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from opentelemetry.sdk.trace import TracerProvider

from pyromq import Admin, ConfigError, Reader, ReceivedMessage
from pyromq.logging import JsonFormatter, TopicHandler
from pyromq.testing import RunningCluster

LONG_S = 60.0


@pytest.fixture
def logger(request: pytest.FixtureRequest) -> Iterator[logging.Logger]:
    logger = logging.getLogger(f"shop.{request.node.name}")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


def received(rocketmq: RunningCluster) -> list[ReceivedMessage]:
    """All that the topic has now."""
    with Admin(rocketmq.namesrv) as admin:
        wanted = sum(queue.end - queue.first for queue in admin.describe_topic("Logs").queues)
    found: list[ReceivedMessage] = []
    with Reader("Logs", namesrv=rocketmq.namesrv, start_from="first") as reader:
        while len(found) < wanted:
            found += reader.receive()
    return found


def documents(rocketmq: RunningCluster) -> list[dict[str, Any]]:
    return [json.loads(message.body) for message in received(rocketmq)]


def test_a_record_arrives_with_level_place_exception_and_extra_fields(
    rocketmq: RunningCluster, logger: logging.Logger
) -> None:
    handler = TopicHandler("Logs", rocketmq.namesrv, service="shop", flush_timeout_s=LONG_S)
    logger.addHandler(handler)
    try:
        raise ValueError("no such order")
    except ValueError:
        logger.exception("order %s failed", 7, extra={"customer": "c-1", "path": Path("a")})
    handler.flush()
    (document,) = documents(rocketmq)
    assert document["message"] == "order 7 failed"
    assert document["level"] == "ERROR"
    assert document["logger"] == logger.name
    assert document["service"] == "shop"
    assert document["function"] == test_a_record_arrives_with_level_place_exception_and_extra_fields.__name__
    assert document["exception"].endswith("ValueError: no such order")
    assert document["extra"] == {"customer": "c-1", "path": "a"}
    assert document["process"] == os.getpid()
    assert "trace_id" not in document
    (message,) = received(rocketmq)
    assert message.tags == "ERROR"


def test_the_trace_is_the_key_of_what_is_logged_in_it(
    rocketmq: RunningCluster, logger: logging.Logger
) -> None:
    handler = TopicHandler("Logs", rocketmq.namesrv, flush_timeout_s=LONG_S)
    logger.addHandler(handler)
    with TracerProvider().get_tracer("shop").start_as_current_span("order") as span:
        logger.info("inside")
    handler.flush()
    (message,) = received(rocketmq)
    trace_id = f"{span.get_span_context().trace_id:032x}"
    assert message.keys == (trace_id,)
    assert json.loads(message.body)["trace_id"] == trace_id


def test_a_formatter_of_the_application_decides_the_body(
    rocketmq: RunningCluster, logger: logging.Logger
) -> None:
    handler = TopicHandler("Logs", rocketmq.namesrv, flush_timeout_s=LONG_S)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.warning("plain")
    handler.flush()
    assert [message.body for message in received(rocketmq)] == [b"WARNING plain"]


def test_dict_config_makes_a_handler(rocketmq: RunningCluster, logger: logging.Logger) -> None:
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {
                "topic": {
                    "class": "pyromq.logging.TopicHandler",
                    "topic": "Logs",
                    "namesrv": rocketmq.namesrv,
                    "level": "WARNING",
                    "flush_timeout_s": LONG_S,
                    "linger_ms": 5,
                }
            },
            "loggers": {logger.name: {"handlers": ["topic"], "level": "DEBUG", "propagate": False}},
        }
    )
    logger.info("too low")
    logger.warning("sent")
    logger.handlers[0].flush()
    assert [document["message"] for document in documents(rocketmq)] == ["sent"]


def test_without_a_broker_the_application_goes_on_and_what_does_not_fit_is_counted(
    rocketmq: RunningCluster, logger: logging.Logger
) -> None:
    handler = TopicHandler("Logs", rocketmq.namesrv, capacity=10, flush_timeout_s=LONG_S, send_timeout_s=0.5)
    logger.addHandler(handler)
    rocketmq.stop_broker()
    for number in range(25):
        logger.info("record %s", number)
    assert handler.dropped == 15
    rocketmq.start_broker()
    handler.flush()
    told = documents(rocketmq)
    assert {document["message"] for document in told} >= {f"record {number}" for number in range(10)}
    (report,) = [document for document in told if "dropped" in document]
    assert report["message"] == "15 log records were dropped"
    assert report["dropped"] == 15


def test_a_record_that_cannot_be_formatted_is_told_on_stderr_and_not_raised(
    rocketmq: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, told = TopicHandler("Logs", rocketmq.namesrv), io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    handler.handle(logging.makeLogRecord({"name": "shop", "msg": "%d", "args": ("no number",)}))
    handler.close()
    assert "TypeError" in told.getvalue()


def test_a_record_that_is_too_large_is_dropped_alone(
    rocketmq: RunningCluster, logger: logging.Logger
) -> None:
    handler = TopicHandler("Logs", rocketmq.namesrv, flush_timeout_s=LONG_S, max_message_bytes=2000)
    logger.addHandler(handler)
    logger.info("x" * 3000)
    logger.info("short")
    handler.flush()
    handler.flush()  # the report of the first
    assert handler.dropped == 1
    assert "short" in {document["message"] for document in documents(rocketmq)}


def test_a_signal_handler_may_log_while_a_record_is_put_into_the_buffer(
    rocketmq: RunningCluster, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = TopicHandler("Logs", rocketmq.namesrv, flush_timeout_s=LONG_S)
    logger.addHandler(handler)
    notify = handler._changed.notify_all

    def interrupted() -> None:  # the lock of the buffer is taken here
        monkeypatch.setattr(handler._changed, "notify_all", notify)
        logger.info("in the signal handler")
        notify()

    monkeypatch.setattr(handler._changed, "notify_all", interrupted)
    logger.info("before")
    handler.flush()
    assert [document["message"] for document in documents(rocketmq)] == ["before", "in the signal handler"]


def test_any_failure_of_a_send_is_followed_by_another_try(
    rocketmq: RunningCluster, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = TopicHandler("Logs", rocketmq.namesrv, flush_timeout_s=LONG_S)
    logger.addHandler(handler)
    make = handler._new_producer

    def fail() -> NoReturn:
        monkeypatch.setattr(handler, "_new_producer", make)
        raise RuntimeError("no memory for a thread")

    monkeypatch.setattr(handler, "_new_producer", fail)
    logger.info("sent later")
    handler.flush()
    assert [document["message"] for document in documents(rocketmq)] == ["sent later"]


def test_records_of_the_client_itself_are_not_sent(rocketmq: RunningCluster) -> None:
    handler = TopicHandler("Logs", rocketmq.namesrv)
    handler.handle(logging.makeLogRecord({"name": "pyromq.client", "msg": "connected", "levelname": "INFO"}))
    assert "0 waiting" in repr(handler)
    handler.close()


def test_a_program_that_ends_at_once_and_its_forked_child_send_all_they_logged(
    rocketmq: RunningCluster,
) -> None:
    program = f"""
import logging, os
from pyromq.logging import TopicHandler
handler = TopicHandler("Logs", {rocketmq.namesrv!r}, flush_timeout_s=60)
logging.basicConfig(level=logging.INFO, handlers=[handler])
logging.info("before the fork")
child = os.fork()
logging.info("in the %s", "parent" if child else "child")
if child:
    _, status = os.waitpid(child, 0)
    assert status == 0, status
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    messages = sorted(document["message"] for document in documents(rocketmq))
    assert messages == ["before the fork", "in the child", "in the parent"]


def test_bad_settings_are_refused_when_the_handler_is_made(rocketmq: RunningCluster) -> None:
    with pytest.raises(ConfigError, match="capacity"):
        TopicHandler("Logs", rocketmq.namesrv, capacity=0)
    with pytest.raises(ConfigError, match="send_timeout_s"):
        TopicHandler("Logs", rocketmq.namesrv, send_timeout_s=-1)
    with pytest.raises(ConfigError, match="flush_timeout_s"):
        TopicHandler("Logs", rocketmq.namesrv, flush_timeout_s=-1)


def test_spark_reads_every_field_that_the_handler_sends() -> None:
    from pyromq.spark.options import LOG_SCHEMA, read_options

    record = logging.makeLogRecord({
        "name": "shop", "msg": "m", "exc_text": "e", "stack_info": "s", "dropped": 1, "customer": "c",
        "funcName": "f",
    })  # fmt: skip
    with TracerProvider().get_tracer("shop").start_as_current_span("order"):
        sent = json.loads(JsonFormatter("service").format(record))
    fields = [column.split()[0] for column in LOG_SCHEMA.split(", ")]
    assert list(sent) == fields
    options = {"namesrv": "127.0.0.1:9876", "subscribe": "Logs", "valueFormat": "log"}
    given = read_options(options, streaming=True)
    assert (given.value_format, given.value_schema) == ("json", LOG_SCHEMA)
    with pytest.raises(ConfigError, match="valueSchema"):
        read_options(options | {"valueSchema": "a int"}, streaming=True)
