"""What the object store has is right at every moment, whoever wrote it and however it went wrong.

Every change of the store is looked at when it is carried out. Files leave a disk only if the newest manifest
has their part of the log.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256

from tests.simulation.cluster import Server, SimulatedCluster
from tests.simulation.disk_rules import Problem
from tests.simulation.object_store import ObjectData
from tests.simulation.recording import Recorder

from pyromq.broker.broker import Broker
from pyromq.errors import PyroError
from pyromq.store.message_store import MessageStore
from pyromq.tier.manifest import Manifest, SegmentEntry, parse_manifest
from pyromq.tier.names import MANIFESTS, SEGMENTS, TABLES, manifest_name, parse_manifest_name
from pyromq.tier.packing import rebuild
from pyromq.tier.segment_format import TAIL_BYTES, parse_footer, parse_tail, unpack_block

_LEFTOVER_S = 60.0
"""Within this time after the end of all trouble, what no manifest names is gone."""


class TierRules:
    def __init__(
        self, cluster: SimulatedCluster, recorder: Recorder, confirmed: Callable[[], int] | None
    ) -> None:
        """`confirmed` says up to where any master has confirmed the log; None if that is not promised."""
        self._cluster = cluster
        self._recorder = recorder
        self._confirmed = confirmed
        self.newest: Manifest | None = None
        self._owner = 0
        """The process that claimed the tier last; 0 if that was before this was made."""
        self.logs: list[tuple[int, bytes]] = []
        """Where the log files of the tier begin, and what is in them; known when it was judged."""
        self._data = cluster.object_data
        self._data.watch = self._changed
        for name in sorted(self._data.names(MANIFESTS)):
            self._changed(name, 0)

    def _violation(self, invariant: str, text: str) -> None:
        self._recorder.violation(invariant, text)

    # Changes

    def _changed(self, name: str, by: int) -> None:
        stored = self._data.objects.get(name)
        newest = self.newest
        if stored is None:
            if newest is not None and name in _needed(newest):
                self._violation("an object that is needed was removed", f"{name} of {newest.number}")
        elif parse_manifest_name(name) is not None:
            self._added(name, parse_manifest(stored.content), by)
        elif name.startswith(SEGMENTS) and sha256(stored.content).hexdigest()[:16] not in name:
            self._violation("a segment is not what its name says", name)

    def _added(self, name: str, manifest: Manifest, by: int) -> None:
        before, self.newest = self.newest, manifest
        where = f"manifest {manifest.number} of epoch {manifest.epoch}"
        if name != manifest_name(manifest.number):
            self._violation("a manifest has another number", f"{name}: {manifest.number}")
        if before is None:
            before = Manifest(tier_id=manifest.tier_id)
        if manifest.number != before.number + 1 or manifest.tier_id != before.tier_id:
            self._violation("a manifest does not follow the newest one", f"{where} after {before.number}")
        if manifest.epoch < before.epoch:
            self._violation("a master that was replaced wrote the tier", f"{where} after {before.epoch}")
        if (manifest.epoch, manifest.writer) != (before.epoch, before.writer):
            self._owner = by
            if manifest.segments != before.segments:
                self._violation("a master wrote the tier without a claim", f"{where} after {before.epoch}")
        if by != (self._owner or by):
            self._violation("a master that was replaced wrote the tier", f"{where}: process {by}")
        kept = manifest.segments[: len(before.segments)]
        if len(kept) < len(before.segments) or not all(map(_goes_on, before.segments, kept)):
            self._violation("a segment left the tier", f"{where}: {before.segments}, {manifest.segments}")
        for missing in [each for each in _named(manifest) if each not in self._data.objects]:
            self._violation("a manifest names what is not there", f"{where}: {missing}")
        end = before.end
        for entry in manifest.segments[len(before.segments) :]:
            self._check_new(entry, end, where)
            end = entry.log_end

    def _check_new(self, entry: SegmentEntry, end: int, where: str) -> None:
        if entry.log_start != end:
            self._violation("the tier has a hole", f"{where}: {entry.name} behind {end}")
        if self._confirmed is not None and entry.log_end > (confirmed := self._confirmed()):
            self._violation("in the tier, but not confirmed", f"{entry.name}, confirmed is {confirmed}")
        stored = self._data.objects.get(entry.name)
        if stored is not None and sha256(stored.content).hexdigest() != entry.sha256:
            self._violation("a segment is not what its manifest says", entry.name)

    # Now and then

    def look(self) -> None:
        for server in self._cluster.brokers:
            broker = self._cluster.broker(server)
            if broker is not None:
                self._check_files(server, broker)

    def _check_files(self, server: Server, broker: Broker) -> None:
        """The manifest has no holes: so its end says it all."""
        end, start = self.newest.end if self.newest is not None else 0, broker.store.log.start
        if start > end:
            text = f"the log of {server.host.name} begins at {start}, the tier ends at {end}"
            self._violation("a file went without a copy", text)

    # At the end

    async def settle(self) -> None:
        """Wait until all closed files are in the tier and leftovers are gone."""
        if not await self._cluster.until(lambda: not list(self._unfinished()), _LEFTOVER_S):
            for invariant, text in self._unfinished():
                self._violation(invariant, text)
        if self.newest is not None:
            starts = [each.store.log.start for each in self._cluster.running()]
            text = f"manifest {self.newest.number} up to {self.newest.end}, the logs begin at {starts}"
            self._recorder.event("tier", text)

    def _unfinished(self) -> Iterator[Problem]:
        newest = self.newest
        end = newest.end if newest is not None else 0
        for broker in self._cluster.running():
            log = broker.store.log
            if log.end - end > 2 * broker.store.settings.log_segment_bytes:
                yield "closed files are not uploaded", f"the tier ends at {end}, the log at {log.end}"
        named = _named(newest) if newest is not None else set()
        for name in self._data.names(SEGMENTS, TABLES, MANIFESTS):
            if name not in named and (parse_manifest_name(name) is None and "hint" not in name):
                yield "a leftover was not removed", name

    def judge(self) -> Iterator[Problem]:
        for entry in self.newest.segments if self.newest is not None else ():
            try:
                log = log_of(self._data, entry)
            except (PyroError, KeyError) as problem:
                yield "a segment cannot be read", f"{entry.name}: {problem!r}"
                continue
            self.logs.append((entry.log_start, log))
            for broker in self._cluster.running():
                store = broker.store
                is_whole = not entry.is_rewritten and store.log.start <= entry.log_start
                if is_whole and _bytes(store, entry) != log:
                    yield "the tier has other bytes than a log", f"{entry.name}: {broker.advertised_address}"


def _goes_on(before: SegmentEntry, now: SegmentEntry) -> bool:
    """Whether it is the same, or the same part of the log without the messages of a deleted topic."""
    part = (before.log_start, before.log_end, before.log_sha256)
    return now == before or (now.is_rewritten and (now.log_start, now.log_end, now.log_sha256) == part)


def _needed(manifest: Manifest) -> set[str]:
    tables = {manifest.tables} if manifest.tables else set()
    return tables | {each.name for each in manifest.segments}


def _named(manifest: Manifest) -> set[str]:
    return _needed(manifest) | {each.name for each in manifest.removals}


def _bytes(store: MessageStore, entry: SegmentEntry) -> bytes:
    return bytes(store.log.bytes_at(entry.log_start, entry.log_end - entry.log_start))


def log_of(data: ObjectData, entry: SegmentEntry) -> bytes:
    """The log file of a segment. Raises KeyError or BadObject."""
    content = data.objects[entry.name].content
    raw = content[entry.footer_at :]
    footer = parse_footer(parse_tail(raw[-TAIL_BYTES:], len(content)), raw[:-TAIL_BYTES])

    def block_of(number: int) -> bytes:
        block = footer.blocks[number]
        return unpack_block(block, content[block.position : block.position + block.size_bytes])

    return bytes(rebuild(footer, block_of, entry.log_end - entry.log_start))
