"""Webhooks: what is told, when, and what happens when nobody listens."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.support.replicas import until

from pyromq.console import alerts as alerting
from pyromq.console.alerts import Alerts, poster
from pyromq.console.alerts_file import AlertsFile
from pyromq.console.watch.values import Problem, Severity, Snapshot

ALARM = Problem("broker-silent", Severity.ALARM, "broker", "broker-a/0", {"problem": "no answer"}, 1000)
NOTE = Problem("group-unread", Severity.NOTE, "group", "g", {"lag": 3}, 1000)


def told(alerts: Alerts) -> list[Any]:
    found = [json.loads(content) for content, _ in alerts._waiting]
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


async def test_a_start_does_not_tell_again_what_still_stands_and_tells_what_ended_meanwhile(
    tmp_path: Path,
) -> None:
    file = AlertsFile(tmp_path / "alerts.json")
    fault = Problem("store-fault", Severity.ALARM, "broker", "b/0", {"fault": "disk"}, 1000)
    before = Alerts(lambda content: None, 0.0, file, ["prod"])
    before.look("prod", snapshot(2000, ALARM, fault))
    before.look("gone", snapshot(2000, ALARM))
    sending = asyncio.create_task(before.run())
    await until(lambda: before.sent == 2)
    await until(lambda: len(file.load(["prod", "gone"])) == 3)
    sending.cancel()

    after = Alerts(lambda content: None, 0.0, file, ["prod"])
    after.look("prod", snapshot(10_000))  # the watch knows little yet
    after.look("prod", snapshot(20_000, replace(ALARM, since_ms=15_000)))
    assert told(after) == []
    after.look("prod", snapshot(309_999, ALARM))
    assert told(after) == []
    after.look("prod", snapshot(310_000, ALARM))
    (ended,) = told(after)
    assert (ended["began"], [each["name"] for each in ended["ended"]]) == ([], ["b/0"])
    assert ended["ended"][0]["sinceMs"] == 1000
    after.look("prod", snapshot(311_000))
    assert [each["name"] for each in told(after)[0]["ended"]] == ["broker-a/0"]


async def test_an_alert_that_was_not_posted_yet_is_told_after_a_start(tmp_path: Path) -> None:
    file = AlertsFile(tmp_path / "alerts.json")
    before = Alerts(lambda content: None, 0.0, file, ["prod"])
    before.look("prod", snapshot(2000, ALARM))  # and it is killed before it posts
    after = Alerts(lambda content: None, 0.0, file, ["prod"])
    after.look("prod", snapshot(3000, ALARM))
    assert len(told(after)) == 1


@pytest.mark.parametrize("content", ["", "{}", '[{"cluster": 1}]'])
def test_a_file_that_makes_no_sense_is_no_reason_to_stop(tmp_path: Path, content: str) -> None:
    (tmp_path / "alerts.json").write_text(content)
    assert AlertsFile(tmp_path / "alerts.json").load(["prod"]) == {}
    (tmp_path / "file").touch()
    nowhere = AlertsFile(tmp_path / "file" / "alerts.json")
    assert nowhere.load(["prod"]) == {}
    nowhere.save({("prod", ALARM.kind, ALARM.about, ALARM.name): ALARM})


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
