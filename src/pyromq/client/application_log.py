"""The log of failures in functions of the application: handlers, checks, listeners.

Clients print nothing unless the application sets up logging. But a developer whose handler raises must see
it: these failures then go to stderr (docs/decisions/0011-what-clients-log.md).
"""

import logging
from collections.abc import Iterator

NAME = "pyromq.application"


class LastResort(logging.Handler):
    """Writes to stderr if no other handler takes the record."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.lastResort is not None and record.levelno >= logging.lastResort.level and not _is_taken():
            logging.lastResort.handle(record)


def _is_taken() -> bool:
    silent = LastResort, logging.NullHandler
    return any(not isinstance(handler, silent) for handler in _handlers(logging.getLogger(NAME)))


def _handlers(log: logging.Logger | None) -> Iterator[logging.Handler]:
    while log is not None:
        yield from log.handlers
        log = log.parent if log.propagate else None


application_log = logging.getLogger(NAME)
application_log.addHandler(LastResort())
