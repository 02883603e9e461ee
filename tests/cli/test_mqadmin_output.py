"""How reports look, how watching goes, how points in time are read; no cluster needed."""

import io
import json
import re
from datetime import datetime
from typing import Any

import click
import pytest
from rich.console import Console

from pyromq.admin.failures import Incomplete, NoNameServer, PartlyFailed
from pyromq.cli.mqadmin.advice import with_advice
from pyromq.cli.mqadmin.output import Output, plain_lines, renderable
from pyromq.cli.mqadmin.report import Column, Fact, Facts, Report, ReportLines, Table, plainly
from pyromq.cli.mqadmin.times import time, to_milliseconds, to_seconds
from pyromq.cli.mqadmin.watching import rate_text, sparkline, watch
from pyromq.clock import ManualClock
from pyromq.errors import CallTimeout, ConnectFailed, ConnectionLost, PyroError, Refused
from pyromq.protocol.codes import ResponseCode

REPORT = Report.of(
    Table(
        "queues",
        (Column("#Topic", "topic"), Column("#QID", "queueId", is_number=True), Column("#Ok", "ok")),
        [("orders", 1, True), ("a\x1b[31m", 12, None)],
    ),
    Facts([Fact("Put TPS", "putTps", 1.25, "{:.1f}".format)]),
    ReportLines(["done"], {"done": True}),
)


def test_plain_text_is_aligned_and_shows_what_it_does_not_obey() -> None:
    assert list(plain_lines(REPORT)) == [
        "#Topic     #QID  #Ok",
        "orders        1  true",
        "a\\x1b[31m    12",
        "",
        "Put TPS: 1.2",
        "",
        "done",
    ]


def test_json_has_values_and_not_their_texts() -> None:
    assert REPORT.data() == {
        "queues": [
            {"topic": "orders", "queueId": 1, "ok": True},
            {"topic": "a\x1b[31m", "queueId": 12, "ok": None},
        ],
        "putTps": 1.25,
        "done": True,
    }


def test_facts_of_several_servers_stay_apart() -> None:
    report = Report([Facts.of({"a": "1"}, "{0}={1}", server) for server in ("one", "two")])
    assert report.data() == {"one": {"a": "1"}, "two": {"a": "1"}}


def on_screen(report: Report, width: int) -> str:
    screen = io.StringIO()
    terminal = Console(file=screen, width=width, force_terminal=True, color_system="standard")
    terminal.print(renderable(report, width))
    return screen.getvalue()


def test_a_terminal_gets_bold_titles_and_no_foreign_colours() -> None:
    shown = on_screen(REPORT, 60)
    assert "\x1b[1m#Topic     #QID  #Ok\x1b[0m\n" in shown
    assert "a\\x1b[31m" in shown
    assert "a\x1b[31m" not in shown


WIDE = Report.of(
    Table(
        "brokers",
        (Column("#Broker", "broker"), Column("#Addr", "address"), Column("#TPS", "tps", is_number=True)),
        [("broker-a", "127.0.0.1:10911", 5), ("b", "h:1", 1000)],
    )
)


def test_a_row_that_does_not_fit_goes_on_in_a_second_line_under_its_titles() -> None:
    lines = re.sub(r"\x1b\[\d+m", "", on_screen(WIDE, 25)).splitlines()
    assert [line.rstrip() for line in lines] == [
        "#Broker   #Addr",
        "  #TPS",
        "broker-a  127.0.0.1:10911",
        "     5",
        "b         h:1",
        "  1000",
    ]


def test_what_is_wider_than_the_terminal_is_folded_and_not_cut() -> None:
    name = "a-topic-with-a-name-that-is-far-too-long-for-this-terminal"
    columns = (Column("#Topic", "topic"), Column("#Addr", "address"))
    report = Report.of(Table("topics", columns, [(name, "127.0.0.1:10911")]))
    shown = on_screen(report, 40)
    assert name in "".join(line.strip() for line in shown.splitlines())
    assert "127.0.0.1:10911" in shown


def test_wide_letters_keep_columns_straight() -> None:
    columns = (Column("#Topic", "topic"), Column("#QID", "queueId"))
    shown = on_screen(Report.of(Table("t", columns, [("订单", 1), ("orders", 2)])), 40)
    assert [line.rstrip() for line in shown.splitlines()[1:3]] == ["订单    1", "orders  2"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (True, "true"), (False, "false"), ({"a": [1]}, '{"a": [1]}'), (1.5, "1.5")],
)
def test_values_are_written_plainly(value: Any, text: str) -> None:
    assert plainly(value) == text


@pytest.mark.parametrize(
    ("values", "bars"),
    [([], ""), ([0.0, 0.0], "▁▁"), ([0.0, 1.0, 2.0], "▁▅█"), ([5.0], "█"), ([-1.0, 7.0], "▁█")],
)
def test_a_sparkline_is_as_high_as_its_highest_value(values: list[float], bars: str) -> None:
    assert sparkline(values) == bars


