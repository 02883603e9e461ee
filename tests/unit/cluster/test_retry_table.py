"""Which refusals are worth another try, and where."""

import pytest

from pyromq.cluster.retry_table import RETRIES, Retry, is_passing, retry_of
from pyromq.errors import BadMessage, CallTimeout, ConnectFailed, Refused
from pyromq.protocol.codes import ResponseCode


def codes(retry: Retry) -> set[str]:
    return {ResponseCode(code).name for code in RETRIES if retry in retry_of(code)}


def test_another_broker_may_store_a_message_that_one_refused() -> None:
    assert codes(Retry.ELSEWHERE) == {
        "SYSTEM_ERROR",
        "SYSTEM_BUSY",
        "GO_AWAY",
        "SERVICE_NOT_AVAILABLE",
        "TOPIC_NOT_EXIST",
        "NO_PERMISSION",
        "NO_BUYER_ID",
        "NOT_IN_CURRENT_UNIT",
    }


def test_a_broker_without_permission_would_only_repeat_it() -> None:
    assert codes(Retry.ELSEWHERE) - codes(Retry.HERE) == {
        "NO_PERMISSION",
        "NO_BUYER_ID",
        "NOT_IN_CURRENT_UNIT",
    }
    assert codes(Retry.HERE) <= codes(Retry.ELSEWHERE)


def test_a_code_that_is_not_in_the_table_is_final() -> None:
    assert retry_of(ResponseCode.MESSAGE_ILLEGAL) is Retry.NEVER
    assert retry_of(-77) is Retry.NEVER


@pytest.mark.parametrize(
    "code", ["SYSTEM_BUSY", "FLOW_CONTROL", "SERVICE_NOT_AVAILABLE", "NOT_LEADER_FOR_QUEUE"]
)
def test_a_passing_refusal_may_be_followed_by_an_answer(code: str) -> None:
    assert is_passing(Refused(ResponseCode[code], "not now"))


def test_a_server_that_is_away_may_come_back() -> None:
    assert is_passing(ConnectFailed("refused"))
    assert is_passing(CallTimeout("silent"))


@pytest.mark.parametrize("problem", [Refused(ResponseCode.SYSTEM_ERROR, "broken"), BadMessage("empty")])
def test_other_problems_last(problem: Refused | BadMessage) -> None:
    assert not is_passing(problem)
