"""Messages in flight: compiled and interpreted, the same ones are held and let go."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.held_messages import a_message

from pyromq.client.consumer.reading.in_flight import _hold, _let_go
from pyromq.compiled import WHY, twin

native: Any = twin("received")

offsets = st.lists(st.integers(0, 9), max_size=6)


@pytest.mark.skipif(native is None, reason=f"no compiled messages: {WHY}")
@given(offsets, offsets, st.integers(-1, 5))
def test_both_hold_and_let_go_the_same(put: list[int], done: list[int], last: int) -> None:
    messages = [a_message(offset, b"x" * (offset + 1)) for offset in put]
    ended = [a_message(offset, b"x" * (offset + 1)) for offset in done]
    compiled: dict[int, Any] = {}
    interpreted: dict[int, Any] = {}
    assert native.hold(compiled, messages, last) == _hold(interpreted, messages, last)
    assert list(compiled.items()) == list(interpreted.items())
    assert native.let_go(compiled, ended) == _let_go(interpreted, ended)
    assert list(compiled.items()) == list(interpreted.items())
