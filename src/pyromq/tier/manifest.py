"""A manifest: which segments a tier has. Versions are numbered, none is ever changed, the newest one counts.

JSON, compressed with zstd. It may come from anywhere: parsing any bytes returns a manifest whose segments
have proper names, follow each other and do not overlap, or raises BadObject.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec
import zstandard

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.compression import Compression, decompress
from pyromq.tier.names import parse_segment_name, parse_tables_name
from pyromq.tier.segment_format import HEAD, MAX_LOG_BYTES, TAIL_BYTES, BadObject

MAX_MANIFEST_BYTES: Final = 64 * 1024 * 1024
_VERSION: Final = 1
_HEX: Final = frozenset("0123456789abcdef")


class SegmentEntry(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    log_start: int
    log_end: int
    size_bytes: int
    footer_at: int
    first_ms: int
    last_ms: int
    sha256: str
    """Of the object."""
    log_sha256: str
    """Of the log file, as it was on the broker's disk."""
    is_rewritten: bool = False
    """Whether some of its messages were removed later."""


class Removal(msgspec.Struct, frozen=True, rename="camel"):
    """An object that is no longer needed."""

    name: str
    not_before_ms: int
    """Readers may still be at it until then."""


class HiddenMessages(msgspec.Struct, frozen=True, rename="camel"):
    """The messages of a topic, or of `queue@topic`, before a log offset are gone for readers."""

    topic: str
    log_offset: int


class Manifest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    version: int = _VERSION
    tier_id: str
    number: int = 0
    epoch: int = 0
    """Of the master that wrote it; one with a lower epoch must not write any more."""
    writer: str = ""
    attempt: str = ""
    """Random: whoever does not know whether his write has succeeded recognises it."""
    segments: tuple[SegmentEntry, ...] = ()
    removals: tuple[Removal, ...] = ()
    deletions: tuple[HiddenMessages, ...] = ()
    tables: str = ""
    """The object with a copy of the broker's tables; empty if there is none."""
    erased: tuple[str, ...] = ()
    """Erasures that are complete, as `erasure_digest`, the latest last."""

    @property
    def begin(self) -> int:
        """The first log offset that the tier has."""
        return self.segments[0].log_start if self.segments else 0

    @property
    def end(self) -> int:
        """Everything before it is in the tier, or has been."""
        return self.segments[-1].log_end if self.segments else 0

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.segments)

    def covering(self, log_offset: int) -> SegmentEntry | None:
        """The segment that has a log offset."""
        return next((each for each in self.segments if each.log_start <= log_offset < each.log_end), None)


def erasure_digest(mark: str, log_offset: int) -> str:
    """Stands for an erasure: a manifest has no keys."""
    return hashlib.sha256(f"{log_offset} {mark}".encode()).hexdigest()[:32]


def gone_before(marks: Mapping[str, int], topic: str, queue_id: int) -> int:
    """The log offset before which the messages of a queue are gone. `marks`: as in `deletions`."""
    return max(marks.get(topic, 0), marks.get(f"{queue_id}@{topic}", 0)) if marks else 0


def pack_manifest(manifest: Manifest) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(msgspec.json.encode(manifest))


def parse_manifest(raw: bytes) -> Manifest:
    try:
        plain = decompress(raw, Compression.ZSTD, MAX_MANIFEST_BYTES)
        manifest = msgspec.json.decode(plain, type=Manifest)
    except (RemoteProtocolError, msgspec.DecodeError) as problem:
        raise BadObject(f"a manifest: {problem}") from None
    if manifest.version != _VERSION:
        raise BadObject(f"a manifest of version {manifest.version}: this program knows {_VERSION}")
    if manifest.number < 1 or manifest.epoch < 0:
        raise BadObject(f"a manifest of number {manifest.number} and epoch {manifest.epoch}")
    end = 0
    for entry in manifest.segments:
        _verify_entry(entry, end)
        end = entry.log_end
    for removal in manifest.removals:
        if parse_segment_name(removal.name) is None:
            raise BadObject(f"a manifest wants {removal.name!r} removed, which is not a segment")
    if manifest.tables and parse_tables_name(manifest.tables) is None:
        raise BadObject(f"a manifest names {manifest.tables!r}, which is not a copy of tables")
    return manifest


def _verify_entry(entry: SegmentEntry, end: int) -> None:
    named = parse_segment_name(entry.name)
    if named is None or named[0] != entry.log_start:
        raise BadObject(f"a manifest names {entry.name!r}, which is not the segment at {entry.log_start}")
    if entry.log_start < end or not 0 < entry.log_end - entry.log_start <= MAX_LOG_BYTES:
        raise BadObject(f"a manifest has a segment from {entry.log_start} to {entry.log_end}, behind {end}")
    if not len(HEAD) <= entry.footer_at <= entry.size_bytes - TAIL_BYTES:
        raise BadObject(f"{entry.name}: a footer at {entry.footer_at} of {entry.size_bytes} bytes")
    for digest in (entry.sha256, entry.log_sha256):
        if len(digest) != 64 or not _HEX.issuperset(digest):
            raise BadObject(f"{entry.name}: a hash of {len(digest)} characters")
