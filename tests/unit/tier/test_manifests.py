"""Manifests are added one by one, whatever happens to requests and whoever is killed."""

import hashlib
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.dying_files import Killed
from tests.support.model_objects import ModelObjects

from pyromq.errors import TransportError
from pyromq.tier.manifest import Manifest, SegmentEntry
from pyromq.tier.manifests import Fenced, Manifests, WrongTier
from pyromq.tier.names import manifest_name, segment_name
from pyromq.tier.segment_format import BadObject

FILE_BYTES = 1000


def entry(number: int, epoch: int = 0) -> SegmentEntry:
    digest = hashlib.sha256(b"%d" % number).hexdigest()
    start = number * FILE_BYTES
    name = segment_name(start, epoch, digest)
    return SegmentEntry(name, start, start + FILE_BYTES, 500, 400, 5, 6, digest, digest)


def with_entry(new: SegmentEntry) -> Callable[[Manifest], Manifest | None]:
    def change(newest: Manifest) -> Manifest | None:
        if newest.end >= new.log_end:
            return None
        assert newest.end == new.log_start
        return msgspec.structs.replace(newest, segments=(*newest.segments, new))

    return change


def opened(objects: ModelObjects, writer: str = "0") -> Manifests:
    return Manifests(objects, "C", "b", writer)


def claimed(objects: ModelObjects, writer: str = "0", epoch: int = 0) -> Manifests:
    mine = opened(objects, writer)
    mine.claim(epoch)
    return mine


def test_a_tier_begins_with_its_first_manifest_and_others_read_the_newest() -> None:
    objects = ModelObjects()
    mine = opened(objects)
    assert mine.read_newest() is None
    mine.claim(0)
    for number in range(3):
        mine.add(0, with_entry(entry(number)))
    assert objects.content["manifest/hint"] == b"%020d" % 4
    other = opened(objects)
    newest = other.read_newest()
    assert newest is not None
    assert (newest.number, newest.end) == (4, 3 * FILE_BYTES)
    mine.add(0, with_entry(entry(3)))
    newest = other.read_newest()
    assert newest is not None
    assert newest.number == 5
    assert other.tier_id() == newest.tier_id


@pytest.mark.parametrize("hint", [None, b"%020d" % 1, b"rubbish", b"%020d" % 99])
def test_the_newest_is_found_without_old_ones_and_with_any_hint(hint: bytes | None) -> None:
    objects = ModelObjects()
    mine = claimed(objects)
    for number in range(4):
        mine.add(0, with_entry(entry(number)))
    del objects.content["manifest/hint"], objects.content[manifest_name(1)], objects.content[manifest_name(2)]
    if hint is not None:
        objects.content["manifest/hint"] = hint
    newest = opened(objects).read_newest()
    assert newest is not None
    assert newest.number == 5


@pytest.mark.parametrize("fault", ["before", "after", "conflict"])
def test_a_write_whose_outcome_is_unknown_is_settled_by_reading(fault: str) -> None:
    objects = ModelObjects()
    mine = claimed(objects)
    mine.add(0, with_entry(entry(0)))
    faults = [fault]
    objects.fails = lambda operation, name: faults.pop() if operation == "create" and faults else None
    if fault == "before":
        with pytest.raises(TransportError):
            mine.add(0, with_entry(entry(1)))
    newest = mine.add(0, with_entry(entry(1)))
    assert (newest.number, newest.end) == (3, 2 * FILE_BYTES)
    assert not faults


def test_a_master_of_an_older_epoch_is_fenced_by_a_claim() -> None:
    objects = ModelObjects()
    old, new = claimed(objects, "old", 1), opened(objects, "new")
    old.add(1, with_entry(entry(0)))
    claim = new.claim(2)
    assert (claim.epoch, claim.number, claim.writer) == (2, 3, "new")
    with pytest.raises(Fenced, match="epoch 2, this master of 1"):
        old.add(1, with_entry(entry(1)))
    with pytest.raises(Fenced, match="epoch 2, this master of 1"):
        old.claim(1)
    assert new.add(2, with_entry(entry(1))).end == 2 * FILE_BYTES


def test_of_two_masters_with_the_same_epoch_only_the_last_one_that_claimed_writes() -> None:
    objects = ModelObjects()
    one = claimed(objects, "one")
    one.add(0, with_entry(entry(0)))
    other = claimed(objects, "other")
    with pytest.raises(Fenced, match="was written by other"):
        one.add(0, with_entry(entry(1)))
    number = other.add(0, with_entry(entry(1))).number
    assert other.claim(0).number == number  # it is claimed already


def test_a_tool_borrows_the_tier_from_its_master() -> None:
    objects = ModelObjects()
    tool = opened(objects, "tool")
    with pytest.raises(WrongTier, match="no tier yet"), tool.borrowed():
        pass
    mine = claimed(objects, "mine", 3)
    mine.add(3, with_entry(entry(0)))
    with tool.borrowed() as epoch:
        tool.add(epoch, with_entry(entry(1)))
        with pytest.raises(Fenced, match="written by tool"):
            mine.add(3, with_entry(entry(2)))
    assert mine.add(3, with_entry(entry(2))).end == 3 * FILE_BYTES
    with pytest.raises(Fenced, match="epoch 4"), tool.borrowed():
        claimed(objects, "next", 4)


