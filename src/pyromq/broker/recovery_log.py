"""Logs the recovery of the store; all damage is one warning with ranges and counts."""

import logging
from typing import Final

from pyromq.store.recovery import RecoveryReport

_log = logging.getLogger(__name__)

_MAX_RANGES_NAMED: Final = 20


def log_recovery(report: RecoveryReport) -> None:
    _log.info(
        "store opened clean=%s log_start=%d log_end=%d began_at=%d records_checked=%d queues=%d"
        " queues_rebuilt=%d queues_cut=%d log_files_removed=%d",
        report.was_clean,
        report.log_start,
        report.log_end,
        report.began_at,
        report.records_checked,
        report.queues,
        len(report.queues_rebuilt),
        report.queues_cut,
        report.segments_removed,
    )
    for remark in report.remarks:
        _log.warning("recovery of the store: %s", remark)
    if report.damage:
        _log.warning(
            "recovery of the store: %d damaged ranges, %d messages missing from their queues: %s",
            len(report.damage),
            report.messages_missing,
            "; ".join(map(str, report.damage[:_MAX_RANGES_NAMED]))
            + ("; and more" if len(report.damage) > _MAX_RANGES_NAMED else ""),
        )
