"""Streams: compiled and interpreted, they give the same messages and settle them in the same way."""

import asyncio
from functools import partial
from operator import eq
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.held_messages import a_message, held_queue

from pyromq.client.consumer.handling.taking import InterpretedOffer, InterpretedQueueOffer, InterpretedTaking
from pyromq.client.consumer.reading.stats import Counts
from pyromq.compiled import WHY, twin

native: Any = twin("client.twin_taking")
interpreted = SimpleNamespace(
    Offer=InterpretedOffer, QueueOffer=InterpretedQueueOffer, Taking=InterpretedTaking
)

LOOP = asyncio.new_event_loop()

steps = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(0, 3)),
        st.tuples(st.just("offer dropped"), st.integers(0, 3)),
        st.tuples(st.just("offer otherwise"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["take", "next", "fail", "drop", "close", "observe"]), st.integers(0, 1)),
    ),
    max_size=14,
)


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def monotonic(self) -> float:
        self.time += 1
        return self.time


def story(kinds: Any, told: list[tuple[str, int]]) -> list[object]:
    """What happens to readers and messages while this is told."""
    clock, counts, held = Clock(), Counts(), held_queue()
    seen: list[object] = []

    class Stream(kinds.Taking):  # type: ignore[misc]
        async def next_for(self, me: object) -> Any:
            seen.append(("waits", me))
            return None

    stream = Stream()
    offset = 0

    def otherwise(message: Any, problem: object) -> None:
        seen.append(("otherwise", message.queue_offset, repr(problem)))

    async def tell() -> None:
        nonlocal offset
        for word, number in told:
            if word.startswith("offer"):
                messages = [a_message(offset + each) for each in range(number)]
                offset += number
                held.put(messages, offset)
                if word == "offer":
                    stream._waiting.append(
                        kinds.QueueOffer(messages, held, counts, clock.monotonic, otherwise)
                    )
                else:
                    is_dropped = partial(eq, word, "offer dropped")
                    stream._waiting.append(kinds.Offer(messages, is_dropped, otherwise))
            elif word == "take":
                message = stream._take(f"reader {number}")
                seen.append(message and message.queue_offset)
            elif word == "next":
                try:
                    seen.append((await anext(stream)).queue_offset)
                except StopAsyncIteration:
                    seen.append("stopped")
            elif word == "fail" and f"reader {number}" in stream._taken:
                stream._all_settled = asyncio.get_running_loop().create_future()
                stream._settle(f"reader {number}", ValueError(number))
                seen.append(stream._all_settled.done())
            elif word == "observe":
                stream._is_observed = bool(number)
            elif word == "drop" and number:
                held.is_dropped = True
            elif word == "close":
                held.is_closing = bool(number)
            waiting = sum(each.waiting for each in stream._waiting)
            seen.append((waiting, len(stream._taken), [each.queue_offset for each in held]))

    task = LOOP.create_task(tell())
    LOOP.run_until_complete(task)
    seen = [each if each != ("waits", task) else "waits" for each in seen]
    return [*seen, counts, held.last_done if counts.handled else None, held.size_bytes]


@pytest.mark.skipif(native is None, reason=f"no compiled streams: {WHY}")
@given(steps)
def test_both_streams_give_and_settle_the_same(told: list[tuple[str, int]]) -> None:
    assert story(native, told) == story(interpreted, told)
