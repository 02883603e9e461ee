"""What the broker logs about the opening of its store."""

import logging
from pathlib import Path

import pytest

from pyromq.broker.recovery_log import log_recovery
from pyromq.store.log.damage import Damage
from pyromq.store.recovery import RecoveryReport


def test_damage_is_one_warning_with_ranges_counts_and_where_it_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    report = RecoveryReport(was_clean=False, messages_missing=3)
    kept = Path("/data/damaged/00000000000000000500-300.bin")
    report.damage = [
        Damage(500, 800, "record at 500: unknown magic", records=2, kept_as=(kept,)),
        Damage(2000, 2100, "record at 2000: size 0", is_tail=True),
    ]
    with caplog.at_level(logging.INFO):
        log_recovery(report)
    (warning,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert warning.getMessage() == (
        "recovery of the store: 2 damaged ranges, 3 messages missing from their queues:"
        " damage in the log from offset 500 to 800, 300 bytes (record at 500: unknown magic): skipped;"
        f" 2 records began there; the bytes are kept in {kept};"
        " damage in the log from offset 2000 to 2100, 100 bytes (record at 2000: size 0):"
        " the log ends before it; all bytes are zero"
    )


def test_a_sound_store_is_opened_without_warnings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_recovery(RecoveryReport(was_clean=True))
    (opened,) = caplog.records
    assert (opened.levelno, "clean=True" in opened.getMessage()) == (logging.INFO, True)
