"""The version numbers of the wire, against Apache's list of releases."""

import pytest

from pyromq.protocol.codes import (
    CURRENT_VERSION,
    HIGHER_VERSION,
    Language,
    ResponseCode,
    version_name,
)


@pytest.mark.parametrize(
    ("release", "ordinal"),
    [
        ((4, 0, 0), 213),
        ((4, 1, 0), 233),
        ((4, 5, 2), 317),
        ((4, 9, 4), 401),
        ((4, 9, 8), 409),
        ((5, 0, 0), 413),
        ((5, 1, 4), 441),
        ((5, 3, 3), 479),
        ((5, 9, 9), 611),
    ],
)
def test_a_release_has_its_place_in_the_list(release: tuple[int, int, int], ordinal: int) -> None:
    assert version_name(ordinal) == "V{}_{}_{}".format(*release)


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (212, "V4_0_0_SNAPSHOT"),
        (412, "V5_0_0_SNAPSHOT"),
        (478, "V5_3_3_SNAPSHOT"),
        (HIGHER_VERSION, "HIGHER_VERSION"),
        (9999, "HIGHER_VERSION"),
        (211, "V3_BEFORE_4_0(211)"),
        (0, "V3_BEFORE_4_0(0)"),
    ],
)
def test_every_number_has_a_name(ordinal: int, name: str) -> None:
    assert version_name(ordinal) == name


def test_we_speak_the_protocol_of_5_3_3() -> None:
    assert version_name(CURRENT_VERSION) == "V5_3_3"


def test_languages_are_numbered_without_gaps() -> None:
    assert [int(language) for language in Language] == list(range(14))
    assert Language(3).name == "PYTHON"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, "SUCCESS"),
        (3, "REQUEST_CODE_NOT_SUPPORTED"),
        (12, "FLUSH_SLAVE_TIMEOUT"),
        (21, "PULL_OFFSET_MOVED"),
        (29, "INVALID_PARAMETER"),
        (206, "CONSUMER_NOT_ONLINE"),
        (215, "FLOW_CONTROL"),
        (604, "ILLEGAL_OPERATION"),
        (1500, "GO_AWAY"),
        (-1006, "RPC_TIME_OUT"),
        (2016, "CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS"),
        (3002, "POLICY_NOT_EXIST"),
    ],
)
def test_answers_have_their_numbers(code: int, name: str) -> None:
    assert ResponseCode(code).name == name
