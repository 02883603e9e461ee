from pathlib import Path
from typing import Any

import pytest

from pyromq.clock import ManualClock
from pyromq.console.security.audit import AuditEntry, AuditLog, CannotAudit


def log_in(path: Path, max_bytes: int = 100_000) -> AuditLog:
    return AuditLog(path / "audit.log", ManualClock(), max_bytes=max_bytes, backups=2)


def entry(what: str, **more: Any) -> AuditEntry:
    return AuditEntry(who="ada", where_from="10.0.0.1", what=what, **more)


def test_a_write_has_an_intention_with_the_former_values_and_an_outcome(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    written = log.write(entry("offsets.reset", fields={"group": "g"}, before=[1, 2]))
    log.write(entry("offsets.reset", id=written, outcome="ok"))
    outcome, intention = log.newest_first(10)
    assert (intention.id, intention.before, intention.outcome) == (written, [1, 2], "")
    assert (outcome.id, outcome.outcome) == (written, "ok")
    assert log.intention(written) == intention
    assert log.intention("other") is None


def test_only_its_owner_reads_it_and_it_is_rotated(tmp_path: Path) -> None:
    log = log_in(tmp_path, max_bytes=1000)
    for number in range(40):
        log.write(entry(f"what-{number:02}"))
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["audit.log", "audit.log.1", "audit.log.2"]
    assert (tmp_path / "audit.log").stat().st_mode & 0o777 == 0o600
    assert max(path.stat().st_size for path in tmp_path.iterdir()) <= 1000
    names = [entry.what for entry in log.newest_first(10)]
    assert names == [f"what-{number:02}" for number in range(39, 29, -1)]


def test_a_torn_line_is_passed_over(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.write(entry("first"))
    with log.path.open("ab") as file:
        file.write(b'{"id":"x","atMs":1')
        file.write(b"\n")
    log.write(entry("second"))
    assert [entry.what for entry in log.newest_first(10)] == ["second", "first"]


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "audit.log").mkdir()
    with pytest.raises(CannotAudit, match="cannot be written"):
        log_in(tmp_path).write(entry("topics.delete"))
