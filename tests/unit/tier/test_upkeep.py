"""What is too old or deleted leaves the tier, leftovers are swept; whoever is killed, nothing else goes."""

from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from random import Random

import msgspec
import pytest
from tests.support.dying_files import Killed
from tests.support.erasing import erase_from_tier
from tests.support.log_files import filled
from tests.support.model_objects import ModelObjects

from pyromq.errors import TransportError
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import StoredMessage, encode_record
from pyromq.store.filenames import offset_name
from pyromq.tier.footers import read_footer
from pyromq.tier.index import TierIndex, spans_of
from pyromq.tier.manifest import HiddenMessages, Manifest
from pyromq.tier.manifests import Fenced, Manifests, WrongTier
from pyromq.tier.names import segment_name
from pyromq.tier.offloading import ClosedFile, Offloading, next_file
from pyromq.tier.packing import records_in
from pyromq.tier.rewriting import Gone, log_file, remove_from
from pyromq.tier.tables import TieredTables
from pyromq.tier.upkeep import GRACE_MS, Due, TierUpkeep, due
from pyromq.tier.uploading import OwnUploader, UploadTask

FILE_BYTES = 4096
FILES = 3
HOUR_MS = 3_600_000
SECRET = b"somebody's address"


class Bench:
    """A tier of three files: topic T in queues 0 and 1, and U; each file an hour younger than the last."""

    def __init__(self, directory: Path) -> None:
        self.objects = ModelObjects()
        self.directory = directory
        self.files: list[ClosedFile] = []
        for number in range(FILES):
            start = number * FILE_BYTES
            log = bytearray()
            count = 0
            while len(log) < FILE_BYTES - 400:
                secret = number == 1 and count == 4
                topic = "U" if count % 3 == 2 else "T"
                log += encode_record(
                    StoredMessage(
                        topic,
                        SECRET if secret else b"message %d" % count,
                        queue_id=count % 3 % 2,
                        queue_offset=100 * number + count // 3,
                        log_offset=start + len(log),
                        store_timestamp=number * HOUR_MS + count,
                        properties=encode_properties(
                            {"KEYS": f"k{count} who" if secret else f"k{count}"}
                        ).encode(),
                    )
                )
                count += 1
            path = directory / offset_name(start)
            path.write_bytes(filled(log, FILE_BYTES))
            self.files.append(ClosedFile(path, start, start + FILE_BYTES))
        self.begin()

    def begin(self) -> None:
        """Start as a new process, which may find what another one left."""
        task = UploadTask("", 0, 0, str(self.directory / "segment.tmp"), "", "C", "b")
        uploader = OwnUploader(self.objects)
        self.manifests = Manifests(self.objects, "C", "b", "0")
        offloading = Offloading(self.manifests, uploader, task)
        self.upkeep = TierUpkeep(self.manifests, uploader, task, lambda: self.objects.now_ms)
        offloading.claim(0, self.files, FILES * FILE_BYTES)
        while (file := next_file(offloading.manifest, self.files)) is not None:
            offloading.offload(file, 0, {})

    @property
    def manifest(self) -> Manifest:
        newest = Manifests(self.objects, "C", "b", "reader").read_newest()
        assert newest is not None
        return newest

    @property
    def index(self) -> TierIndex:
        manifest = self.manifest
        parts = {each.name: spans_of(each, read_footer(self.objects, each)) for each in manifest.segments}
        return TierIndex(manifest, parts)

    def segments(self) -> set[str]:
        return {name for name in self.objects.content if name.startswith("segments/")}

    def keep_up(self, oldest_ms: Callable[[str], int] = lambda topic: 0, default_ms: int = 0) -> list[Due]:
        found = due(self.index, oldest_ms, default_ms)
        for work in found:
            self.upkeep.carry_out(work, 0)
        self.upkeep.remove_due(0)
        return found

    def bodies(self) -> dict[tuple[str, int], list[int]]:
        """The log offsets of the messages that the tier has, by queue, checked bit for bit with the log."""
        found: dict[tuple[str, int], list[int]] = {}
        for entry in self.manifest.segments:
            original = next(each for each in self.files if each.start == entry.log_start).path.read_bytes()
            with log_file(self.objects, entry, self.directory / "rebuilt") as log:
                for each in records_in(log, entry.log_start):
                    if each.topic in "TU":
                        assert log[each.start : each.end] == original[each.start : each.end]
                        found.setdefault((each.topic, each.queue_id), []).append(each.log_offset)
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_what_is_too_old_leaves_the_tier_and_its_objects_after_a_while(bench: Bench) -> None:
    before = bench.bodies()
    first = bench.manifest.segments[0].name
    assert not bench.keep_up(lambda topic: 0)
    bench.keep_up(lambda topic: HOUR_MS, HOUR_MS)
    assert bench.manifest.begin == FILE_BYTES
    assert first in bench.segments()  # somebody may still read it
    bench.objects.now_ms += GRACE_MS
    assert bench.upkeep.remove_due(0) == [first]
    assert bench.segments() == {each.name for each in bench.manifest.segments}
    assert not bench.manifest.removals
    assert bench.bodies() == {
        queue: [each for each in offsets if each >= FILE_BYTES] for queue, offsets in before.items()
    }
    # Even if all is too old, the tier remembers up to where the log was in it.
    bench.keep_up(lambda topic: 9 * HOUR_MS, 9 * HOUR_MS)
    assert bench.manifest.end == FILES * FILE_BYTES
    assert bench.bodies() == {}


