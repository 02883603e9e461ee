"""What a page offers to copy works: every line is one that the command it names accepts."""

import shlex

import click
import pytest

from pyromq.apps.pyromq import COMMANDS
from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.console import rendering
from pyromq.console.operations.access import (
    ChangeUser,
    CreateUserOperation,
    DeletePolicy,
    DeleteUserOperation,
    PutPolicy,
)
from pyromq.console.operations.all_operations import OPERATIONS
from pyromq.console.operations.brokers import (
    CleanBroker,
    DrainBroker,
    PutEntry,
    SetOnBroker,
    SetOnNameServers,
)
from pyromq.console.operations.groups import DeleteGroupOperation, PutGroup
from pyromq.console.operations.lite import DeleteLiteTopic
from pyromq.console.operations.messages import Redeliver, SendAgain, SendMessageOperation
from pyromq.console.operations.offsets import CloneOffsets, ResetOffsets, moment_ms
from pyromq.console.operations.operation import Operation
from pyromq.console.operations.stores import VerifyStore
from pyromq.console.operations.topics import DeleteTopic, DeleteTopics, PutTopic
from pyromq.console.pages.spark import commands
from pyromq.errors import ConfigError

NAMESRV = "10.0.0.1:9876;10.0.0.2:9876"
WITHOUT_LINE = {"offsets.undo", "dlq.resend"}
"""What `mqadmin` cannot do."""
SAMPLES: list[Operation] = [
    PutTopic(topic="t", message_type="FIFO", ordered=True),
    PutTopic(topic="t", at="a:1,b:2", permission="r"),
    DeleteTopic(topic="t"),
    DeleteTopics(topics="t u"),
    DeleteLiteTopic(topic="t", lite_topic="l"),
    PutGroup(group="g"),
    DeleteGroupOperation(group="g"),
    ResetOffsets(group="g", topic="t", time="2030-01-01T00:00"),
    ResetOffsets(group="g", topic="t", to="end"),
    ResetOffsets(group="g", topic="t", to="end", broker="b", queue=0),
    ResetOffsets(group="g", topic="t", to="start"),
    ResetOffsets(group="g", topic="t", to="offset", offset=0, broker="b", queue=0),
    CloneOffsets(source="a", group="b", topic="t"),
    SendMessageOperation(topic="t", body="it's; $(rm) 'x'", tags="a", keys="k", broker="b", queue=0),
    SendAgain(topic="t", id="0A"),
    Redeliver(topic="t", id="0A", group="g", client="c@1"),
    SetOnBroker(address="a:1", key="k", value="v w"),
    DrainBroker(broker="b"),
    DrainBroker(broker="b", writable=True),
    CleanBroker(address="a:1"),
    CleanBroker(address="a:1", what="expired_log"),
    CleanBroker(address="a:1", what="unused_topics"),
    SetOnNameServers(key="k", value="v"),
    PutEntry(namespace="n", key="k", value="v"),
    PutEntry(namespace="n", key="k"),
    VerifyStore(directory="/"),
    CreateUserOperation(user="ada", password="geheim", user_type="Super"),
    ChangeUser(user="ada", password="geheim", user_status="disable"),
    ChangeUser(user="ada", user_type="Normal"),
    DeleteUserOperation(user="ada"),
    PutPolicy(user="ada", resources="Topic:a*, Group:*", actions="Pub,Sub", source_ips="10.0.0.0/8"),
    DeletePolicy(user="ada", resource="Topic:a*"),
    DeletePolicy(user="ada"),
]


@pytest.mark.parametrize("operation", SAMPLES, ids=lambda each: each.NAME)
def test_a_line_is_one_that_its_command_accepts(operation: Operation) -> None:
    lines = operation.line(NAMESRV).splitlines()
    assert lines
    for line in lines:
        assert_accepted(line)


@pytest.mark.parametrize(
    "operation",
    [
        ResetOffsets(group="g", topic="t", to="offset", offset=5),
        ResetOffsets(group="g", topic="t", to="start", broker="b"),
        ResetOffsets(group="g", topic="t", to="end", broker="b"),
        ResetOffsets(group="g", topic="t", to="end", queue=0),
        ResetOffsets(group="g", topic="t", time="2030-01-01T00:00", broker="b"),
        SendMessageOperation(topic="t", body="b", properties="x=1"),
        SendMessageOperation(topic="t", body="b", delay_seconds=5),
    ],
    ids=str,
)
def test_what_mqadmin_cannot_do_has_no_line_that_does_something_else(operation: Operation) -> None:
    assert operation.line(NAMESRV) == ""


def test_numbers_that_are_zero_are_in_the_line() -> None:
    assert " -r 0 " in PutGroup(group="g", max_retries=0).line(NAMESRV) + " "
    assert " -w 0 -r 0 " in PutTopic(topic="t", queues=0).line(NAMESRV)
    one_queue = ResetOffsets(group="g", topic="t", to="offset", offset=0, broker="b", queue=0)
    assert one_queue.line(NAMESRV).endswith(" -s 0 -b b -q 0 -o 0")


@pytest.mark.parametrize(
    "operation",
    [
        PutTopic(topic="t", at="a:1,b:2"),
        PutGroup(group="g", at="a:1,b:2"),
        DeleteUserOperation(user="u", at="a:1,b:2"),
    ],
)
def test_a_change_at_some_brokers_has_a_line_for_each_of_them(operation: Operation) -> None:
    first, second = operation.line(NAMESRV).splitlines()
    assert " -b a:1 " in first
    assert " -b b:2 " in second
    assert " -c " not in first + second
    assert_accepted(first)


def assert_accepted(line: str) -> None:
    program, *words = shlex.split(line)
    found: click.Command | None = {"mqadmin": mqadmin, "pyromq": COMMANDS}[program]
    while isinstance(found, click.Group):
        found = found.get_command(click.Context(found), words.pop(0))
    assert found is not None, line
    found.make_context(found.name, words)


@pytest.mark.parametrize("operation", [each for each in SAMPLES if each.SECRET], ids=lambda each: each.NAME)
def test_a_secret_is_in_no_line_and_in_no_field_that_is_told(operation: Operation) -> None:
    assert "geheim" not in operation.line(NAMESRV)
    assert "geheim" not in str(operation.told_fields())


def test_every_operation_has_a_line_or_mqadmin_cannot_do_it() -> None:
    assert {sample.NAME for sample in SAMPLES} | WITHOUT_LINE == OPERATIONS.keys()


def test_the_lines_of_pipelines_are_accepted() -> None:
    for line in commands(NAMESRV, "it's"):
        assert line.startswith("pyromq pipeline ")
        assert_accepted(line)


def test_times_of_forms() -> None:
    assert moment_ms("1700000000000") == 1_700_000_000_000
    assert moment_ms("2023-11-14T22:13:20") == 1_700_000_000_000
    assert moment_ms(rendering.moment(1_700_000_000_007)) == 1_700_000_000_007, "as it is shown"
    assert moment_ms("2023-11-14T23:13:20+01:00") == 1_700_000_000_000
    with pytest.raises(ConfigError, match="milliseconds since 1970"):
        moment_ms("soon")
