"""What is looked for in a tier by time, key or place is what a walk over all its messages finds."""

import asyncio
import io
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.model_objects import ModelObjects

from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import StoredMessage, encode_record
from pyromq.store.older_messages import OlderUnknown
from pyromq.store.results import Boundary
from pyromq.store.settings import StoreSettings
from pyromq.tier import packing
from pyromq.tier.blocks import Blocks
from pyromq.tier.footers import read_footer
from pyromq.tier.history import OlderHistory
from pyromq.tier.index import Spans, TierIndex, spans_of
from pyromq.tier.lookups import TierLookups
from pyromq.tier.manifest import HiddenMessages, Manifest, SegmentEntry
from pyromq.tier.names import segment_name
from pyromq.tier.packing import pack
from pyromq.tier.segment_format import Footer

QUEUES = [("T", 0), ("T", 1), ("U", 0)]
FOREVER_MS = (1 << 63) - 1


class Stored(NamedTuple):
    topic: str
    queue_id: int
    offset: int
    log_offset: int
    stored_ms: int
    keys: list[str]
    raw: bytes


class Tier:
    """Segments of a log, and what is in them."""

    def __init__(self, files: list[list[tuple[int, int, list[str], bool]]], block_bytes: int) -> None:
        """Files of messages: the number of the queue, how much later it was stored, keys, and whether it is
        large."""
        self.objects = ModelObjects()
        self.messages: list[Stored] = []
        ends = dict.fromkeys(QUEUES, 100)
        entries: list[SegmentEntry] = []
        parts: dict[str, Spans] = {}
        log_start, stored_ms = 1 << 20, 1000
        for file in files:
            log = bytearray()
            for number, later, keys, is_large in file:
                queue = QUEUES[number]
                stored_ms += later
                place = log_start + len(log)
                raw = encode_record(
                    StoredMessage(
                        queue[0],
                        b"a b " * (300 if is_large else 1),
                        queue_id=queue[1],
                        queue_offset=ends[queue],
                        log_offset=place,
                        store_timestamp=stored_ms,
                        properties=encode_properties(
                            {"KEYS": " ".join(keys), "UNIQ_KEY": f"unique {place}"}
                        ).encode(),
                    )
                )
                self.messages.append(Stored(*queue, ends[queue], place, stored_ms, keys, raw))
                ends[queue] += 1
                log += raw
            log += bytes(50)
            sink = io.BytesIO()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(packing, "BLOCK_BYTES", block_bytes)
                packed = pack(bytes(log), log_start, sink)
            footer = packed.footer
            entry = SegmentEntry(
                segment_name(log_start, 0, packed.sha256),
                log_start,
                log_start + len(log),
                packed.size_bytes,
                packed.footer_at,
                footer.first_ms,
                footer.last_ms,
                packed.sha256,
                footer.log_sha256.hex(),
            )
            self.objects.create(entry.name, sink.getvalue())
            entries.append(entry)
            parts[entry.name] = spans_of(entry, footer)
            log_start += len(log)
        self.end = log_start
        self.manifest = Manifest(tier_id="t", number=1, segments=tuple(entries))
        self.parts = parts
        self.lookups = TierLookups(self.objects, self)

    def footer(self, entry: SegmentEntry) -> Footer | None:
        return read_footer(self.objects, entry)

    def history(self, marks: dict[str, int], *, without: frozenset[int] = frozenset()) -> OlderHistory:
        """`without`: segments whose footers cannot be read."""

        async def made() -> OlderHistory:
            return OlderHistory(
                Blocks(self.objects, self, 1 << 20, 1), _wake, StoreSettings, lambda topic, queue_id: 0
            )

        history = asyncio.run(made())
        hidden = tuple(HiddenMessages(*mark) for mark in sorted(marks.items()))
        names = {self.manifest.segments[number].name for number in without}
        parts = {name: spans for name, spans in self.parts.items() if name not in names}
        history.use(TierIndex(msgspec.structs.replace(self.manifest, deletions=hidden), parts))
        return history


def _wake(topic: str, queue_id: int) -> None:
    raise AssertionError("nobody waits")


def never() -> bool:
    return False


files = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 0, 1, 2]),
            st.sampled_from([0, 0, 1, 10]),
            st.sampled_from([["a"], ["a"], ["b", "a"], ["ab", "ä"], []]),
            st.booleans(),
        ),
        min_size=4,
        max_size=16,
    ),
    min_size=1,
    max_size=3,
)
tiers = st.builds(Tier, files, st.sampled_from([600, 3000, 256 * 1024]))


def shown(tier: Tier, marks: dict[str, int]) -> list[Stored]:
    return [
        each
        for each in tier.messages
        if each.log_offset >= max(marks.get(each.topic, 0), marks.get(f"{each.queue_id}@{each.topic}", 0))
    ]


@st.composite
def deletions(draw: st.DrawFn, tier: Tier) -> dict[str, int]:
    places = st.sampled_from([each.log_offset for each in tier.messages] or [0])
    return draw(st.dictionaries(st.sampled_from(["T", "1@T", "U"]), places, max_size=2))


@given(tiers, st.data())
@settings(max_examples=examples(60), deadline=None)
def test_a_time_leads_to_the_message_that_a_walk_over_the_queue_finds(
    tier: Tier, data: st.DataObject
) -> None:
    marks = data.draw(deletions(tier))
    history = tier.history(marks)
    for topic, queue_id in QUEUES:
        queue = [each for each in shown(tier, marks) if (each.topic, each.queue_id) == (topic, queue_id)]
        times = {each.stored_ms + step for each in tier.messages for step in (-1, 0, 1)} | {0, 5000}
        for timestamp_ms in sorted(times):
            for boundary in Boundary:
                place = history.at_time(topic, queue_id, timestamp_ms, boundary, tier.end)
                if place is not None and not isinstance(place, int):
                    gone_before = history.gone_before(topic, queue_id)
                    place = tier.lookups.offset_at(place, timestamp_ms, boundary, gone_before)
                assert is_right(place, queue, timestamp_ms, boundary), (timestamp_ms, boundary, place)


def is_right(place: int | None, queue: list[Stored], timestamp_ms: int, boundary: Boundary) -> bool:
    if boundary is Boundary.LOWER:
        later = [each.offset for each in queue if each.stored_ms >= timestamp_ms]
        return place == (later[0] if later else None)
    earlier = [each.offset for each in queue if each.stored_ms <= timestamp_ms]
    if earlier:
        return place == earlier[-1]
    # Nothing is as old as that: the beginning, or a deleted message before it, which readers pass over.
    return place is None if not queue else place is not None and place <= queue[0].offset


@given(tiers, st.data())
@settings(max_examples=examples(60), deadline=None)
def test_a_key_leads_to_its_newest_messages(tier: Tier, data: st.DataObject) -> None:
    marks = data.draw(deletions(tier))
    key = data.draw(st.sampled_from(["a", "a", "a", "b", "ä"]))
    times = [each.stored_ms for each in tier.messages] or [0]
    begin_ms = data.draw(st.one_of(st.just(0), st.sampled_from(times)))
    end_ms = data.draw(st.one_of(st.just(FOREVER_MS), st.sampled_from(times)))
    limit = data.draw(st.one_of(st.integers(1, 5), st.just(64)))
    ends = st.sampled_from([each.log_end for each in tier.manifest.segments])
    before_log = data.draw(st.one_of(st.just(tier.end), ends))
    history = tier.history(marks)
    wanted = history.wanted_key("T", key, limit, (begin_ms, end_ms), before_log, is_unique=False)
    found = tier.lookups.with_key(history.index, wanted, never)
    right = [
        each.raw
        for each in shown(tier, marks)
        if each.topic == "T"
        and key in each.keys
        and begin_ms <= each.stored_ms <= end_ms
        and each.log_offset < before_log
    ]
    assert found == (right[-limit:], "")


@given(tiers)
@settings(max_examples=examples(30), deadline=None)
def test_a_unique_key_and_a_place_lead_to_their_message(tier: Tier) -> None:
    history = tier.history({})
    for each in tier.messages:
        key = f"unique {each.log_offset}"
        wanted = history.wanted_key(each.topic, key, 32, (0, FOREVER_MS), tier.end, is_unique=True)
        assert tier.lookups.with_key(history.index, wanted, never) == ([each.raw], "")
        entry = history.segment_at(each.log_offset)
        assert entry is not None
        for topic in (each.topic, ""):
            assert tier.lookups.record_at(history.index, entry, each.log_offset, topic, never) == each.raw
        assert tier.lookups.record_at(history.index, entry, each.log_offset + 1, "", never) is None
        assert history.has(each.raw)
    wanted = history.wanted_key("T", "unique", 32, (0, FOREVER_MS), tier.end, is_unique=True)
    assert tier.lookups.with_key(history.index, wanted, never) == ([], "")


