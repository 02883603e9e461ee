"""Logging of a server: one line per event, on the console and in a file that is rotated by size."""

import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from pyromq.errors import ConfigError

AUDIT = "pyromq.audit"
"""The logger of administration and refusals."""

_LINE = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s"
_TIME = "%Y-%m-%d %H:%M:%S"
_CONTROL_CHARACTERS = {code: repr(chr(code))[1:-1] for code in (*range(32), 127, 0x85, 0x2028, 0x2029)}


class OneLineFormatter(logging.Formatter):
    """Escapes control characters in a message, so that no peer can forge a line; tracebacks stay."""

    def __init__(self) -> None:
        super().__init__(_LINE, _TIME)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = record.message.translate(_CONTROL_CHARACTERS)
        return super().formatMessage(record)


def set_up_logging(level: str, file: Path | None, max_bytes: int, backups: int) -> None:
    """Send everything at or above the level to the console and, if one is given, to a file."""
    console = logging.StreamHandler(sys.stderr)
    console.addFilter(lambda record: getattr(record, "is_on_console", True))
    handlers: list[logging.Handler] = [console]
    if file is not None:
        handlers.append(_file_handler(file, max_bytes, backups))
    for handler in handlers:
        handler.setFormatter(OneLineFormatter())
    logging.basicConfig(level=level, handlers=handlers, force=True)


def set_up_audit_log(file: Path, max_bytes: int = 0, backups: int = 0) -> None:
    """Send the lines of the audit log to its own file, and only there; the level does not matter."""
    audit = logging.getLogger(AUDIT)
    for old in audit.handlers[:]:
        audit.removeHandler(old)
        old.close()
    handler = _file_handler(file, max_bytes, backups, key="auditLogFile")
    handler.setFormatter(OneLineFormatter())
    audit.addHandler(handler)
    audit.setLevel(logging.INFO)
    audit.propagate = False


def _file_handler(file: Path, max_bytes: int, backups: int, key: str = "logDir") -> logging.Handler:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return RotatingFileHandler(file, maxBytes=max_bytes, backupCount=backups, encoding="utf-8")
    except OSError as error:
        expected = f"a directory in which {file.name} can be written ({error.strerror})"
        raise ConfigError(key, file.parent, expected) from error
