"""Which master wrote which part of a log: pure values, and the text of RocketMQ's `epochFileCheckpoint`.

Two logs that both have an epoch with the same start hold the same bytes of it, as far as both go: one master
wrote them. So the newest epoch that two logs share shows up to where they agree.
"""

import re
import zlib
from typing import Final, NamedTuple

from pyromq.errors import StoreError


class Epoch(NamedTuple):
    number: int
    start: int
    """The log offset of its first record."""


Epochs = tuple[Epoch, ...]
"""Numbers rise, starts do not fall."""

MAX_EPOCHS: Final = 500
"""RocketMQ's brokers send each other at most 1,000."""


def begin_epoch(epochs: Epochs, number: int, start: int) -> Epochs:
    """The epochs of a log that continues at its end `start` in a new epoch; raises StoreError if it is not
    new.

    An epoch that begins where the last one began is kept next to it: the last one wrote nothing here, and a
    log that has records of it diverges from this one there. RocketMQ drops the new one instead, and later
    considers two different logs equal.
    """
    if epochs and number <= epochs[-1].number:
        raise StoreError(f"epoch {number} cannot follow epoch {epochs[-1].number}")
    kept = tuple(each for each in epochs if each.start <= start)
    if len(kept) >= MAX_EPOCHS:  # those without a record are the least loss
        ends = [each.start for each in kept[1:]] + [start]
        written = [each for each, end in zip(kept, ends, strict=True) if each.start < end]
        kept = tuple(written[1 - MAX_EPOCHS :])
    return (*kept, Epoch(number, start))


def cut_epochs(epochs: Epochs, end: int) -> Epochs:
    """The epochs of a log that was cut at `end`."""
    return tuple(each for each in epochs if each.start < end)


def epochs_from(epochs: Epochs, first: int) -> Epochs:
    """The epochs of a log whose files before `first` were deleted."""
    return tuple(each for index, each in enumerate(epochs) if end_of(epochs, index, first + 1) > first)


def end_of(epochs: Epochs, index: int, log_end: int) -> int:
    """Where an epoch ends: at the start of the next one, or at the end of the log."""
    return epochs[index + 1].start if index + 1 < len(epochs) else log_end


def agreed_end(own: Epochs, own_end: int, other: Epochs, other_end: int) -> int | None:
    """Up to where two logs surely hold the same; None if that is unknown: they have no epoch in common.

    Two logs of which every record is known by its epoch agree at least on their empty beginning.
    """
    places = {each: index for index, each in enumerate(other)}
    for index in reversed(range(len(own))):
        place = places.get(own[index])
        if place is not None:
            return min(end_of(own, index, own_end), end_of(other, place, other_end))
    return 0 if own and other and own[0].start == other[0].start == 0 else None


def epoch_at(epochs: Epochs, offset: int) -> int | None:
    """The index of the epoch in which the record at a log offset was, or will be, written."""
    return next((index for index in reversed(range(len(epochs))) if epochs[index].start <= offset), None)


_LINE = re.compile(r"(\d+)-(\d+)")


def encode_epochs(epochs: Epochs) -> bytes:
    lines = "".join(f"{each.number}-{each.start}\n" for each in epochs).encode()
    return b"%d\n%d\n%s" % (len(epochs), _checksum(lines), lines)


def decode_epochs(data: bytes) -> Epochs:
    """Raises StoreError."""
    try:
        count, checksum, *lines = data.decode().splitlines()
        matches = [_LINE.fullmatch(line) for line in lines]
        found = tuple(Epoch(int(match[1]), int(match[2])) for match in matches if match is not None)
        expected = int(count), int(checksum)
    except ValueError:
        raise StoreError("the epoch file does not consist of a count, a checksum and epochs") from None
    if len(found) != expected[0] or len(found) != len(lines):
        raise StoreError(f"the epoch file has {len(found)} epochs in {len(lines)} lines, not {expected[0]}")
    # java: a checksum of 0 means that there is none
    if expected[1] and _checksum("".join(f"{line}\n" for line in lines).encode()) != expected[1]:
        raise StoreError("the checksum of the epoch file is wrong")
    return found


def _checksum(lines: bytes) -> int:
    return zlib.crc32(lines) & 0x7FFFFFFF