def test_a_topic_is_kept_longer_or_shorter_than_the_others(bench: Bench) -> None:
    before = bench.bodies()
    bench.keep_up(lambda topic: 2 * HOUR_MS if topic == "T" else 0)
    after = bench.bodies()
    assert after[("U", 0)] == before[("U", 0)]
    assert min(after[("T", 0)]) >= 2 * FILE_BYTES
    assert not bench.keep_up(lambda topic: 2 * HOUR_MS if topic == "T" else 0)


def test_the_messages_of_a_deleted_topic_are_removed_from_all_segments(bench: Bench) -> None:
    before = bench.bodies()
    mark = FILE_BYTES + 1000
    bench.manifests.add(
        0, lambda newest: msgspec.structs.replace(newest, deletions=(HiddenMessages("T", mark),))
    )
    bench.keep_up()
    bench.objects.now_ms += GRACE_MS
    bench.upkeep.remove_due(0)
    expected = {
        queue: [each for each in offsets if queue[0] == "U" or each >= mark]
        for queue, offsets in before.items()
    }
    assert bench.bodies() == expected
    assert len(bench.segments()) == FILES
    assert not bench.keep_up()


def test_a_message_is_erased_by_its_key(bench: Bench) -> None:
    before = bench.bodies()
    old = bench.manifest.segments[1]
    assert erase_from_tier(bench.upkeep, [("U", "who"), ("T", "none")]) == []
    assert erase_from_tier(bench.upkeep, [("T", "who")]) == [old]
    assert old.name not in bench.objects.content
    after = bench.bodies()
    assert sum(map(len, before.values())) - sum(map(len, after.values())) == 1
    for entry in bench.manifest.segments:
        with log_file(bench.objects, entry, bench.directory / "rebuilt") as log:
            assert log.find(SECRET) < 0
            assert log.find(b"who") < 0
    assert [each.is_rewritten for each in bench.manifest.segments] == [False, True, False]
    assert bench.manifest.segments[1].log_sha256 == old.log_sha256
    assert bench.manifest.erased == ("done",)
    bench.begin()  # the log is still known as the same one
    assert erase_from_tier(bench.upkeep, [("T", "who")]) == []


def test_a_log_file_from_which_a_message_was_erased_is_still_known_and_no_other_change_is(
    bench: Bench,
) -> None:
    file = bench.files[1]

    def claimed() -> int:
        task = UploadTask("", 0, 0, str(bench.directory / "segment.tmp"), "", "C", "b")
        offloading = Offloading(Manifests(bench.objects, "C", "b", "1"), OwnUploader(bench.objects), task)
        offloading.claim(0, bench.files[:2], FILES * FILE_BYTES)
        return offloading.same_to

    with file.path.open("r+b") as changed, mmap(changed.fileno(), 0) as log:
        assert remove_from(log, file.start, Gone(keys=(("T", "who", 1 << 60),))) == 1
    assert claimed() == file.end
    name = bench.manifest.segments[1].name
    segment = bench.objects.content.pop(name)
    assert claimed() == bench.files[0].end
    bench.objects.content[name] = segment
    content = bytearray(file.path.read_bytes())
    content[43] ^= 1  # when it was born: no checksum has that
    file.path.write_bytes(content)
    with pytest.raises(WrongTier, match="other bytes"):
        claimed()


