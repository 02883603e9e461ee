"""The lake tier: closed files of the log go to an object store, and old messages are read from there.

Only a master uploads, and only what is on disk and confirmed by its replicas. Every wait is in a thread. If
the store is away, sends continue and files stay. If an object is damaged, its readers wait, and everything
else continues. If the tier belongs to another store, this broker leaves it alone, says so, and looks again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from pyromq import chance
from pyromq.broker.context import Context
from pyromq.broker.flow.durability import Durability
from pyromq.broker.flow.looking_up import OlderLookups
from pyromq.broker.tables.role import Role
from pyromq.errors import PyroError, Refused, TransportError
from pyromq.filesystem import UNFINISHED_SUFFIX
from pyromq.protocol.codes import ResponseCode
from pyromq.store.deletions import Deletion
from pyromq.store.erasing import named_in
from pyromq.tier.blocks import Blocks
from pyromq.tier.counted_objects import CountedObjects, Traffic
from pyromq.tier.footers import KeptFooters
from pyromq.tier.history import OlderHistory
from pyromq.tier.index import Queue, Spans, TierIndex, spans_of
from pyromq.tier.lookups import TierLookups
from pyromq.tier.manifest import Manifest, SegmentEntry, erasure_digest
from pyromq.tier.manifests import Fenced, Manifests, OtherBroker, WrongTier
from pyromq.tier.objects import ObjectMissing, Objects, size_problem
from pyromq.tier.offloading import ClosedFile, Offloading, has_new_marks, newer_from, next_file, uploaded_to
from pyromq.tier.opening import open_objects
from pyromq.tier.rewriting import Gone
from pyromq.tier.segment_format import BadObject
from pyromq.tier.tables import TieredTables, copied_tables
from pyromq.tier.upkeep import TierUpkeep, due
from pyromq.tier.uploading import ChildUploader, DamagedFile, OwnUploader, Uploader, UploadTask

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_POLL_S: Final = 30.0
_MAX_PAUSE_S: Final = 60.0
_HOUR_MS: Final = 3_600_000
_TABLES_S: Final = 600.0
"""So often the tables are copied while no file is uploaded."""
_SLICE: Final = 500

T = TypeVar("T")


class Tiering:
    def __init__(
        self,
        context: Context,
        durability: Durability,
        wake: Callable[[str, int], None],
        suspect: Callable[[int], None],
        objects: Objects | None = None,
    ) -> None:
        """`wake`: whoever waits for messages of a queue shall look again. `suspect`: the log file with this
        log offset is damaged. `objects`: the object store, instead of the one that the settings name; then no
        child process uploads."""
        settings = context.live.now
        self._live = context.live
        self._store = context.store
        self._role = context.tables.role
        self._topics = context.tables.topics
        self._offsets = context.tables.offsets
        self._durability = durability
        self._suspect = suspect
        self._clock = context.clock
        self._loop = asyncio.get_running_loop()
        counted = CountedObjects(
            objects
            or open_objects(
                settings.tier_place,
                settings.broker_cluster_name,
                settings.broker_name,
                endpoint=settings.object_store_endpoint,
                upload_concurrency=settings.tier_upload_concurrency,
            )
        )
        self._uploader: Uploader = ChildUploader() if objects is None else OwnUploader(counted)
        self._objects = objects = counted
        directory = self._store.paths.root / "tier"
        self._store.files.make_directories(directory)
        writer = f"{settings.broker_name} {chance.uuid().hex}"
        self._writer = writer
        self._footers = KeptFooters(objects, self._store.files, directory)
        self._kept = kept = self._footers.last_manifest()
        """The newest manifest when this broker stopped."""
        manifests = Manifests(objects, settings.broker_cluster_name, settings.broker_name, writer, kept)
        task = UploadTask(
            "",
            0,
            0,
            str(directory / f"segment{UNFINISHED_SUFFIX}"),
            settings.tier_place,
            settings.broker_cluster_name,
            settings.broker_name,
            settings.object_store_endpoint,
            settings.tier_upload_concurrency,
        )
        self._offloading = Offloading(manifests, self._uploader, task)
        self._upkeep = TierUpkeep(manifests, self._uploader, task, context.clock.now_ms)
        self.blocks = Blocks(
            objects, self._footers, settings.tier_cache_bytes, settings.tier_read_concurrency
        )
        self.history = OlderHistory(
            self.blocks,
            wake,
            lambda: context.store.settings,
            context.store.queues.gone_before,
            context.store.expiry.oldest_ms,
        )
        self.older_lookups = OlderLookups(
            context.live, context.clock, self.history, TierLookups(objects, self._footers)
        )
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="tier-upload")
        self._seen: Role | None = None
        """The role of the last round."""
        self._began = self._store.log.end
        """Where the log ended when this broker became the master."""
        self._is_claimed = False
        """Whether this master has said that it writes."""
        self._is_fenced = False
        self._must_compare = False
        """The tier was that of another log when it was last checked."""
        self._damaged: dict[str, str] = {}
        """Segments whose footers cannot be read, or whose objects are not there, and why."""
        self._looked_at: set[str] = set()
        """Segments whose objects this process has looked at."""
        self._vanished: set[str] = set()
        """Those that were missing, or had another size. Their footers may be kept here."""
        self._looks = asyncio.Event()
        """There is something to do."""
        self._learned = asyncio.Event()
        """Another manifest is known, or none could be read; replaced each time."""
        self.problem = ""
        """Why nothing is uploaded at the moment."""
        self.uploaded_bytes = self.failures = 0
        self.rewritten_segments = self.removed_segments = 0
        self.rounds = 0
        """How often it was looked for what has to leave the tier."""
        self._next_upkeep = self._next_tables = self._next_erasing = 0.0
        self._erasing: list[Deletion] = []
        """Removed from the segments at the moment."""
        self._clean: set[str] = set()
        """The segments that have nothing of it."""
        self.erase_problem = ""
        """Why a segment cannot be searched for what is to be erased."""
        self._known: Manifest | None = None
        if settings.tier_required:
            self._store.keep_until_uploaded(0)
        self._store.queues.older = self.history
        self._gone_on: tuple[TierIndex, int, bool] | None = None
        self._begin_with_kept()
        self._go_on(self._tiered_queues(), self._store.log.start)
        self._role.on_change(self._role_changed)

    def _begin_with_kept(self) -> None:
        """Readers and queues continue at once where this broker has read the tier before."""
        manifest = self._kept
        if manifest is None:
            return
        footers = [(each, self._footers.footer(each, only_local=True)) for each in manifest.segments]
        self._use(
            TierIndex(manifest, {each.name: spans_of(each, footer) for each, footer in footers if footer})
        )

    # Figures

    @property
    def manifest(self) -> Manifest | None:
        return self._known

    @property
    def segments(self) -> tuple[SegmentEntry, ...]:
        return self._known.segments if self._known is not None else ()

    @property
    def is_fenced(self) -> bool:
        """Whether another master with a greater epoch writes the tier."""
        return self._is_fenced

    @property
    def damaged(self) -> dict[str, str]:
        """Segments that could not be read the last time, and why."""
        return self._damaged | self.blocks.problems

    @property
    def lag_bytes(self) -> int:
        """Of closed files that are not in the tier yet."""
        end = self._known.end if self._known is not None else 0
        return sum(each.end - each.start for each in self._closed_files() if each.start >= end)

    @property
    def lag_s(self) -> float:
        """For how long the oldest of these files has been waiting; 0 if none is."""
        file = next_file(self._known, self._closed_files())
        closed_ms = self._store.log.store_time(file.end) if file is not None else None
        return max(0, self._clock.now_ms() - closed_ms) / 1000 if closed_ms is not None else 0

    @property
    def log_bytes(self) -> int:
        """Of the part of the log that is in the tier, as it was on the disk."""
        return sum(each.log_end - each.log_start for each in self.segments)

    @property
    def is_owner(self) -> bool:
        """Whether this process has claimed the tier."""
        return self._known is not None and self._known.writer == self._writer

    @property
    def traffic(self) -> Traffic:
        """Requests to the object store since the start."""
        return self._objects.traffic + self._uploader.traffic

    def figures(self) -> dict[str, str]:
        """For the runtime information of the broker."""
        manifest, traffic = self._known, self.traffic
        return {
            "tierPlace": self._objects.place,
            "tierEpoch": str(manifest.epoch if manifest is not None else 0),
            "tierWriter": manifest.writer if manifest is not None else "",
            "tierIsOwner": str(self.is_owner).lower(),
            "tierFirstMs": str(next((each.first_ms for each in self.segments if each.first_ms), 0)),
            "tierLogBytes": str(self.log_bytes),
            "tierLagSeconds": f"{self.lag_s:.0f}",
            "tierReads": str(traffic.reads),
            "tierWrites": str(traffic.writes + traffic.lists),
            "tierReadBytes": str(traffic.read_bytes),
            "tierWrittenBytes": str(traffic.written_bytes),
            "tierManifest": str(manifest.number if manifest is not None else 0),
            "tierSegments": str(len(manifest.segments) if manifest is not None else 0),
            "tierBegin": str(manifest.begin if manifest is not None else 0),
            "tierEnd": str(manifest.end if manifest is not None else 0),
            "tierBytes": str(manifest.size_bytes if manifest is not None else 0),
            "tierLagBytes": str(self.lag_bytes),
            "tierFailures": str(self.failures + self.blocks.failures),
            "tierProblem": self.problem or next(iter(self.damaged.values()), ""),
        }

    # Work

    async def run(self) -> None:
        pause_s = _LOOK_S
        next_poll = 0.0
        try:
            while True:
                self._looks.clear()
                try:
                    is_poll = self._clock.monotonic() >= next_poll
                    has_more = await self._round(is_poll=is_poll)
                    if is_poll:
                        next_poll = self._clock.monotonic() + _POLL_S
                    pause_s = _LOOK_S
                    if self.problem and not self._is_fenced:
                        _log.info("the tier is reached again")
                        self.problem = ""
                    if has_more:
                        continue
                except (TransportError, ObjectMissing, BadObject) as problem:
                    self._failed(str(problem))
                    pause_s = min(2 * pause_s, _MAX_PAUSE_S)
                    next_poll = 0.0
                except Fenced as problem:
                    self._is_fenced = True
                    self._failed(str(problem))
                except WrongTier as problem:
                    self._is_wrong(problem)
                    pause_s, next_poll = _MAX_PAUSE_S, 0.0
                await self._pause(pause_s * (0.5 + chance.random() / 2))
        finally:
            self._uploader.close()
            self.blocks.close()
            self.older_lookups.close()
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _role_changed(self, role: Role) -> None:
        if role.is_master:
            self._began = self._store.log.end
            if self.history.index.unknown:
                self._go_on(self._tiered_queues(), self._store.log.start)

    def _is_wrong(self, problem: WrongTier) -> None:
        """Stop until another look finds the right tier. Readers continue with what they know."""
        if str(problem) != self.problem:
            _log.error("nothing is uploaded to the tier any more: %s", problem)
        self._failed(str(problem))
        self._must_compare = True
        self._offloading.same_to = 0
        if self._live.now.tier_required:
            self._store.keep_until_uploaded(0)  # there may be no copies
        if not self.history.is_known and self._had_nothing(problem):
            self.history.use(TierIndex())

    def _had_nothing(self, problem: WrongTier) -> bool:
        """Whether no message of this log can be in the tier alone; otherwise readers wait."""
        is_of_other = isinstance(problem, OtherBroker) and self._kept is None
        return self._store.log.start == 0 or is_of_other

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._looks.wait()

    def _failed(self, problem: str) -> None:
        self.failures += 1
        if problem != self.problem:
            _log.warning("nothing is uploaded to the tier: %s", problem)
        self.problem = problem
        self._say_learned()

    async def _round(self, *, is_poll: bool) -> bool:
        """Upload one file if there is one; whether there may be more."""
        role = self._role.now
        # Without a controller the log's: there may have been one when the tier was written.
        epoch = role.epoch or max(self._store.epochs.newest, 0)
        if self._seen != role:
            self._seen = role
            self._is_fenced = self._is_claimed = False
            self._offloading.same_to = 0  # a replica may have lost the end of its log
        may_write = role.is_master and not self._is_fenced
        files = self._closed_files()
        if self._must_compare:
            await self._wait(lambda: self._offloading.refresh(files))
            self._must_compare = False
        if may_write and not self._is_claimed:
            end = self._began  # what a master that is not the right one has since proves nothing
            newer = partial(newer_from, self._store.epochs.epochs, self._began)
            await self._learn(await self._wait(lambda: self._offloading.claim(epoch, files, end, newer)))
            self._is_claimed = True
            self._next_tables = 0.0
            return True
        if may_write and self._role.now == role:
            if self._has_new_marks():
                hidden = self._store.topics.hidden()
                await self._learn(await self._wait(lambda: self._offloading.mark(epoch, hidden)))
                return True
            if is_erasing := self._clock.monotonic() >= self._next_erasing and self._has_to_erase():
                await self._erase(epoch)
            if is_poll and (found := self._mendable(files)) is not None:
                await self._mend(*found, epoch)
            if (file := next_file(self._known, files)) is not None:
                hidden, end = self._store.topics.hidden(), self._store.log.end
                try:
                    manifest = await self._wait(
                        lambda: self._offloading.offload(file, epoch, hidden, self._tables(end), files)
                    )
                except DamagedFile:
                    self._suspect(file.start)  # another broker may have what was there
                    raise
                self.uploaded_bytes += file.end - file.start
                await self._learn(manifest)
                return True
            if is_erasing:
                return True
            if self._clock.monotonic() >= self._next_tables:
                end = self._store.log.end
                await self._learn(
                    await self._wait(lambda: self._offloading.keep_tables(epoch, self._tables(end)))
                )
                self._next_tables = self._clock.monotonic() + _TABLES_S
            is_due = self._live.now.tier_upkeep and self._clock.monotonic() >= self._next_upkeep
            if is_due and await self._keep_up(role, epoch):
                return True
        if is_poll:
            await self._learn(await self._wait(lambda: self._offloading.refresh(files)))
            if self._is_fenced and self._is_claimed and self._offloading.is_claimed(epoch):
                self._is_fenced = False  # a tool has given it back
        self._keep_files()
        await self._queues_go_on()
        return False

    def _tables(self, log_end: int) -> TieredTables:
        """In a thread: a copy of what the broker has on disk."""
        return copied_tables(self._store.files, self._store.paths.config, log_end)

    async def _queues_go_on(self) -> None:
        """No queue begins anew behind what the tier has of it. The log of a store that was empty begins where
        the master's disk began, and says nothing about queues without messages since."""
        index, start, is_first = self.history.index, self._store.log.start, self._gives_offsets
        if self._gone_on == (index, start, is_first):
            return
        queues = self._tiered_queues()
        for first in range(0, len(queues), _SLICE):
            self._go_on(queues[first : first + _SLICE], start)
            await asyncio.sleep(0)
            if self._store.log.start != start:
                return
        self._gone_on = index, start, is_first

    @property
    def _gives_offsets(self) -> bool:
        """Whether it is this broker that numbers messages, and those before are in their queues."""
        return self._role.now.is_master and self._store.queues.dispatched_offset >= self._began

    def _tiered_queues(self) -> list[Queue]:
        """Those with messages in the tier, and what groups have read if a part of it cannot be read."""
        index = self.history.index
        if not index.unknown:
            return index.queues
        read = [
            (topic, queue_id)
            for topic, group in self._offsets.ordinary_pairs()
            for queue_id, offset in self._offsets.queues(group, topic).items()
            if offset > 0
        ]
        return list(dict.fromkeys([*index.queues, *read]))

    def _go_on(self, queues: Sequence[Queue], log_start: int) -> None:
        index = self.history.index
        for queue in queues:
            topic, queue_id = queue
            offset = index.end_of(queue, log_start)
            if not offset or self._store.topics.is_deleted(topic, log_start - 1):
                continue
            if not index.is_end_known(queue, log_start) and (
                not self._gives_offsets or self._store.queues.find(topic, queue_id) is not None
            ):
                continue  # the master, or the queue itself, knows it better
            try:
                has_begun = not self._store.topics.queue_goes_on(topic, queue_id, offset)
            except OSError as problem:
                _log.warning("queue %s/%d cannot go on at %d: %s", topic, queue_id, offset, problem)
                continue
            if has_begun:
                _log.error(
                    "queue %s/%d has other messages than the tier, which has offsets up to %d: it began anew"
                    " while the tier was not known",
                    topic,
                    queue_id,
                    offset,
                )

    def _closed_files(self) -> list[ClosedFile]:
        """The log files that cannot be cut off any more."""
        end = min(self._store.flushes.offset, self._durability.readable_offset)
        return [ClosedFile(*each) for each in self._store.log.closed_files(end)]

    # Deletions

    def _has_new_marks(self) -> bool:
        return self._known is not None and has_new_marks(self._known, self._store.topics.hidden())

    async def deleted(self) -> None:
        """Return when the tier says which messages are gone. Raises Refused if the tier cannot be reached;
        the deletion is then noted there later."""
        if not self._role.now.is_master:
            return
        timeout_s = self._live.now.tier_read_timeout_ms / 1000
        self._looks.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._known is None or self._has_new_marks():
                    await self._learned.wait()
                return
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            "the messages are gone on this broker, but the tier does not know it yet:"
            f" {self.problem or 'it is slow'}. The broker keeps trying; ask again to be sure",
        )

    # Erasing

    def is_erased(self, erasure: Deletion) -> bool:
        """Whether the tier has nothing of it, and never will."""
        digest = erasure_digest(erasure.topic, erasure.log_offset)
        return self._known is not None and digest in self._known.erased

    async def alone(self, work: Callable[[], None]) -> None:
        """Do what changes files of the log, while no file is read that is being uploaded."""
        await self._wait(work)

    def _has_to_erase(self) -> bool:
        """The log is first: else another upload would bring back what the tier has lost."""
        erasing = self._store.erasing
        wanted = [each for each in erasing.unfinished() if erasing.is_done_here(each)]
        wanted = [each for each in wanted if not self.is_erased(each)]
        if wanted != self._erasing:
            self._erasing = wanted
            self._clean.clear()
            self.erase_problem = ""
        return bool(wanted)

    async def _erase(self, epoch: int) -> None:
        """Search one segment; after the last one, say so in a manifest."""
        wanted = self._erasing
        before = max(each.log_offset for each in wanted)
        entry = await self._wait(lambda: self._upkeep.next_to_erase(before, self._clean, epoch))
        if entry is not None:
            gone = Gone(keys=tuple((*named_in(each.topic), each.log_offset) for each in wanted))
            try:
                mended = await self._wait(lambda: self._upkeep.erase(entry, gone, epoch))
            except DamagedFile as problem:
                self.erase_problem = str(problem)
            else:
                if mended is not None:
                    self.rewritten_segments += 1
                    await self._learn(await self._wait(self._offloading.refresh))
                    self._clean.add(mended.name)
            self._clean.add(entry.name)
        elif self.erase_problem:
            _log.error("messages cannot be erased from the tier: %s", self.erase_problem)
            self._erasing = []
            self._next_erasing = self._clock.monotonic() + _MAX_PAUSE_S
        else:
            digests = [erasure_digest(each.topic, each.log_offset) for each in wanted]
            await self._learn(await self._wait(lambda: self._upkeep.erased(digests, epoch)))

    # Upkeep

    async def _keep_up(self, role: Role, epoch: int) -> bool:
        """Remove what is too old or deleted, and leftovers. A clock that may be wrong makes nothing old.

        Whether more is to be done: deletions and uploads do not wait until all segments are rewritten."""
        settings = self._live.now
        now_ms = self._store.time.cautious_ms()
        default_ms = now_ms - settings.tier_reserved_hours * _HOUR_MS if settings.tier_reserved_hours else 0

        def oldest_ms(topic: str) -> int:
            if topic not in self._topics and not self._topics.is_system(topic):
                return 0  # the table may be lost, and with it how long the topic is to be kept
            return self._store.expiry.oldest_ms(topic, now_ms) or default_ms

        for work in await self._wait(lambda: due(self.history.index, oldest_ms, default_ms)):
            if self._role.now != role:
                return False
            await self._learn(await self._wait(partial(self._upkeep.carry_out, work, epoch)))
            self.rewritten_segments += work.gone is not None
            self.removed_segments += work.gone is None
            _log.info("%s %s", work.entry.name, "has left the tier" if work.gone is None else "was rewritten")
            if self._has_new_marks() or next_file(self._known, self._closed_files()) is not None:
                return True
        await self._wait(lambda: self._upkeep.remove_due(epoch, now_ms))
        swept = await self._wait(lambda: self._upkeep.sweep(settings.tier_orphan_hours * _HOUR_MS, epoch))
        if swept:
            _log.info("leftovers removed from the tier count=%d names=%.500s", len(swept), ",".join(swept))
        self.rounds += 1
        self._next_upkeep = self._clock.monotonic() + settings.tier_upkeep_interval_ms / 1000
        return False

    # Damaged segments

    def _mendable(self, files: list[ClosedFile]) -> tuple[SegmentEntry, ClosedFile] | None:
        """A segment whose file is still on this disk."""
        by_start = {each.start: each for each in files}
        for entry in self.history.index.unknown:
            if not entry.is_rewritten and entry.name in self._damaged and entry.log_start in by_start:
                return entry, by_start[entry.log_start]
        return None

    async def _mend(self, entry: SegmentEntry, file: ClosedFile, epoch: int) -> None:
        manifest = await self._wait(lambda: self._offloading.mend(entry, file, epoch))
        if manifest is None:
            return
        _log.warning("%s was replaced: %s", entry.name, self._damaged.get(entry.name))
        await self._learn(manifest)

    # Knowing the tier

    async def _learn(self, manifest: Manifest | None) -> None:
        """Know the footers of a manifest before a file goes that it has."""
        index = self.history.index
        if manifest is not None:
            start = self._store.log.start
            await self._wait(lambda: self._look_at_objects(manifest, start))
        if manifest is not None and (manifest != index.manifest or index.unknown or self._vanished):
            index = await self._wait(lambda: self._index(manifest, index))
            if manifest != self._known:
                await self._wait(lambda: self._footers.keep_manifest(manifest))
            self._known = manifest
        if index is not self.history.index or not self.history.is_known:
            self._use(index)
        self._known = manifest
        self._keep_files()
        self._say_learned()

    def _use(self, index: TierIndex) -> None:
        known = self.history.index.out_of_line
        for (topic, queue_id), spans in index.out_of_line.items():
            for each in spans:
                if each not in known.get((topic, queue_id), ()):
                    _log.error(
                        "queue %s/%d: its offsets go back without a deletion; %d to %d at log offset"
                        " %d, in %s, cannot be read",
                        topic,
                        queue_id,
                        each.first_offset,
                        each.end_offset,
                        each.first_log,
                        each.segment.name,
                    )
        self.history.use(index)

    def _index(self, manifest: Manifest, before: TierIndex) -> TierIndex:
        """In a thread: what a manifest has. Raises TransportError if the store is away."""
        parts: dict[str, Spans] = {}
        damaged: dict[str, str] = {}
        for entry in manifest.segments:
            if entry.name in self._vanished:
                if problem := self._size_problem(entry):
                    damaged[entry.name] = f"{self._offloading.place}/{entry.name}: {problem}"
                    continue
                self._vanished.discard(entry.name)
            if entry.name in before.parts:
                parts[entry.name] = before.parts[entry.name]
                continue
            try:
                footer = self._footers.footer(entry)
                assert footer is not None
                parts[entry.name] = spans_of(entry, footer)
            except (ObjectMissing, BadObject) as found:
                damaged[entry.name] = f"{self._offloading.place}/{entry.name}: {_reason(found)}"
        for name, text in damaged.items():
            if name not in self._damaged:
                _log.error("a segment cannot be read, its readers wait: %s", text)
        self._damaged = damaged
        self._footers.keep_only(manifest)
        return TierIndex(manifest, parts)

    def _look_at_objects(self, manifest: Manifest, log_start: int) -> None:
        """In a thread: look once at each object whose log file is still here, before that may go."""
        for entry in manifest.segments:
            if entry.log_end > log_start and entry.name not in self._looked_at:
                if self._size_problem(entry):
                    self._vanished.add(entry.name)
                self._looked_at.add(entry.name)
        names = {each.name for each in manifest.segments}
        self._looked_at &= names
        self._vanished &= names

    def _size_problem(self, entry: SegmentEntry) -> str:
        return size_problem(self._objects, entry.name, entry.size_bytes)

    def _say_learned(self) -> None:
        self._learned.set()
        self._learned = asyncio.Event()

    def _keep_files(self) -> None:
        """No file goes without a sound copy."""
        if self._live.now.tier_required:
            start = self._store.log.start
            unsound = [each.log_start for each in self.history.index.unknown if each.log_end > start]
            self._store.keep_until_uploaded(
                min(uploaded_to(self._known, start), self._offloading.same_to, *unsound)
            )

    async def _wait(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._threads, work)


def _reason(problem: PyroError) -> str:
    return "it is missing" if isinstance(problem, ObjectMissing) else str(problem)
