"""The lake tier: closed files of the log go to an object store, and old messages are read from there.

Only a master uploads, and only what is on disk and confirmed by its replicas. Every wait is in a thread. If
the store is away, sends go on and files stay; if the tier belongs to another store, this broker stops
uploading and says so.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from pyromq import chance
from pyromq.broker.context import Context
from pyromq.broker.flow.durability import Durability
from pyromq.errors import TransportError
from pyromq.store.filenames import UNFINISHED_SUFFIX
from pyromq.tier.blocks import Blocks
from pyromq.tier.footers import KeptFooters
from pyromq.tier.history import OlderHistory
from pyromq.tier.manifest import Manifest, SegmentEntry
from pyromq.tier.manifests import Fenced, Manifests, WrongTier
from pyromq.tier.objects import ObjectMissing
from pyromq.tier.offloading import ClosedFile, Offloading, next_file, uploaded_to
from pyromq.tier.opening import open_objects
from pyromq.tier.segment_format import BadObject
from pyromq.tier.uploading import ChildUploader, Uploader, UploadTask

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_POLL_S: Final = 30.0
_MAX_PAUSE_S: Final = 60.0

T = TypeVar("T")


class Tiering:
    def __init__(
        self,
        context: Context,
        durability: Durability,
        wake: Callable[[str, int], None],
        uploader: Uploader | None = None,
    ) -> None:
        """`wake`: whoever waits for messages of a queue shall look again."""
        settings = context.live.now
        self._live = context.live
        self._store = context.store
        self._role = context.tables.role
        self._durability = durability
        self._clock = context.clock
        objects = open_objects(
            settings.tier_place,
            settings.broker_cluster_name,
            settings.broker_name,
            endpoint=settings.object_store_endpoint,
            upload_concurrency=settings.tier_upload_concurrency,
        )
        directory = self._store.paths.root / "tier"
        self._store.files.make_directories(directory)
        writer = f"{settings.broker_name} {chance.uuid().hex}"
        self._footers = KeptFooters(objects, self._store.files, directory)
        self._uploader: Uploader = uploader if uploader is not None else ChildUploader()
        self._offloading = Offloading(
            Manifests(objects, settings.broker_cluster_name, settings.broker_name, writer),
            self._uploader,
            UploadTask(
                "",
                0,
                0,
                str(directory / f"segment{UNFINISHED_SUFFIX}"),
                settings.tier_place,
                settings.broker_cluster_name,
                settings.broker_name,
                settings.object_store_endpoint,
                settings.tier_upload_concurrency,
            ),
        )
        self.blocks = Blocks(objects, settings.tier_cache_bytes, settings.tier_read_concurrency)
        self.history = OlderHistory(
            self.blocks, wake, lambda: context.store.settings, context.store.queues.gone_before
        )
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="tier-upload")
        self._claimed: int | None = None
        """The epoch in which this master may write."""
        self._is_fenced = False
        self.problem = ""
        """Why nothing is uploaded at the moment."""
        self.uploaded_segments = self.uploaded_bytes = self.failures = 0
        self._known: Manifest | None = None
        if settings.tier_required:
            self._store.keep_until_uploaded(0)
        self._store.queues.older = self.history
        self._begin_with_kept()

    def _begin_with_kept(self) -> None:
        """Readers go on at once where this broker has read the tier before."""
        manifest = self._footers.last_manifest()
        if manifest is not None:
            for entry in self.history.missing(manifest):
                footer = self._footers.footer(entry, only_local=True)
                if footer is None:
                    return
                self.history.add(entry, footer)
            self.history.complete(manifest)

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
    def lag_bytes(self) -> int:
        """Of closed files that are not in the tier yet."""
        end = self._known.end if self._known is not None else 0
        return sum(each.end - each.start for each in self._closed_files() if each.start >= end)

    def figures(self) -> dict[str, str]:
        """For the runtime information of the broker."""
        manifest = self._known
        return {
            "tierManifest": str(manifest.number if manifest is not None else 0),
            "tierSegments": str(len(manifest.segments) if manifest is not None else 0),
            "tierBegin": str(manifest.begin if manifest is not None else 0),
            "tierEnd": str(manifest.end if manifest is not None else 0),
            "tierBytes": str(manifest.size_bytes if manifest is not None else 0),
            "tierLagBytes": str(self.lag_bytes),
            "tierFailures": str(self.failures + self.blocks.failures),
            "tierProblem": self.problem,
        }

    # Work

    async def run(self) -> None:
        pause_s = _LOOK_S
        next_poll = 0.0
        try:
            while True:
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
                except (TransportError, ObjectMissing) as problem:
                    self._failed(str(problem))
                    pause_s = min(2 * pause_s, _MAX_PAUSE_S)
                except Fenced as problem:
                    self._is_fenced = True
                    self._failed(str(problem))
                except (WrongTier, BadObject) as problem:
                    self._failed(f"stopped until the next start: {problem}")
                    _log.error("nothing is uploaded to the tier any more: %s", problem)
                    return
                await asyncio.sleep(pause_s * (0.5 + chance.random() / 2))
        finally:
            self._uploader.close()
            self.blocks.close()
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _failed(self, problem: str) -> None:
        self.failures += 1
        if problem != self.problem:
            _log.warning("nothing is uploaded to the tier: %s", problem)
        self.problem = problem

    async def _round(self, *, is_poll: bool) -> bool:
        """Upload one file if there is one; whether there may be more."""
        role = self._role.now
        if self._claimed != role.epoch:
            self._is_fenced = False
        may_write = role.is_master and not self._is_fenced
        files = self._closed_files()
        if may_write and self._claimed != role.epoch:
            end = self._store.log.end
            await self._learn(await self._wait(lambda: self._offloading.claim(role.epoch, files, end)))
            self._claimed = role.epoch
            return True
        file = next_file(self._known, files) if may_write else None
        if file is not None and self._role.now == role:
            hidden = self._store.topics.hidden()
            manifest = await self._wait(lambda: self._offloading.offload(file, role.epoch, hidden))
            self.uploaded_segments += 1
            self.uploaded_bytes += file.end - file.start
            await self._learn(manifest)
            return True
        if is_poll:
            await self._learn(await self._wait(self._offloading.refresh))
        self._keep_files()
        return False

    def _closed_files(self) -> list[ClosedFile]:
        """What cannot be cut off any more."""
        end = min(self._store.flushes.offset, self._durability.readable_offset)
        return [ClosedFile(*each) for each in self._store.log.closed_files(end)]

    async def _learn(self, manifest: Manifest | None) -> None:
        """Know the footers of a manifest before a file goes that it has."""
        if manifest is not None:
            for entry in self.history.missing(manifest):
                footer = await self._wait(partial(self._footers.footer, entry))
                if footer is not None:
                    self.history.add(entry, footer)
            if manifest != self._known:
                await self._wait(lambda: self._footers.keep_manifest(manifest))
            self._known = manifest
        self.history.complete(manifest)
        self._keep_files()

    def _keep_files(self) -> None:
        if self._live.now.tier_required:
            self._store.keep_until_uploaded(uploaded_to(self._known, self._store.log.start))

    async def _wait(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