@pytest.mark.parametrize("dies_after", [False, True])
def test_an_erasure_killed_at_any_step_is_finished_by_the_next_one(tmp_path: Path, dies_after: bool) -> None:
    deaths = 0
    for step in range(1, 200):
        bench = Bench(tmp_path)
        before = bench.bodies()
        bench.objects.dies_at, bench.objects.dies_after = bench.objects.requests + step, dies_after
        try:
            erase_from_tier(bench.upkeep, [("T", "who")])
        except Killed:
            deaths += 1
            bench.begin()
            erase_from_tier(bench.upkeep, [("T", "who")])
            bench.upkeep.remove_due(0)
        else:
            break
        assert sum(map(len, before.values())) - sum(map(len, bench.bodies().values())) == 1
        bench.objects.now_ms += 25 * HOUR_MS
        bench.upkeep.sweep(24 * HOUR_MS, 0)
        assert bench.segments() == {each.name for each in bench.manifest.segments}
    assert deaths > 10


def test_upkeep_in_a_failing_store_removes_nothing_else(tmp_path: Path) -> None:
    bench, chance = Bench(tmp_path), Random(5)
    before = bench.bodies()
    for fault in ("before", "after"):
        bench.objects.fails = lambda operation, name, fault=fault: fault if chance.random() < 0.2 else None  # type: ignore[misc]
        for _ in range(30):
            try:
                bench.keep_up(lambda topic: HOUR_MS, HOUR_MS)
                bench.upkeep.sweep(24 * HOUR_MS, 0)
                bench.objects.now_ms += GRACE_MS
            except TransportError:
                continue
    bench.objects.fails = lambda operation, name: None
    assert bench.bodies() == {
        queue: [each for each in offsets if each >= FILE_BYTES] for queue, offsets in before.items()
    }


def test_a_master_that_was_replaced_cannot_remove_the_tables_that_the_next_one_is_about_to_name(
    bench: Bench,
) -> None:
    task = UploadTask("", 0, 0, str(bench.directory / "segment.tmp"), "", "C", "b")
    tables = TieredTables(FILES * FILE_BYTES, {"topics.json": "{}"})

    def keep_tables(writer: str) -> str:
        offloading = Offloading(Manifests(bench.objects, "C", "b", writer), OwnUploader(bench.objects), task)
        offloading.claim(0, [], FILES * FILE_BYTES)
        name = offloading.keep_tables(0, tables).tables
        assert offloading.keep_tables(0, tables).tables == name
        return name

    assert keep_tables("the old one") != keep_tables("the next one")


@pytest.mark.parametrize("epoch", [0, 7])
def test_a_master_that_was_replaced_removes_nothing(bench: Bench, epoch: int) -> None:
    bench.keep_up(lambda topic: HOUR_MS, HOUR_MS)
    bench.objects.replace(segment_name(FILES * FILE_BYTES, 0, "a" * 64), b"the next one will need it")
    bench.objects.now_ms += 25 * HOUR_MS
    Manifests(bench.objects, "C", "b", "the next one").claim(epoch)
    before = bench.segments()
    with pytest.raises(Fenced, match="written by the next one"):
        bench.upkeep.remove_due(0)
    with pytest.raises(Fenced, match="written by the next one"):
        bench.upkeep.sweep(24 * HOUR_MS, 0)
    assert bench.segments() == before


def test_leftovers_are_swept_when_nobody_can_name_them_any_more(bench: Bench) -> None:
    named = bench.segments()
    late = segment_name(FILES * FILE_BYTES, 0, "a" * 64)
    leftovers = {late, f"{late}.12345678.tmp", "manifest/hint.12345678.tmp"}
    for name in leftovers:
        bench.objects.replace(name, b"half an upload")
    bench.objects.replace("segments/of-somebody-else", b"")
    assert bench.upkeep.sweep(24 * HOUR_MS, 0) == []  # the upload may still be under way
    bench.objects.now_ms += 25 * HOUR_MS
    assert {each.name for each in bench.upkeep.orphans(24 * HOUR_MS)} == leftovers
    assert set(bench.upkeep.sweep(24 * HOUR_MS, 0)) == leftovers
    assert bench.segments() == named | {"segments/of-somebody-else"}


def test_old_manifests_are_swept_and_the_newest_is_still_found(bench: Bench) -> None:
    for _ in range(110):
        bench.manifests.add(0, lambda newest: newest)
    assert bench.upkeep.sweep(24 * HOUR_MS, 0) == []
    bench.objects.now_ms += 25 * HOUR_MS
    number = bench.manifest.number
    removed = bench.upkeep.sweep(24 * HOUR_MS, 0)
    assert len(removed) == number - 101
    assert bench.manifest.number == number
    assert bench.manifests.add(0, lambda newest: newest).number == number + 1


def test_nothing_is_due_in_a_segment_that_cannot_be_read(bench: Bench) -> None:
    manifest = bench.manifest
    assert due(TierIndex(manifest), lambda topic: 9 * HOUR_MS, 9 * HOUR_MS) == []
