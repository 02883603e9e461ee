"""However the units of a queue are damaged, its readers get all its messages, in order, and no others.

Tags codes are the exception: a reader of a tag does not look at the records of messages that have another
one, so the damage for these readers spares the codes of units that stay where they were.
"""

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.scratch import IN_MEMORY
from tests.support.small_stores import TOPIC, append, dispatch_all, interpreted, messages_in, small_settings

from pyromq.clock import ManualClock
from pyromq.protocol.java_hash import tag_code
from pyromq.store.message_store import MessageStore
from pyromq.store.queues import mending
from pyromq.store.results import ReadStatus

OTHER = "Payments"
MESSAGES = 300
FILE_UNITS = 128

numbers = st.integers(0, MESSAGES - 1)
damages = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), numbers, st.integers(0, 159)),
        st.tuples(st.just("swap"), numbers, numbers),
        st.tuples(st.just("zeros"), numbers, st.integers(1, 60)),
        st.tuples(st.just("foreign"), numbers, st.integers(1, 60)),
        st.tuples(st.just("repeat"), numbers, numbers),
        st.tuples(st.just("noise"), numbers, st.binary(min_size=20, max_size=20)),
    ),
    min_size=1,
    max_size=6,
)
damages_for_tags = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), numbers, st.integers(0, 95)),
        st.tuples(st.just("zeros"), numbers, st.integers(1, 60)),
        st.tuples(st.just("foreign"), numbers.map(lambda number: number // 25 * 25), st.just(25)),
    ),
    min_size=1,
    max_size=6,
)


def units_in(root: Path, topic: str) -> bytearray:
    paths = sorted((root / "consumequeue" / topic / "0").iterdir())
    return bytearray(b"".join(path.read_bytes() for path in paths))


def damage(root: Path, damages: list[tuple[str, int, int | bytes]]) -> None:
    units, foreign = units_in(root, TOPIC), units_in(root, OTHER)
    for what, number, more in damages:
        at = number * 20
        if isinstance(more, bytes):
            units[at : at + 20] = more
        elif what == "flip":
            units[at + more // 8] ^= 1 << more % 8
        elif what == "swap":
            one, two = units[at : at + 20], units[more * 20 : more * 20 + 20]
            units[at : at + 20], units[more * 20 : more * 20 + 20] = two, one
        elif what == "repeat":
            units[at : at + 20] = units[more * 20 : more * 20 + 20]
        else:
            size = min(more, MESSAGES - number) * 20
            units[at : at + size] = bytes(size) if what == "zeros" else foreign[at : at + size]
    for path in sorted((root / "consumequeue" / TOPIC / "0").iterdir()):
        start = int(path.name)
        with path.open("r+b") as file:  # the same file, because a store may have it mapped
            file.write(units[start : start + FILE_UNITS * 20])


def filled(root: Path) -> MessageStore:
    changes = {"queue_file_bytes": FILE_UNITS * 20, "log_segment_bytes": 20_000}
    store = MessageStore.open(small_settings(root, **changes), clock=ManualClock(), start_flusher=False)
    for number in range(MESSAGES):
        for topic in (TOPIC, OTHER):
            append(
                store,
                b"%s %d" % (topic.encode(), number),
                topic=topic,
                properties=b"TAGS\x01%s\x02" % (b"rare" if number % 7 == 0 else b"usual"),
            )
    dispatch_all(store)
    return store


def read_all(store: MessageStore, batch: int, tag: str | None) -> list[int]:
    found: list[int] = []
    offset, steps = store.queues.min_offset(TOPIC, 0), 0
    codes = None if tag is None else {tag_code(tag)}
    while offset < store.queues.max_offset(TOPIC, 0):
        result = store.read(TOPIC, 0, offset, batch, tag_codes=codes)
        for message in messages_in(result):
            assert message.topic == TOPIC
            assert message.body == b"%s %d" % (TOPIC.encode(), message.queue_offset)
            found.append(message.queue_offset)
        assert result.next_offset > offset or result.status is ReadStatus.QUEUE_IS_MENDED
        offset = result.next_offset
        store.dispatch()
        steps += 1
        assert steps < 20 * MESSAGES
    return found


bounded = settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
both_ways = pytest.mark.parametrize("how", [nullcontext, interpreted])
Road = Callable[[], AbstractContextManager[None]]


@both_ways
@bounded
@given(damages, st.integers(1, 40), st.sampled_from([7, 1000]), st.booleans())
def test_a_damaged_queue_gives_all_its_messages_and_no_others(
    how: Road, damages: list[tuple[str, int, int | bytes]], batch: int, piece: int, is_cleaned: bool
) -> None:
    with (
        tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory,
        how(),
        patch.object(mending, "_PIECE", piece),
        filled(Path(directory)) as store,
    ):
        if is_cleaned:
            store._log.segments.remove_first()
        least = store.queues.min_offset(TOPIC, 0)
        damage(Path(directory), damages)
        for queue in store._queues:
            queue.forget_min_offset()
        assert read_all(store, batch, None) == list(range(least, MESSAGES))
        assert read_all(store, batch, None) == list(range(least, MESSAGES))
        assert store.queues.min_offset(TOPIC, 0) == least


@both_ways
@bounded
@given(damages_for_tags, st.integers(1, 40), st.sampled_from(["rare", "usual"]))
def test_a_damaged_queue_gives_readers_of_a_tag_all_their_messages(
    how: Road, damages: list[tuple[str, int, int | bytes]], batch: int, tag: str
) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory, how(), filled(Path(directory)) as store:
        damage(Path(directory), damages)
        wanted = [number for number in range(MESSAGES) if (number % 7 == 0) == (tag == "rare")]
        assert read_all(store, batch, tag) == wanted


@bounded
@given(damages, st.booleans())
def test_a_queue_that_was_damaged_between_two_runs_gives_all_its_messages(
    damages: list[tuple[str, int, int | bytes]], is_clean: bool
) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        root = Path(directory)
        store = filled(root)
        store.flushes.flush()
        if is_clean:
            store.close()
        else:
            store.abandon()
        damage(root, damages)
        with MessageStore.open(store.settings, clock=ManualClock(), start_flusher=False) as store:
            assert store.queues.next_offset(TOPIC, 0) == MESSAGES
            assert read_all(store, 32, None) == list(range(MESSAGES))