@pytest.mark.parametrize(
    "messages",
    [
        # The end of queue 0 has no key: what comes before it there is older than what queue 1 has.
        [(0, 1, [], False), (1, 1, [], False), (0, 1, ["a"], False), (1, 1, ["a"], False), (0, 1, [], False)],
        # Before the newest message, both queues have pieces that are older than that of queue 0.
        [(0, 1, [], True), (1, 1, [], True), (1, 1, [], True), (0, 1, ["a"], True), (1, 1, ["a"], True)],
    ],
)
def test_of_queues_that_were_written_in_turn_the_newest_message_is_found(
    messages: list[tuple[int, int, list[str], bool]],
) -> None:
    tier = Tier([messages], 600)
    history = tier.history({})
    wanted = history.wanted_key("T", "a", 1, (0, FOREVER_MS), tier.end, is_unique=False)
    newest = [each for each in tier.messages if "a" in each.keys][-1]
    assert tier.lookups.with_key(history.index, wanted, never) == ([newest.raw], "")


def sample() -> Tier:
    """Three files, each with a message of T in queue 0 and one of U, a second after the other."""
    return Tier([[(0, 1000, ["a"], False), (2, 1000, ["a"], False)] for _ in range(3)], 256 * 1024)


def test_what_may_be_in_a_segment_that_cannot_be_read_is_not_said_to_be_elsewhere() -> None:
    tier = sample()
    history = tier.history({}, without=frozenset({1}))
    # Stored at 2000, 4000 and 6000; the one at 4000 is not known.
    assert history.at_time("T", 0, 2000, Boundary.LOWER, tier.end) == 100
    assert history.at_time("T", 0, 6000, Boundary.LOWER, tier.end) == 102
    assert history.at_time("T", 0, 6000, Boundary.UPPER, tier.end) == 102
    for timestamp_ms, boundary in [(2001, Boundary.LOWER), (4000, Boundary.UPPER)]:
        with pytest.raises(OlderUnknown, match="cannot be read at the moment"):
            history.at_time("T", 0, timestamp_ms, boundary, tier.end)
    lost = tier.manifest.segments[1]
    with pytest.raises(OlderUnknown, match=lost.name):
        history.segment_at(lost.log_start)
    wanted = history.wanted_key("T", "a", 9, (0, FOREVER_MS), tier.end, is_unique=False)
    found = tier.lookups.with_key(history.index, wanted, never)
    assert found.records == [tier.messages[4].raw]
    assert found.problem == f"{lost.name} cannot be read at the moment"


def test_a_store_that_is_away_is_said_with_what_was_found_before() -> None:
    tier = sample()
    history = tier.history({})
    first = tier.manifest.segments[0].name
    tier.objects.fails = lambda operation, name: "before" if name == first else None
    wanted = history.wanted_key("T", "a", 9, (0, FOREVER_MS), tier.end, is_unique=False)
    found = tier.lookups.with_key(history.index, wanted, never)
    assert found.records == [tier.messages[2].raw, tier.messages[4].raw]
    assert found.problem.startswith(f"{first} cannot be read: ")


@pytest.mark.parametrize(
    ("is_unique", "said"),
    [
        (False, "stored before 1970-01-01 00:00:05 UTC were not looked at"),
        (True, "stored after 1970-01-01 00:00:05 UTC were not looked at"),
    ],
)
def test_a_look_that_takes_too_long_says_how_far_it_came(is_unique: bool, said: str) -> None:
    tier = sample()
    history = tier.history({})
    key = "nobody has it" if is_unique else "a"
    wanted = history.wanted_key("T", key, 9, (0, FOREVER_MS), tier.end, is_unique=is_unique)
    found = tier.lookups.with_key(history.index, wanted, after(2))
    assert found.records == ([] if is_unique else [tier.messages[4].raw])
    assert said in found.problem


def after(questions: int) -> Callable[[], bool]:
    """Time is over after so many questions."""
    asked = iter(range(1 << 30))
    return lambda: next(asked) >= questions
