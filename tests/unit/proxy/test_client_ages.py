"""What the id of a client says about its age."""

import pytest

from pyromq.proxy.clients import has_lived

START_MS = 0x18F_0000_0000
NOW_MS = START_MS + 60_000


def _id(born_ms: int) -> str:
    digits, rest = "", born_ms * 1_000_000
    while rest:
        rest, digit = divmod(rest, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return f"host@17@0@{digits}"


def test_a_client_that_started_long_before_it_called_has_lived() -> None:
    assert has_lived(_id(START_MS), NOW_MS)
    assert has_lived(_id(START_MS).upper(), NOW_MS)
    assert not has_lived(_id(START_MS), START_MS + 9_999)
    assert not has_lived(_id(NOW_MS + 60_000), NOW_MS)


@pytest.mark.parametrize(
    "client_id", ["x", "host@1@0@abc", "host@1@0@", "a@b@c@d-e", "@@@", "h@1@0@" + "z" * 99]
)
def test_an_id_without_a_time_of_day_tells_no_age(client_id: str) -> None:
    assert not has_lived(client_id, NOW_MS)
