"""Footers of segments, kept on the broker's own disk: a start needs the object store only for new ones."""

from contextlib import suppress
from pathlib import Path
from typing import Final

from pyromq.errors import PyroError
from pyromq.filesystem import UNFINISHED_SUFFIX, Files
from pyromq.tier.manifest import Manifest, SegmentEntry, pack_manifest, parse_manifest
from pyromq.tier.objects import Objects, Readable
from pyromq.tier.segment_format import TAIL_BYTES, BadObject, Footer, parse_footer, parse_tail

_SUFFIX: Final = ".footer"


class KeptFooters:
    def __init__(self, objects: Objects, files: Files, directory: Path) -> None:
        self._objects = objects
        self._files = files
        self._directory = directory

    def footer(self, entry: SegmentEntry, *, only_local: bool = False) -> Footer | None:
        """The footer of a segment; None if `only_local` and it is not here.

        Raises TransportError, ObjectMissing or BadObject."""
        path = self._directory / _kept_name(entry)
        size_bytes = entry.size_bytes - entry.footer_at
        with suppress(OSError, BadObject):
            if self._files.size(path) == size_bytes:
                return _parse(self._files.read(path), entry)
        if only_local:
            return None
        raw = _read(self._objects, entry)
        footer = _parse(raw, entry)
        with suppress(OSError):  # it will be fetched again
            self._keep(path, raw)
        return footer

    def keep_only(self, manifest: Manifest) -> None:
        """Remove the footers of all other segments."""
        wanted = {_kept_name(each) for each in manifest.segments}
        with suppress(OSError):
            names, _ = self._files.names(self._directory)
            for name in names:
                if name.endswith(_SUFFIX) and name not in wanted:
                    self._files.remove(self._directory / name)

    def last_manifest(self) -> Manifest | None:
        """The one that was the newest when this broker stopped; None if that is not known."""
        with suppress(OSError, PyroError):
            path = self._directory / "manifest"
            if self._files.size(path) is not None:
                return parse_manifest(self._files.read(path))
        return None

    def keep_manifest(self, manifest: Manifest) -> None:
        with suppress(OSError):
            self._keep(self._directory / "manifest", pack_manifest(manifest))

    def _keep(self, path: Path, content: bytes) -> None:
        temporary = path.with_name(path.name + UNFINISHED_SUFFIX)
        self._files.write(temporary, content)
        self._files.rename(temporary, path)


def _kept_name(entry: SegmentEntry) -> str:
    return f"{Path(entry.name).name}{_SUFFIX}"


def read_footer(objects: Readable, entry: SegmentEntry) -> Footer:
    """Raises TransportError, ObjectMissing or BadObject."""
    return _parse(_read(objects, entry), entry)


def _read(objects: Readable, entry: SegmentEntry) -> bytes:
    return objects.read(entry.name, entry.footer_at, entry.size_bytes - entry.footer_at)


def _parse(raw: bytes, entry: SegmentEntry) -> Footer:
    tail = parse_tail(raw[-TAIL_BYTES:], entry.size_bytes)
    if tail.footer_at != entry.footer_at:
        raise BadObject(f"{entry.name}: its footer is at {tail.footer_at}, not at {entry.footer_at}")
    return parse_footer(tail, raw[:-TAIL_BYTES])
