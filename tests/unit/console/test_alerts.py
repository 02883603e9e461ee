"""Webhooks: what is told, when, and what happens when nobody listens."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from tests.support.replicas import until

from pyromq.console import alerts as alerting
from pyromq.console.alerts import Alerts, poster
from pyromq.console.watch.values import Problem, Severity, Snapshot

ALARM = Problem("broker-silent", Severity.ALARM, "broker", "broker-a/0", {"problem": "no answer"}, 1000)
NOTE = Problem("group-unread", Severity.NOTE, "group", "g", {"lag": 3}, 1000)


def told(alerts: Alerts) -> list[Any]:
    found = [json.loads(each) for each in alerts._waiting]
    alerts._waiting.clear()
    return found


def snapshot(at_ms: int, *problems: Problem) -> Snapshot:
    return Snapshot(at_ms, 1, problems=problems)


def test_an_alarm_is_told_once_after_a_while_and_its_end_once() -> None:
    alerts = Alerts(lambda content: None, 30.0)
    alerts.look("prod", snapshot(30_999, ALARM, NOTE))
    assert told(alerts) == []
    alerts.look("prod", snapshot(31_000, ALARM, NOTE))
    alerts.look("prod", snapshot(32_000, ALARM, NOTE))
    (began,) = told(alerts)
    assert began["text"] == "PyroMQ prod\nALARM broker-a/0 does not answer: no answer"
    assert [each["kind"] for each in began["began"]] == ["broker-silent"]
    alerts.look("other", snapshot(33_000))
    assert told(alerts) == []
    alerts.look("prod", snapshot(33_000, NOTE))
    alerts.look("prod", snapshot(34_000, NOTE))
    (ended,) = told(alerts)
    assert (ended["began"], [each["name"] for each in ended["ended"]]) == ([], ["broker-a/0"])


def test_what_ends_before_it_was_told_is_never_told() -> None:
    alerts = Alerts(lambda content: None, 30.0)
    alerts.look("prod", snapshot(2000, ALARM))
    alerts.look("prod", snapshot(3000))
    assert told(alerts) == []


async def test_what_cannot_be_sent_is_tried_again_and_then_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerting, "RETRY_S", (0.0, 0.0))
    tries: list[bytes] = []

    def post(content: bytes) -> None:
        tries.append(content)
        if b"broker-a" in content:
            raise ConnectionRefusedError("http://secret.example")

    alerts = Alerts(post, 0.0)
    alerts.look("prod", snapshot(2000, ALARM))
    alerts.look("prod", snapshot(3000, ALARM, Problem("store-fault", Severity.ALARM, "broker", "b/0")))
    sending = asyncio.create_task(alerts.run())
    await until(lambda: alerts.sent)
    sending.cancel()
    assert (len(tries), alerts.dropped, alerts.problem) == (4, 1, "")


@contextmanager
def listening(status: int, heard: list[bytes]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(status)
            self.send_header("location", "/elsewhere")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_it_is_posted_as_json() -> None:
    heard: list[bytes] = []
    with listening(204, heard) as url:
        poster(url)(b'{"a": 1}')
    assert heard == [b'{"a": 1}']


@pytest.mark.parametrize("status", [302, 307, 500])
def test_a_redirect_is_a_failure(status: int) -> None:
    heard: list[bytes] = []
    with listening(status, heard) as url, pytest.raises(OSError, match=str(status)):
        poster(url)(b"{}")
    assert len(heard) == 1
