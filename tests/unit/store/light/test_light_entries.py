"""The file of the entries: a loss of power leaves some of its sectors as they were made, with zeros."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.filesystem import Files
from pyromq.store.light.entries import ENTRY, Entry, LightEntries

_PER_FILE = 32
_SECTOR = 512
_SECTORS = _PER_FILE * ENTRY.size // _SECTOR

_IN_TWO_SECTORS = [
    number
    for number in range(_PER_FILE)
    if number * ENTRY.size // _SECTOR != ((number + 1) * ENTRY.size - 1) // _SECTOR
]


def of(number: int, at_0: int) -> Entry:
    """The first `at_0` entries belong to the record at the log offset 0."""
    log_offset = max(0, number - at_0 + 1) * 100
    return Entry(log_offset, number, 7, number, number, 100, number % 5)


@settings(max_examples=examples(300))
@given(
    count=st.integers(1, _PER_FILE),
    safe=st.integers(0, _PER_FILE) | st.sampled_from(_IN_TWO_SECTORS),
    at_0=st.integers(0, 9),
    lost=st.sets(st.integers(0, _SECTORS - 1)),
)
@example(count=20, safe=10, at_0=0, lost={0})
@example(count=30, safe=9, at_0=2, lost={0, 1})
def test_what_was_synced_is_taken_over_and_nothing_else(
    count: int, safe: int, at_0: int, lost: set[int]
) -> None:
    safe = min(safe, count)
    if safe < count and of(safe, at_0).log_offset == 0:
        safe = 0  # a record is safe with all of its entries
    with TemporaryDirectory() as directory:
        root = Path(directory)
        entries = LightEntries(Files(), root, _PER_FILE)
        entries.make_room(count)
        for number in range(count):
            entries.put(of(number, at_0))
        (path,) = entries.take_dirty()
        entries.close()
        content = bytearray(path.read_bytes())
        for sector in lost:
            begin = max(sector * _SECTOR, safe * ENTRY.size)
            content[begin : (sector + 1) * _SECTOR] = bytes(max(0, (sector + 1) * _SECTOR - begin))
        path.write_bytes(content)
        before = of(safe - 1, at_0).log_offset + 1 if safe else 0
        entries = LightEntries(Files(), root, _PER_FILE)
        entries.load(before)
        try:
            assert [entries[number] for number in range(entries.end)] == [
                of(number, at_0) for number in range(safe)
            ]
        finally:
            entries.close()
