"""Messages in flight: compiled and interpreted, the same ones are held and let go."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.held_messages import a_message

from pyromq.client.consumer.reading.in_flight import InterpretedHeld
from pyromq.compiled import WHY, twin

native: Any = twin("client.twin_pulled_message")

offsets = st.lists(st.integers(0, 9), max_size=6)


def story(kind: Any, put: list[int], done: list[int], last: int, is_awaited: bool) -> list[object]:
    seen: list[object] = []

    class Queue(kind):  # type: ignore[misc]
        def _tell(self) -> None:
            seen.append(("told", self.size_bytes))

    held = Queue(last)
    held._idle = object() if is_awaited else None
    held.hold(a_message(offset, b"x" * (offset + 1)) for offset in put)
    seen.append((held._last_offset, held.size_bytes, list(held._messages)))
    ended = [a_message(offset, b"x" * (offset + 1)) for offset in done]
    for message in ended[:2]:
        held.done(message)
        seen.append((held.size_bytes, list(held._messages)))
    held.done_all(ended)
    return [*seen, held.size_bytes, list(held._messages), held.is_closing, held.is_dropped, held.last_done]


@pytest.mark.skipif(native is None, reason=f"no compiled messages: {WHY}")
@given(offsets, offsets, st.integers(-1, 5), st.booleans())
def test_both_hold_and_let_go_the_same(put: list[int], done: list[int], last: int, is_awaited: bool) -> None:
    told = put, done, last, is_awaited
    assert story(native.HeldMessages, *told) == story(InterpretedHeld, *told)
