"""Failures of the application's own functions are seen, whether logging is set up or not."""

import subprocess
import sys

import pytest

FAILING = """
from types import SimpleNamespace
from pyromq.client.consumer.handling.settling import log_failure
from pyromq.client.consumer.handling.outcomes import RetryLater
message = SimpleNamespace(topic="Orders", message_id="ID7")
log_failure(ValueError("boom"), [message])
log_failure(RetryLater("asked for"), [message])
logging.getLogger("pyromq.client.session").warning("not for the terminal")
"""


def printed(setup: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"import logging\n{setup}\n{FAILING}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize("setup", ["", "logging.getLogger('mine').addHandler(logging.StreamHandler())"])
def test_a_handler_that_raises_is_seen_though_logging_is_not_set_up(setup: str) -> None:
    lines = printed(setup).splitlines()
    assert lines[0] == "handler failed topic=Orders id=ID7 messages=1"
    assert lines[1:] == ["ValueError: boom"]


@pytest.mark.parametrize(
    "setup",
    [
        "logging.basicConfig(format='configured: %(message)s')",
        "logging.getLogger('pyromq').addHandler(logging.StreamHandler())",
    ],
)
def test_it_is_told_once_where_logging_is_set_up(setup: str) -> None:
    text = printed(setup)
    assert text.count("handler failed") == 1
    assert text.count("not for the terminal") == 1


@pytest.mark.parametrize(
    "setup",
    [
        "logging.getLogger('pyromq.application').setLevel(logging.CRITICAL)",
        "logging.lastResort = None",
        "logging.disable()",
    ],
)
def test_it_can_be_silenced(setup: str) -> None:
    assert printed(setup) == ""