def test_a_master_that_slept_while_old_manifests_were_removed_changes_nothing() -> None:
    objects = ModelObjects()
    slept = claimed(objects, "slept", 1)
    known = slept.known
    other = claimed(objects, "other", 2)
    for number in range(4):
        other.add(2, with_entry(entry(number)))
    for number in range(1, 5):
        del objects.content[manifest_name(number)]
    with pytest.raises(Fenced, match="epoch 2"):
        slept.add(1, with_entry(entry(9)))
    assert slept.known == other.known != known
    # Even if it sleeps between looking and writing.
    asleep = claimed(objects, "asleep", 2)

    def change(newest: Manifest) -> Manifest | None:
        if asleep.known is not None and asleep.known.number == newest.number and newest.number < 8:
            later = claimed(objects, "later", 3)
            for number in range(4, 8):
                later.add(3, with_entry(entry(number)))
            for number in range(1, 10):
                objects.content.pop(manifest_name(number), None)
        return newest

    with pytest.raises(Fenced, match="epoch 3"):
        asleep.add(2, change)
    newest = opened(objects).read_newest()
    assert newest is not None
    assert newest.epoch == 3


def test_a_tier_of_another_broker_is_refused() -> None:
    objects = ModelObjects()
    claimed(objects).add(0, with_entry(entry(0)))
    with pytest.raises(WrongTier, match="broker 'b'"):
        Manifests(objects, "C", "other", "0").tier_id()


def test_a_damaged_manifest_is_not_taken_for_none() -> None:
    objects = ModelObjects()
    claimed(objects)
    objects.content[manifest_name(1)] = b"rubbish"
    with pytest.raises(BadObject):
        opened(objects).claim(0)


@pytest.mark.parametrize("dies_after", [False, True])
def test_a_writer_killed_at_any_request_loses_and_doubles_nothing(dies_after: bool) -> None:
    for step in range(1, 100):
        objects = ModelObjects()
        objects.dies_at, objects.dies_after = step, dies_after
        try:
            mine = claimed(objects)
            mine.add(0, with_entry(entry(0)))
            mine.add(0, with_entry(entry(1)))
            break
        except Killed:
            newest = opened(objects).read_newest()
            after = claimed(objects).add(0, with_entry(entry(newest.end // FILE_BYTES if newest else 0)))
            assert [each.log_start for each in after.segments] == list(range(0, after.end, FILE_BYTES))
    assert step > 10


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_two_masters_and_a_failing_store_never_lose_or_double_a_segment(data: st.DataObject) -> None:
    objects = ModelObjects()
    chosen = st.sampled_from([None, None, None, "before", "after", "conflict"])

    def fails(operation: str, name: str) -> str | None:
        fault = data.draw(chosen)
        return fault if operation == "create" or fault != "conflict" else None

    objects.fails = fails
    masters = {1: opened(objects, "one"), 2: opened(objects, "two")}
    fenced = False
    confirmed = 0
    for _ in range(12):
        epoch = data.draw(st.sampled_from([1, 2]))
        master = masters[epoch]
        try:
            newest = master.claim(epoch)
            number = newest.end // FILE_BYTES
            added = master.add(epoch, with_entry(entry(number, epoch)))
        except Fenced:
            assert epoch == 1
            fenced = True
            continue
        except TransportError:
            continue
        assert not (fenced and epoch == 1)
        confirmed = max(confirmed, added.end)
    objects.fails = lambda operation, name: None
    found = opened(objects).read_newest()
    if found is not None:
        assert found.end >= confirmed
        assert [each.log_start for each in found.segments] == list(range(0, found.end, FILE_BYTES))
    else:
        assert not confirmed


def test_a_place_that_lacks_the_tier_that_was_known_is_not_taken_for_a_new_one() -> None:
    objects = ModelObjects()
    mine = claimed(objects)
    known = mine.add(0, with_entry(entry(0)))
    remembered = mine.add(0, with_entry(entry(1)))

    def again(content: dict[str, bytes]) -> Manifests:
        found = ModelObjects()
        for name, each in content.items():
            found.replace(name, each)
        return Manifests(found, "C", "b", "again", remembered)

    whole = dict(objects.content)
    other = ModelObjects()
    claimed(other).add(0, with_entry(entry(0)))
    older = {name: each for name, each in whole.items() if name != manifest_name(remembered.number)}
    older["manifest/hint"] = b"%020d" % known.number
    for content, problem in (
        ({}, f"has no tier, but this broker knows the tier {known.tier_id} with the log up to 2000"),
        ({"format": whole["format"]}, "has no manifest"),
        (other.content, "has the tier"),
        (older, "has only the log up to 1000"),
    ):
        before = dict(content)
        with pytest.raises(WrongTier, match="mount or bring back"):
            again(content).read_newest()
        place = again(content)
        with pytest.raises(WrongTier, match=problem):
            place.claim(1)
        assert place.objects.content == before  # type: ignore[attr-defined]
    # The listing and the hint may be old; what was known says where to look.
    lost = whole | {"manifest/hint": b"%020d" % 1}
    assert again(lost).claim(1).end == 2 * FILE_BYTES
    # Without segments nothing is lost.
    empty = claimed(ModelObjects()).known
    assert Manifests(ModelObjects(), "C", "b", "new", empty).claim(1).number == 1


def test_a_tier_that_vanishes_while_a_master_writes_it_is_not_begun_anew() -> None:
    objects = ModelObjects()
    mine = claimed(objects)
    mine.add(0, with_entry(entry(0)))
    objects.content.clear()
    with pytest.raises(WrongTier, match="the model has no tier"):
        mine.add(0, with_entry(entry(1)))
    assert not objects.content
