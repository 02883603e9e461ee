"""Files go into the tier one after the other; whoever is killed, nothing is lost and nothing doubled."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import msgspec
import pytest
from tests.support.dying_files import Killed
from tests.support.log_files import filled
from tests.support.model_objects import ModelObjects

from pyromq.errors import TransportError
from pyromq.protocol.record import StoredMessage, encode_record
from pyromq.store.filenames import offset_name
from pyromq.store.log.epochs import Epoch
from pyromq.tier.manifest import HiddenMessages
from pyromq.tier.manifests import Fenced, Manifests, WrongTier
from pyromq.tier.names import manifest_name
from pyromq.tier.offloading import ClosedFile, Offloading, hidden_before, newer_from, next_file, uploaded_to
from pyromq.tier.packing import rebuild
from pyromq.tier.segment_format import TAIL_BYTES, parse_footer, parse_tail, unpack_block
from pyromq.tier.uploading import ChildUploader, DamagedFile, OwnUploader, UploadTask

FILE_BYTES = 4096
FILES = 3


def log_files(directory: Path, body: bytes = b"body") -> list[ClosedFile]:
    found = []
    directory.mkdir(exist_ok=True)
    for start in range(0, FILES * FILE_BYTES, FILE_BYTES):
        log = bytearray()
        while len(log) < FILE_BYTES - 400:
            number = (start + len(log)) // 100
            message = StoredMessage("T", body, queue_offset=number, log_offset=start + len(log))
            log += encode_record(message)
        path = directory / offset_name(start)
        path.write_bytes(filled(log, FILE_BYTES))
        found.append(ClosedFile(path, start, start + FILE_BYTES))
    return found


def offloading(objects: ModelObjects, directory: Path, writer: str = "0") -> Offloading:
    task = UploadTask("", 0, 0, str(directory / "segment.tmp"), "", "C", "b")
    return Offloading(Manifests(objects, "C", "b", writer), OwnUploader(objects), task)


def offload_all(mine: Offloading, files: list[ClosedFile], epoch: int = 0) -> None:
    mine.claim(epoch, files, FILES * FILE_BYTES)
    while (file := next_file(mine.manifest, files)) is not None:
        mine.offload(file, epoch, {})


def check(objects: ModelObjects, files: list[ClosedFile]) -> None:
    """Every manifest names bytes from which its log file can be rebuilt, and the newest has all files."""
    newest = Manifests(objects, "C", "b", "1").read_newest()
    assert newest is not None
    assert [each.log_start for each in newest.segments] == [file.start for file in files]
    for entry, file in zip(newest.segments, files, strict=True):
        content = objects.content[entry.name]
        tail = parse_tail(content[-TAIL_BYTES:], len(content))
        footer = parse_footer(tail, content[tail.footer_at : -TAIL_BYTES])

        def block_of(number: int, footer: object = footer, content: bytes = content) -> bytes:
            block = footer.blocks[number]  # type: ignore[attr-defined]
            return unpack_block(block, content[block.position : block.position + block.size_bytes])

        assert bytes(rebuild(footer, block_of, FILE_BYTES)) == file.path.read_bytes()


def test_files_go_into_the_tier_in_order(tmp_path: Path) -> None:
    files, objects = log_files(tmp_path), ModelObjects()
    mine = offloading(objects, tmp_path)
    offload_all(mine, files)
    check(objects, files)
    assert uploaded_to(mine.manifest, 0) == FILES * FILE_BYTES
    assert uploaded_to(None, FILE_BYTES) == FILE_BYTES
    assert not (tmp_path / "segment.tmp").exists()


@pytest.mark.parametrize("dies_after", [False, True])
def test_a_broker_killed_at_any_step_goes_on_where_it_was(tmp_path: Path, dies_after: bool) -> None:
    files = log_files(tmp_path)
    deaths = 0
    for step in range(1, 200):
        objects = ModelObjects()
        objects.dies_at, objects.dies_after = step, dies_after
        try:
            offload_all(offloading(objects, tmp_path), files)
        except Killed:
            deaths += 1
            offload_all(offloading(objects, tmp_path), files)
            check(objects, files)
            # The same bytes have the same name: what was uploaded before is used.
            assert len([name for name in objects.content if name.startswith("segments/")]) == FILES
        else:
            break
    assert deaths > 20


@pytest.mark.parametrize("fault", ["before", "after", "conflict"])
def test_a_failing_store_loses_and_doubles_nothing(tmp_path: Path, fault: str) -> None:
    files, objects = log_files(tmp_path), ModelObjects()
    chance = Random(7)
    objects.fails = lambda operation, name: (
        fault if chance.random() < 0.2 and (fault != "conflict" or operation == "create") else None
    )
    mine = offloading(objects, tmp_path)
    for _ in range(100):
        try:
            offload_all(mine, files)
            break
        except TransportError:
            continue
    objects.fails = lambda operation, name: None
    check(objects, files)


def test_a_new_master_goes_on_and_the_old_one_stops(tmp_path: Path) -> None:
    files, objects = log_files(tmp_path), ModelObjects()
    old, new = offloading(objects, tmp_path), offloading(objects, tmp_path)
    old.claim(1, files, FILES * FILE_BYTES)
    old.offload(files[0], 1, {})
    new.claim(2, files, FILES * FILE_BYTES)
    with pytest.raises(Fenced):
        old.offload(files[1], 1, {})
    offload_all(new, files, 2)
    check(objects, files)


def test_another_log_of_the_same_name_is_refused(tmp_path: Path) -> None:
    objects = ModelObjects()
    offload_all(offloading(objects, tmp_path), log_files(tmp_path / "one"))
    other = log_files(tmp_path / "other", b"else")
    mine = offloading(objects, tmp_path)
    with pytest.raises(WrongTier, match="other bytes at log offset 8192"):
        mine.claim(0, other, FILES * FILE_BYTES)
    with pytest.raises(WrongTier, match="up to 12288, this broker only up to 5"):
        mine.claim(0, [], 5)
    with pytest.raises(WrongTier, match="other bytes for the log from 0"):
        mine.offload(other[0], 0, {})


def test_a_file_goes_only_if_it_was_compared_with_the_tier(tmp_path: Path) -> None:
    files, objects = log_files(tmp_path / "one"), ModelObjects()
    offload_all(offloading(objects, tmp_path), files)
    replica = offloading(objects, tmp_path)
    manifest = replica.refresh()
    assert manifest is not None
    assert replica.same_to == 0
    replica.compare(manifest, files)
    assert replica.same_to == FILES * FILE_BYTES
    other = offloading(objects, tmp_path)
    with pytest.raises(WrongTier, match="other bytes at log offset 8192"):
        other.compare(manifest, log_files(tmp_path / "other", b"else"))
    assert other.same_to == 0


def test_a_file_that_was_damaged_after_its_upload_is_no_other_log(tmp_path: Path) -> None:
    files, objects = log_files(tmp_path), ModelObjects()
    offload_all(offloading(objects, tmp_path), files)
    flip(files[-1].path, files[-1].path.read_bytes().index(b"body"))
    again = offloading(objects, tmp_path)
    manifest = again.claim(0, files, FILES * FILE_BYTES)
    assert again.same_to == files[-2].end  # the tier has the sound one, but no later file vouches for that
    other = log_files(tmp_path / "other", b"else")
    flip(other[-1].path, other[-1].path.read_bytes().index(b"else"))
    with pytest.raises(WrongTier, match="other bytes at log offset 4096"):
        offloading(objects, tmp_path).compare(manifest, other)


def test_a_second_master_of_the_same_epoch_takes_the_tier_and_the_first_one_stops(tmp_path: Path) -> None:
    files, objects = log_files(tmp_path), ModelObjects()
    one, other = offloading(objects, tmp_path), offloading(objects, tmp_path, "1")
    one.claim(0, files, FILES * FILE_BYTES)
    other.claim(0, files, FILES * FILE_BYTES)
    with pytest.raises(Fenced, match="written by 1"):
        one.offload(files[0], 0, {})
    offload_all(other, files)
    check(objects, files)


@pytest.mark.parametrize("damage", [None, b"rubbish"])
def test_a_segment_that_is_missing_or_damaged_is_replaced_from_its_file(
    tmp_path: Path, damage: bytes | None
) -> None:
    files, objects = log_files(tmp_path), ModelObjects()
    mine = offloading(objects, tmp_path)
    offload_all(mine, files)
    assert mine.manifest is not None
    entry = mine.manifest.segments[1]
    del objects.content[entry.name]
    if damage is not None:
        objects.content[entry.name] = damage
    with pytest.raises(TransportError, match="it has other bytes"):
        mine.mend(entry, files[0], 0)
    mine.mend(entry, files[1], 0)
    check(objects, files)
    # A later master gives it another name.
    mine.claim(5, files, FILES * FILE_BYTES)
    del objects.content[entry.name]
    mine.mend(entry, files[1], 5)
    check(objects, files)


@pytest.mark.parametrize("epoch", [0, 5])
def test_a_master_that_was_replaced_takes_no_object_away_to_mend_it(tmp_path: Path, epoch: int) -> None:
    files, objects = log_files(tmp_path), ModelObjects()
    old = offloading(objects, tmp_path, "old")
    offload_all(old, files)
    assert old.manifest is not None
    entry = old.manifest.segments[1]
    offloading(objects, tmp_path, "new").claim(epoch, files, FILES * FILE_BYTES)
    with pytest.raises(Fenced):
        old.mend(entry, files[1], 0)
    check(objects, files)


def test_marks_of_deletions_reach_the_manifest_by_themselves(tmp_path: Path) -> None:
    files, objects = log_files(tmp_path), ModelObjects()
    mine = offloading(objects, tmp_path)
    number = mine.claim(0, files, FILES * FILE_BYTES).number
    assert mine.mark(0, {"T": 100}).number == number  # the tier has nothing of it
    mine.offload(files[0], 0, {})
    marked = mine.mark(0, {"T": 100})
    assert hidden_before(marked, "T") == 100
    assert mine.mark(0, {"T": 100}).number == marked.number
    assert mine.mark(0, {"T": 50, "U": 7}).deletions == (HiddenMessages("T", 100), HiddenMessages("U", 7))


def test_a_claim_moves_marks_to_where_its_master_began(tmp_path: Path) -> None:
    files, objects = log_files(tmp_path), ModelObjects()
    old = offloading(objects, tmp_path, "old")
    old.claim(1, files, 9000)
    old.offload(files[0], 1, {})
    old.mark(1, {"T": 9000})
    # The log of the new one ended at 8500, and has more since.
    new = offloading(objects, tmp_path, "new")
    epochs = (Epoch(1, 0), Epoch(2, 8500))
    claimed = new.claim(2, files, FILES * FILE_BYTES, partial(newer_from, epochs, 8500))
    assert hidden_before(claimed, "T") == 8500


def test_a_log_is_newer_than_a_manifest_from_the_next_epoch_on() -> None:
    epochs = (Epoch(3, 4096), Epoch(5, 8500), Epoch(6, 9000))
    assert newer_from(epochs, 9500, 6) == 9500
    assert newer_from(epochs, 9500, 5) == 9000
    assert newer_from(epochs, 9500, 4) == newer_from(epochs, 9500, 3) == 8500
    assert newer_from(epochs, 9500, 0) == 9500  # where the first one began is not known
    assert newer_from((), 700, 0) == 700


def test_deletions_are_in_the_manifest_before_the_log_forgets_them(tmp_path: Path) -> None:
    files, objects = log_files(tmp_path), ModelObjects()
    mine = offloading(objects, tmp_path)
    mine.claim(0, files, FILES * FILE_BYTES)
    mine.offload(files[0], 0, {"T": 100, "3@U": 50})
    manifest = mine.offload(files[1], 0, {"T": 200})
    assert {each.topic: each.log_offset for each in manifest.deletions} == {"T": 200, "3@U": 50}


def test_a_child_process_packs_and_uploads(tmp_path: Path) -> None:
    files = log_files(tmp_path / "log")
    uploader = ChildUploader()
    task = UploadTask(
        str(files[1].path), FILE_BYTES, 4, str(tmp_path / "s.tmp"), str(tmp_path / "tier"), "C", "b"
    )
    entry = uploader.upload(task)
    assert (entry.log_start, entry.log_end) == (FILE_BYTES, 2 * FILE_BYTES)
    assert (tmp_path / "tier" / "C" / "b" / entry.name).stat().st_size == entry.size_bytes
    flip(files[2].path, files[2].path.read_bytes().index(b"body"))
    with pytest.raises(DamagedFile, match="CRC of the body"):
        uploader.upload(msgspec.structs.replace(task, path=str(files[2].path), log_start=2 * FILE_BYTES))
    with pytest.raises(TransportError, match="No such file"):
        uploader.upload(UploadTask(str(tmp_path / "none"), 0, 0, task.temporary, task.place, "C", "b"))
    uploader.close()
    with pytest.raises(TransportError, match="the broker stops"):
        uploader.upload(task)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: flip(path, path.read_bytes().index(b"body")), id="a flipped bit in a body"),
        pytest.param(lambda path: flip(path, 3), id="a wrong size"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:2000].ljust(4096, b"\0")), id="torn"),
        pytest.param(lambda path: path.write_bytes(bytes(4096)), id="never written"),
    ],
)
def test_a_damaged_file_is_not_uploaded_before_it_is_repaired(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    files, objects = log_files(tmp_path), ModelObjects()
    mine = offloading(objects, tmp_path)
    mine.claim(0, files, FILES * FILE_BYTES)
    mine.offload(files[0], 0, {})
    sound = files[1].path.read_bytes()
    damage(files[1].path)
    with pytest.raises(DamagedFile, match=r"not uploaded: log offset [456]"):
        mine.offload(files[1], 0, {})
    assert uploaded_to(mine.manifest, 0) == mine.same_to == FILE_BYTES
    assert len([name for name in objects.content if name.startswith("segments/")]) == 1
    files[1].path.write_bytes(sound)
    offload_all(mine, files)
    check(objects, files)


def test_manifests_that_were_read_are_not_read_again(tmp_path: Path) -> None:
    files, objects = log_files(tmp_path), ModelObjects()
    mine = offloading(objects, tmp_path)
    offload_all(mine, files)
    del objects.content[manifest_name(1)]
    assert mine.refresh() == mine.manifest


def test_an_upload_does_not_vouch_for_files_that_were_never_compared(tmp_path: Path) -> None:
    objects = ModelObjects()
    files, other = log_files(tmp_path / "one"), log_files(tmp_path / "other", b"else")
    mine = offloading(objects, tmp_path)
    mine.claim(0, files, FILES * FILE_BYTES)
    for file in files[:2]:
        mine.offload(file, 0, {})
    again = offloading(objects, tmp_path, "1")
    again.claim(0, [], FILES * FILE_BYTES)  # no file is known to be closed yet
    with pytest.raises(WrongTier, match="other bytes at log offset 4096"):
        again.offload(other[2], 0, {}, files=other)
    again.offload(files[2], 0, {})
    assert again.same_to == 0
    again.refresh(files)
    assert again.same_to == FILES * FILE_BYTES
    # Before the oldest file is nothing to compare.
    late = offloading(ModelObjects(), tmp_path)
    late.claim(0, files[1:], FILES * FILE_BYTES)
    late.offload(files[1], 0, {}, files=files[1:])
    assert late.same_to == files[1].end
