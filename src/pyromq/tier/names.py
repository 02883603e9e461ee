"""The names of all objects of a tier, below `<cluster>/<broker name>/`.

A name that was listed or read is used only if it has the form of one of these.
"""

import re
from typing import Final
from urllib.parse import quote

FORMAT: Final = "format"
HINT: Final = "manifest/hint"
MANIFESTS: Final = "manifest/"
SEGMENTS: Final = "segments/"
TABLES: Final = "tables/"
_NUMBERED: Final = re.compile(r"manifest/(\d{20})")
_SEGMENT: Final = re.compile(r"segments/(\d{20})-(\d{10})-[0-9a-f]{16}\.seg")
_TABLES: Final = re.compile(r"tables/(\d{20})-[0-9a-f]{16}")


def prefix(cluster: str, broker: str) -> str:
    """Where the objects of a broker are; percent-encoded, so that no name leads elsewhere."""
    return f"{_safe(cluster)}/{_safe(broker)}"


def _safe(name: str) -> str:
    encoded = quote(name, safe="")
    return encoded.replace(".", "%2E") if not encoded.strip(".") else encoded


def manifest_name(number: int) -> str:
    return f"{MANIFESTS}{number:020d}"


def parse_manifest_name(name: str) -> int | None:
    match = _NUMBERED.fullmatch(name)
    return None if match is None else int(match[1])


def segment_name(log_start: int, epoch: int, sha256: str) -> str:
    return f"{SEGMENTS}{log_start:020d}-{epoch:010d}-{sha256[:16]}.seg"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """Log start and epoch of a segment; None for any other name."""
    match = _SEGMENT.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def tables_name(log_end: int, sha256: str) -> str:
    return f"{TABLES}{log_end:020d}-{sha256[:16]}"


def parse_tables_name(name: str) -> int | None:
    """Where the log ended when the tables were copied; None for any other name."""
    match = _TABLES.fullmatch(name)
    return None if match is None else int(match[1])