def test_a_rate_is_a_dash_until_it_is_known() -> None:
    assert (rate_text(None), rate_text(1.26)) == ("-", "1.3")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("-1", -1),
        (" 0 ", 0),
        ("2024-05-01#12:30:00:250", round(datetime(2024, 5, 1, 12, 30, 0, 250_000).timestamp() * 1000)),
        ("2024-05-01 12:30:00", round(datetime(2024, 5, 1, 12, 30).timestamp() * 1000)),
        ("2024-05-01", round(datetime(2024, 5, 1).timestamp() * 1000)),
    ],
)
def test_a_point_in_time_is_read(written: str, meant: int) -> None:
    assert time(written) == meant


def test_what_is_no_point_in_time_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="'soon' is not a time"):
        time("soon")


def test_points_in_time_are_shown_as_apache_shows_them() -> None:
    moment = round(datetime(2024, 5, 1, 12, 30, 0, 50_000).timestamp() * 1000)
    assert to_milliseconds(moment) == "2024-05-01 12:30:00,050"
    assert to_seconds(moment) == "2024-05-01 12:30:00"
    assert to_milliseconds(2**62) == str(2**62)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Refused(26, "no group g"), "no group g; `mqadmin updateSubGroup` creates it"),
        (Refused(4711, None), "refused with code 4711; the server answered with code 4711"),
        (Refused(1, "two\nlines"), "two lines; the server answered with code 1"),
        (CallTimeout("h:1: late"), "h:1: late; --timeout SECONDS waits longer"),
        (
            ConnectFailed("h:1: closed"),
            "h:1: closed; is a server running there? `mqadmin clusterList` shows the brokers",
        ),
        (NoNameServer("none answers; try -n"), "none answers; try -n"),
        (
            Incomplete({"a": CallTimeout("h:1: late"), "b": CallTimeout("h:2: late")}),
            "the result is incomplete (and 1 more failures): h:1: late; --timeout SECONDS waits longer",
        ),
        (
            PartlyFailed([], {"h:1": ConnectFailed("h:1: closed"), "h:2": Refused(1, "no")}),
            "failed at h:1: closed; h:2: code 1: no",
        ),
    ],
)
def test_advice_follows_a_failure_on_the_same_line(problem: PyroError, text: str) -> None:
    assert with_advice(problem) == text


def test_only_a_request_that_was_not_signed_is_advised_to_be_signed() -> None:
    refusal = Refused(ResponseCode.NO_PERMISSION, "no right", server="h:1")
    hint = "; if the cluster has access control, sign requests with --key-file FILE"
    assert with_advice(refusal) == "h:1: no right" + hint
    assert with_advice(refusal, is_signed=True) == "h:1: no right"
    first = Incomplete({"h:1": refusal})
    assert with_advice(first).endswith(hint)
    assert with_advice(first, is_signed=True).endswith("h:1: no right")


@pytest.mark.parametrize("kind", [ConnectionLost, NoNameServer])
def test_only_a_plain_connection_that_was_closed_is_advised_to_use_tls(kind: type[PyroError]) -> None:
    problem = kind("h:1: the peer closed the connection")
    assert with_advice(problem).endswith(
        "; a server that requires TLS closes other connections: try --tls-trust FILE"
    )
    assert "--tls-trust" not in with_advice(problem, is_tls=True)


# Watching


class Looks:
    """Gives one report after the other; an error is raised."""

    def __init__(self, *outcomes: int | PyroError) -> None:
        self._outcomes = list(outcomes)
        self.pauses: list[float] = []
        self.clock = ManualClock()

    async def look(self) -> Report:
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, PyroError):
            raise outcome
        return Report.of(Facts([Fact("n", "n", outcome)]))

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(seconds)

    async def watch(self, out: Output, every_s: float | None, rounds: int | None) -> None:
        await watch(out, self.look, every_s, rounds, clock=self.clock, pause=self.pause)


async def test_without_watch_there_is_one_look(capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks(1)
    await looks.watch(Output(as_json=False), None, None)
    assert (capsys.readouterr().out, looks.pauses) == ("n: 1\n", [])


async def test_a_watch_in_a_pipe_is_one_block_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks(1, 2)
    await looks.watch(Output(as_json=False), 2.0, 2)
    blocks = capsys.readouterr().out.split("every 2 s")
    assert ["n: 1" in blocks[1], "n: 2" in blocks[2]] == [True, True]
    assert looks.pauses == [2.0]


async def test_a_watch_in_json_is_one_line_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks(1, 2)
    await looks.watch(Output(as_json=True), 2.0, 2)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["n"] for line in lines] == [1, 2]
    assert lines[1]["time"] - lines[0]["time"] == 2000


async def test_a_watch_on_a_terminal_draws_in_place(capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks(1, 2)
    await looks.watch(Output(as_json=False, is_terminal=True), 2.0, 2)
    assert "Ctrl-C stops" in capsys.readouterr().out


async def test_a_watch_outlives_a_failure_but_not_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks(1, ConnectFailed("h:1: gone"), 3)
    await looks.watch(Output(as_json=False), 1.0, 3)
    shown = capsys.readouterr().out
    assert "failed, trying again: h:1: gone" in shown
    assert shown.rstrip().endswith("n: 3")
    with pytest.raises(ConnectFailed):
        await Looks(ConnectFailed("h:1: gone")).watch(Output(as_json=False), 1.0, 3)
