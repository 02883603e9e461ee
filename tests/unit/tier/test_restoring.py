"""A store is built again from its tier, bit for bit; whatever is killed or damaged, no success is claimed."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.support.dying_files import Killed
from tests.support.model_objects import ModelObjects
from tests.support.object_store import faulty_store, lead_to
from tests.support.small_stores import append, bodies_of, dispatch_all, small_settings

from pyromq.cli.store import store as store_command
from pyromq.clock import ManualClock
from pyromq.errors import PyroError, StoreError
from pyromq.filesystem import Files
from pyromq.protocol import json_body
from pyromq.protocol.record import MIN_RECORD_SIZE, StoredMessage, SysFlag, encode_record
from pyromq.protocol.requests.offsets import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from pyromq.protocol.requests.topics import TopicConfig, TopicConfigSerializeWrapper
from pyromq.store.log.damage import Damage
from pyromq.store.message_store import MessageStore
from pyromq.store.offline import OfflineStore
from pyromq.tier import rewriting
from pyromq.tier.directory_objects import DirectoryObjects
from pyromq.tier.manifest import HiddenMessages, Manifest
from pyromq.tier.manifests import Manifests, WrongTier
from pyromq.tier.objects import Objects
from pyromq.tier.offloading import ClosedFile, Offloading, next_file
from pyromq.tier.opening import open_objects
from pyromq.tier.restoring import Restoring
from pyromq.tier.rewriting import Gone
from pyromq.tier.tables import TieredTables, parse_tables
from pyromq.tier.upkeep import TierUpkeep
from pyromq.tier.uploading import OwnUploader, UploadTask

FILE_BYTES = 8192
OLD, BUSY, DELETED = "Old", "Busy", "Deleted"
MESSAGES = 60
LARGE = b"x" * 400


class KilledFiles(Files):
    """The real file system, until whoever uses it is killed before one of its changes."""

    changes, dies_at = 0, 1 << 62

    def _before(self) -> None:
        self.changes += 1
        if self.changes > self.dies_at:
            raise Killed

    def write(self, path: Path, content: bytes, mode: int | None = None) -> None:
        self._before()
        super().write(path, content, mode)

    def rename(self, source: Path, target: Path) -> None:
        self._before()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._before()
        super().remove(path)

    def resize(self, path: Path, size_bytes: int, allocate_bytes: int = 0) -> None:
        self._before()
        super().resize(path, size_bytes, allocate_bytes)

    def sync(self, path: Path) -> None:
        self._before()
        super().sync(path)

    def sync_all_directories(self) -> None:
        self._before()
        super().sync_all_directories()

    def make_directories(self, path: Path) -> None:
        self._before()
        super().make_directories(path)


def topics(*names: str) -> str:
    table = TopicConfigSerializeWrapper(
        topic_config_table={each: TopicConfig(topic_name=each) for each in names}
    )
    return json_body.encode(table).decode()


def topics_in(root: Path) -> set[str]:
    content = (root / "config" / "topics.json").read_bytes()
    return set(json_body.decode(content, TopicConfigSerializeWrapper).topic_config_table)


class Lost:
    """A store whose closed files are in a tier. Topic Old has messages in the first file alone."""

    def __init__(self, root: Path, objects: Objects | None = None) -> None:
        self.root = root
        self.objects: Any = objects if objects is not None else ModelObjects()
        with self.open(root / "lost") as store:
            for number in range(5):
                append(store, b"old %d" % number, topic=OLD)
                append(store, b"deleted %d" % number, topic=DELETED)
            for number in range(MESSAGES):
                append(store, b"%d " % number + LARGE, topic=BUSY, queue_id=number % 2)
            dispatch_all(store)
            self.deleted_at = store.log.end
            store.topics.delete(DELETED)
            store.flushes.flush()
            self.files = [ClosedFile(*each) for each in store.log.closed_files(store.log.end)]
            self.hidden = store.topics.hidden()
            self.end = store.log.end
        assert len(self.files) > 2
        self.offload()

    def open(self, root: Path) -> MessageStore:
        return MessageStore.open(small_settings(root), clock=ManualClock(), start_flusher=False)

    def offloading(self) -> Offloading:
        task = UploadTask("", 0, 0, str(self.root / "segment.tmp"), "", "C", "b")
        return Offloading(Manifests(self.objects, "C", "b", "w"), OwnUploader(self.objects), task)

    def offload(self) -> None:
        offsets = {f"{BUSY}@G": {0: 7, 1: 1_000_000}, f"{DELETED}@G": {0: 3}, "%LMQ%l@G": {0: 9}}
        tables = TieredTables(
            self.end,
            {
                "topics.json": topics(OLD, BUSY),
                "consumerOffset.json": json_body.encode(
                    ConsumerOffsetSerializeWrapper(offset_table=offsets)
                ).decode(),
                "delayOffset.json": json_body.encode(
                    DelayOffsetSerializeWrapper(offset_table={3: 17})
                ).decode(),
            },
        )
        mine = self.offloading()
        mine.claim(0, self.files, self.end)
        while (file := next_file(mine.manifest, self.files)) is not None:
            mine.offload(file, 0, self.hidden, tables)

    @property
    def manifest(self) -> Manifest:
        newest = Manifests(self.objects, "C", "b", "reader").read_newest()
        assert newest is not None
        return newest

    def change(self, **changes: Any) -> None:
        """Another manifest, as the master writes it."""
        manifests = Manifests(self.objects, "C", "b", "w")
        manifests.add(0, lambda newest: msgspec.structs.replace(newest, **changes))

    def restoring(self, to: str = "new", **more: Any) -> Restoring:
        return Restoring(Manifests(self.objects, "C", "b", "restore"), self.root / to, **more)

    def restored(self, to: str = "new", newest: int | None = None) -> Path:
        restoring = self.restoring(to)
        outcome = restoring.run(restoring.plan(newest))
        assert not outcome.problems
        return self.root / to

    def check(self, root: Path, first: int = 0) -> None:
        """All log files of the tier are there as they were, and nothing else."""
        found = {each.name: each.read_bytes() for each in (root / "commitlog").iterdir()}
        seam = found.pop(f"{self.files[-1].end:020d}")
        assert found == {each.path.name: each.path.read_bytes() for each in self.files[first:]}
        assert len(seam) == FILE_BYTES
        assert not list(root.rglob("*.tmp"))


@pytest.fixture
def lost(tmp_path: Path) -> Lost:
    return Lost(tmp_path)


def test_a_store_is_restored_bit_for_bit_and_goes_on(lost: Lost) -> None:
    root = lost.restored()
    lost.check(root)
    with lost.open(root) as store, lost.open(lost.root / "lost") as original:
        assert store.log.end > lost.manifest.end
        assert not store.recovery.damage
        assert bodies_of(store, OLD) == [b"old %d" % number for number in range(5)]
        for queue_id in (0, 1):
            found = bodies_of(store, BUSY, queue_id)
            assert found == bodies_of(original, BUSY, queue_id)[: len(found)]
            assert len(found) > 20
            result = append(store, b"new", topic=BUSY, queue_id=queue_id)
            assert result.queue_offset == len(found)
        assert DELETED not in store.topics.names()
        assert not bodies_of(store, DELETED)
        dispatch_all(store)
        end = store.log.end
        closed = [ClosedFile(*each) for each in store.log.closed_files(store.log.end)]
    mine = lost.offloading()
    mine.claim(0, closed, end)
    assert mine.same_to == lost.manifest.end  # it is the same log, so uploads go on


def test_a_store_is_restored_from_a_bucket_however_its_requests_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore")
    pytest.importorskip("moto")
    with faulty_store() as s3:
        lead_to(s3.url(), monkeypatch)
        place = f"s3://{s3.new_bucket()}/path"
        lost = Lost(tmp_path, open_objects(place, "C", "b"))
        whole = lost.restored("whole")
        arguments = ["restore", "--from", place, "--to", str(tmp_path / "new")]
        arguments += ["--cluster", "C", "--broker", "b"]
        s3.fail_sometimes(7, 0.2)
        for _ in range(20):  # after a failure the same command continues
            if (result := CliRunner().invoke(store_command, arguments)).exit_code == 0:
                break
        assert result.exit_code == 0
        assert s3.failed() > 0
        lost.check(tmp_path / "new")
        assert topics_in(tmp_path / "new") == topics_in(whole)
        s3.fail_no_more()
        segment = lost.manifest.segments[1].name
        lost.objects.remove(segment)
        arguments[4] = str(tmp_path / "missing")
        result = CliRunner().invoke(store_command, arguments, terminal_width=200)
        assert result.exit_code == 1
        assert f"not restorable: {place}/C/b/{segment}: it is missing" in result.output.replace("\n", "")


def test_only_the_newest_files_are_restored_and_offsets_go_on(lost: Lost) -> None:
    root = lost.restored(newest=2)
    lost.check(root, first=len(lost.files) - 2)
    with lost.open(root) as store:
        assert store.log.start == lost.files[-2].start
        assert store.topics.queue_goes_on(OLD, 0, 5)
        assert append(store, b"new", topic=OLD).queue_offset == 5
        dispatch_all(store)
        assert bodies_of(store, OLD) == [b"new"]
        assert store.topics.queue_goes_on(OLD, 0, 3)  # it is further
        assert not store.topics.queue_goes_on(OLD, 0, 9)  # it has other messages by now
    with lost.open(root) as store:
        assert append(store, b"newer", topic=OLD).queue_offset == 6
        dispatch_all(store)
        assert bodies_of(store, OLD) == [b"new", b"newer"]


def test_files_with_messages_since_a_time_are_restored(lost: Lost) -> None:
    plan = lost.restoring().plan(since_ms=lost.manifest.segments[-1].last_ms)
    assert plan.entries[-1] == lost.manifest.segments[-1]
    assert lost.restoring().plan(since_ms=1 << 62).entries == lost.manifest.segments[-1:]


def test_groups_go_on_where_they_were_and_never_behind_new_messages(lost: Lost) -> None:
    config = lost.restored() / "config"
    with lost.open(lost.root / "new") as store:
        end = store.queues.max_offset(BUSY, 1)
    offsets = json_body.decode((config / "consumerOffset.json").read_bytes(), ConsumerOffsetSerializeWrapper)
    assert offsets.offset_table == {f"{BUSY}@G": {0: 7, 1: end}, "%LMQ%l@G": {0: 9}}
    delays = json_body.decode((config / "delayOffset.json").read_bytes(), DelayOffsetSerializeWrapper)
    assert delays.offset_table == {3: 0}
    assert topics_in(lost.root / "new") == {OLD, BUSY}


def test_a_topic_that_was_deleted_after_the_copy_stays_deleted(lost: Lost) -> None:
    before = lost.manifest.deletions
    lost.change(deletions=(*before, HiddenMessages(BUSY, lost.end + 5000), HiddenMessages(f"0@{OLD}", 8000)))
    root = lost.restored()
    assert topics_in(root) == {OLD}
    with lost.open(root) as store:
        assert not {BUSY, DELETED} & set(store.topics.names())
        assert not bodies_of(store, OLD)
        assert store.queues.max_offset(OLD, 0) == 5
        assert append(store, b"again", topic=BUSY).queue_offset == 0
        dispatch_all(store)
        assert bodies_of(store, BUSY) == [b"again"]
        end = store.log.end
    # The mark was of the log that is lost: it does not hide what comes in its place.
    assert before == (HiddenMessages(DELETED, lost.deleted_at),)
    assert lost.offloading().claim(0, [], end).deletions == (
        HiddenMessages(DELETED, min(lost.deleted_at, end)),
        HiddenMessages(BUSY, end),
        HiddenMessages(f"0@{OLD}", 8000),
    )


def test_a_run_that_was_killed_at_any_request_goes_on(lost: Lost) -> None:
    deaths = kept = 0
    for step in range(1, 200):
        to = f"new{step}"
        lost.objects.requests, lost.objects.dies_at = 0, step
        try:
            lost.restored(to)
            break
        except Killed:
            deaths += 1
        lost.objects.dies_at = 1 << 62
        if (lost.root / to / "restoring").exists():
            with pytest.raises(StoreError, match="not restored completely"):
                lost.open(lost.root / to)
        again = lost.restoring(to)
        kept += again.run(again.plan()).kept
        lost.check(lost.root / to)
    assert deaths > 12
    assert kept > 2


def test_a_run_that_was_killed_at_any_step_on_the_disk_goes_on(lost: Lost) -> None:
    deaths = 0
    for step in range(400):
        root = lost.root / f"new{step}"
        files = KilledFiles()
        files.dies_at = step
        try:
            restoring = lost.restoring(root.name, files=files)
            restoring.run(restoring.plan())
            break
        except Killed:
            deaths += 1
        if (root / "restoring").exists() or not (root / "commitlog").exists():
            lost.restored(root.name)
        lost.check(root)
    assert deaths > 10


@pytest.mark.parametrize("damage", ["missing", "a block", "the footer", "short", "tables"])
def test_what_cannot_be_restored_is_named_and_the_rest_is_not_taken_for_a_store(
    lost: Lost, damage: str
) -> None:
    objects: ModelObjects = lost.objects
    name = lost.manifest.tables if damage == "tables" else lost.manifest.segments[1].name
    content = objects.content.pop(name)
    if damage in ("a block", "the footer"):
        place = 60 if damage == "a block" else len(content) - 40
        objects.content[name] = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    elif damage == "short":
        objects.content[name] = content[:-1]
    restoring = lost.restoring()
    outcome = restoring.run(restoring.plan())
    (problem,) = outcome.problems
    assert problem.startswith(f"the model/{name}: ")
    assert bool(lost.restoring("dry").missing(restoring.plan())) is (damage in ("missing", "short", "tables"))
    with pytest.raises(StoreError, match="not restored completely"):
        lost.open(lost.root / "new")
    objects.content[name] = content
    restoring = lost.restoring()
    outcome = restoring.run(restoring.plan())
    assert not outcome.problems
    assert (outcome.restored, outcome.kept) == (damage != "tables", len(lost.files) - (damage != "tables"))
    lost.check(lost.root / "new")


def test_an_older_segment_that_is_missing_is_named_and_stays_in_the_tier(lost: Lost) -> None:
    name = lost.manifest.segments[0].name
    del lost.objects.content[name]
    restoring = lost.restoring()
    outcome = restoring.run(restoring.plan(newest=1))
    assert not outcome.problems
    assert outcome.remarks == [f"the model/{name}: it is missing: its readers will wait"]


def test_removed_messages_stay_removed_and_uploads_go_on(lost: Lost) -> None:
    task = UploadTask("", 0, 0, str(lost.root / "segment.tmp"), "", "C", "b")
    manifests = Manifests(lost.objects, "C", "b", "w")
    upkeep = TierUpkeep(manifests, OwnUploader(lost.objects), task, lambda: 0)
    last = lost.manifest.segments[-1]
    entry = upkeep.rewritten(last, Gone({f"1@{BUSY}": 1 << 60}), 0)
    assert entry is not None
    lost.change(segments=(*lost.manifest.segments[:-1], entry))
    root = lost.restored()
    changed = (root / "commitlog" / lost.files[-1].path.name).read_bytes()
    assert changed != lost.files[-1].path.read_bytes()
    assert lost.restoring("new2").plan()
    with lost.open(root) as store:
        assert not store.recovery.damage
        closed = [ClosedFile(*each) for each in store.log.closed_files(store.log.end)]
        assert closed[-1].end == last.log_end
        mine = lost.offloading()
        mine.claim(0, closed, store.log.end)
        assert mine.same_to == last.log_end
    # Another change of that file is still found. No checksum has the time at which a message was born.
    path = root / "commitlog" / lost.files[-1].path.name
    path.write_bytes(changed[:43] + b"?" + changed[44:])
    with pytest.raises(WrongTier, match="other bytes"):
        lost.offloading().compare(lost.manifest, closed)


def test_the_epoch_of_the_last_master_is_known_to_the_new_store(lost: Lost) -> None:
    lost.offloading().claim(7, lost.files, lost.end)
    with lost.open(lost.restored()) as store:
        assert store.epochs.newest == 7


def test_other_directories_and_other_tiers_are_refused(lost: Lost, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "commitlog").mkdir()
    with pytest.raises(StoreError, match="is not empty: it has commitlog"):
        lost.restoring("full").plan()
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "restoring").write_text('{"tierId": "other", "logStart": 0}')
    with pytest.raises(StoreError, match="is of another tier"):
        lost.restoring("begun").plan()
    empty = ModelObjects()
    with pytest.raises(WrongTier, match="has no log files"):
        Restoring(Manifests(empty, "C", "b", "restore"), tmp_path / "new").plan()


def test_a_run_keeps_to_the_files_with_which_it_began(lost: Lost) -> None:
    away = lost.manifest.segments[-1].name
    lost.objects.fails = lambda operation, name: "before" if (operation, name) == ("read", away) else None
    restoring = lost.restoring()
    with pytest.raises(PyroError, match="failed before"):
        restoring.run(restoring.plan(newest=2))
    lost.objects.fails = lambda operation, name: None
    again = lost.restoring()
    plan = again.plan()
    assert len(plan.entries) == 2
    outcome = again.run(plan)
    assert (outcome.restored, outcome.kept, outcome.problems) == (1, 1, [])


@pytest.mark.parametrize("raw", [b"", b"rubbish", b'{"logEnd":1,"files":{}}'])
def test_rubbish_is_no_copy_of_tables(raw: bytes) -> None:
    with pytest.raises(PyroError, match="a copy of tables"):
        parse_tables(raw)


def test_the_command_says_what_it_did_and_its_exit_code_whether_it_is_all(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lost = Lost(tmp_path, DirectoryObjects(lake / "C" / "b"))
    new = tmp_path / "new"
    arguments = ["restore", "--from", str(lake), "--to", str(new), "--cluster", "C", "--broker", "b"]

    def run(*more: str) -> tuple[int, str]:
        result = CliRunner().invoke(store_command, [*arguments, *more], terminal_width=200)
        return result.exit_code, " ".join(result.output.split())

    count = len(lost.files)
    code, output = run("--dry-run")
    assert code == 0
    assert f"{count} of {count} log files, log offsets 0 to {lost.files[-1].end}" in output
    assert not new.exists()
    path = lake / "C" / "b" / lost.manifest.segments[0].name
    content = path.read_bytes()
    path.write_bytes(content[:50] + b"?" + content[51:])
    code, output = run()
    assert code == 1
    assert f"not restorable: {path}: it does not match its checksum" in output
    assert "restored" not in output.replace("not restored", "")
    path.write_bytes(content)
    code, output = run("--newest", "1")
    assert code == 0
    assert f"1 log files now, {count - 1} before" in output
    lost.check(new)
    assert run()[0] == 1  # not empty
    assert run("--since", "yesterday")[0] == 2
    assert run("--since", "@1", "--newest", "1")[0] == 2


def upkeep_of(lost: Lost) -> TierUpkeep:
    task = UploadTask("", 0, 0, str(lost.root / "segment.tmp"), "", "C", "b")
    return TierUpkeep(Manifests(lost.objects, "C", "b", "w"), OwnUploader(lost.objects), task, lambda: 0)


def damage_in(store: MessageStore) -> list[Damage]:
    offset, found = store.log.start, []
    while offset < store.log.end:
        offset, damage = store.scrubbing.check(offset, store.log.end)
        found += [damage] if damage is not None else []
    return found


def old_filler(log_offset: int, size_bytes: int, store_timestamp: int) -> bytes:
    """As versions before 2026-11-19 wrote it."""
    body_bytes = size_bytes - MIN_RECORD_SIZE - len("DAMAGED")
    return encode_record(
        StoredMessage(
            "DAMAGED",
            b"removed from the tier"[:body_bytes].ljust(body_bytes, b"\0"),
            log_offset=log_offset,
            sys_flag=SysFlag.TRANSACTION_ROLLBACK,
            born_timestamp=store_timestamp,
            store_timestamp=store_timestamp,
        )
    )


@pytest.mark.parametrize("version", ["now", "before"])
def test_what_was_removed_on_purpose_is_no_damage_of_the_restored_store(
    lost: Lost, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version == "before":
        monkeypatch.setattr(rewriting, "filler_for_removed", old_filler)
    first = lost.manifest.segments[0]
    entry = upkeep_of(lost).rewritten(first, Gone({DELETED: 1 << 60}), 0)
    assert entry is not None
    lost.change(segments=(entry, *lost.manifest.segments[1:]))
    root = lost.restored()
    assert (root / "commitlog" / lost.files[0].path.name).read_bytes() != lost.files[0].path.read_bytes()
    with lost.open(root) as store:
        dispatch_all(store)
        assert not damage_in(store)
        assert len(bodies_of(store, OLD)) == 5
    with OfflineStore(root) as offline:
        verification = offline.verify()
        assert verification.is_sound
        assert not verification.filled


def test_fillers_stand_for_a_part_of_the_log_that_has_left_the_tier(lost: Lost) -> None:
    middle = lost.manifest.segments[1]
    assert len(lost.manifest.segments) > 2
    lost.change(segments=tuple(each for each in lost.manifest.segments if each != middle))
    restoring = lost.restoring()
    plan = restoring.plan()
    assert [(each.start, each.end) for each in plan.holes] == [(middle.log_start, middle.log_end)]
    outcome = restoring.run(plan)
    assert not outcome.problems
    (remark,) = outcome.remarks
    assert f"does not have the log from {middle.log_start} to {middle.log_end}" in remark
    with lost.open(lost.root / "new") as store:
        dispatch_all(store)
        assert not store.recovery.remarks
        assert not store.recovery.damage
        assert not damage_in(store)
        with lost.open(lost.root / "lost") as original:
            for queue_id in (0, 1):
                there = bodies_of(original, BUSY, queue_id)
                found = bodies_of(store, BUSY, queue_id)
                assert 10 < len(found) < len(there)
                assert found == [each for each in there if each in found]
        end = store.queues.max_offset(BUSY, 0)
        assert append(store, b"new", topic=BUSY, queue_id=0).queue_offset == end


def test_the_command_names_a_part_that_the_tier_lacks(tmp_path: Path) -> None:
    lost = Lost(tmp_path, DirectoryObjects(tmp_path / "lake" / "C" / "b"))
    lost.change(segments=(lost.manifest.segments[0], *lost.manifest.segments[2:]))
    arguments = ["restore", "--from", str(tmp_path / "lake"), "--to", str(tmp_path / "new")]
    arguments += ["--cluster", "C", "--broker", "b"]
    for more in (["--dry-run"], []):
        result = CliRunner().invoke(store_command, [*arguments, *more], terminal_width=200)
        assert result.exit_code == 0
        assert f"does not have the log from {FILE_BYTES} to" in " ".join(result.output.split())
