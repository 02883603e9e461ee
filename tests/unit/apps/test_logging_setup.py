"""Logging of a server: one line an event, rotated by size."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyromq.apps.logging_setup import AUDIT, OneLineFormatter, set_up_audit_log, set_up_logging
from pyromq.errors import ConfigError


@pytest.fixture(autouse=True)
def _restored_root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_events_are_written_to_the_file_from_the_level_on(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "namesrv.log"
    set_up_logging("INFO", file, max_bytes=1_000_000, backups=2)
    logging.getLogger("pyromq.test").debug("was not worth a line")
    logging.getLogger("pyromq.test").info("registered broker=%s", "broker-a")
    (line,) = file.read_text().splitlines()
    assert line.endswith(" INFO pyromq.test registered broker=broker-a")


def test_the_file_is_rotated_by_size_and_the_oldest_dropped(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.log"
    set_up_logging("INFO", file, max_bytes=200, backups=2)
    for number in range(50):
        logging.getLogger("pyromq.test").info("wrote number=%d", number)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "namesrv.log",
        "namesrv.log.1",
        "namesrv.log.2",
    ]
    assert all(each.stat().st_size <= 200 for each in tmp_path.iterdir())
    assert file.read_text().endswith("wrote number=49\n")


def test_without_a_file_only_the_console_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("WARNING", None, max_bytes=200, backups=2)
    logging.getLogger("pyromq.test").warning("lost broker=%s", "broker-a")
    assert capsys.readouterr().err.endswith("WARNING pyromq.test lost broker=broker-a\n")


def test_a_message_cannot_forge_a_line() -> None:
    name = "broker\n2025-01-01 00:00:00.000 INFO pyromq forged\x1b[2J\u2028"
    record = logging.LogRecord(
        "pyromq.test", logging.INFO, __file__, 1, "registered broker=%s", (name,), None
    )
    text = OneLineFormatter().format(record)
    assert len(text.splitlines()) == 1
    assert "\\n2025" in text
    assert "\x1b" not in text


def test_a_directory_that_cannot_be_made_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a directory")
    with pytest.raises(ConfigError, match="logDir"):
        set_up_logging("INFO", tmp_path / "taken" / "namesrv.log", max_bytes=200, backups=1)


def test_the_audit_log_has_its_own_file_whatever_the_level(tmp_path: Path) -> None:
    log, audit = tmp_path / "broker.log", tmp_path / "audit" / "audit.log"
    logger = logging.getLogger(AUDIT)
    try:
        set_up_logging("ERROR", log, max_bytes=1_000_000, backups=2)
        for _ in range(2):  # a second server of the process does not double its lines
            set_up_audit_log(audit, max_bytes=1_000_000, backups=2)
        logger.info("user=%s allowed", "root\nuser=forged")
        (line,) = audit.read_text().splitlines()
        assert line.endswith(" INFO pyromq.audit user=root\\nuser=forged allowed")
        assert log.read_text() == ""
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match="auditLogFile"):
            set_up_audit_log(tmp_path / "file" / "audit.log")
    finally:
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
        for handler in logger.handlers[:]:
            logger.removeHandler(handler)
            handler.close()
