"""Log files for tests that need no store."""

from pyromq.protocol.record import pack_blank_into


def filled(records: bytes | bytearray, file_bytes: int) -> bytes:
    """A closed file: records, and the blank behind the last one."""
    log = bytearray(records).ljust(file_bytes, b"\0")
    pack_blank_into(log, len(records), file_bytes - len(records))
    return bytes(log)
